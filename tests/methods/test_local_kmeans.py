"""Local-KMeans: centroids by hand, identities, newcomers, and planted clusters."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import coterie
from coterie import data, models, tree
from coterie.aggregation import Aggregation
from coterie.clients import LocalSGD, fit
from coterie.errors import SpecError, TooFewReplies
from coterie.federation import Sequential, Server, vectorized
from coterie.methods.local_kmeans import LocalKMeans
from coterie.methods.oracle import Oracle
from coterie.metrics import adjusted_rand
from coterie.models import Normalize
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("kind", ["sequential", "vectorized"])
LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1)


def kmeans(**settings):
    """The method in a run of ten rounds."""
    return LocalKMeans(**{"local": LOCAL, "rounds": 10, **settings})


def clustered(method, fed, cohort, clients=None):
    """What clustering from w_0 = 0 gives."""
    zero = {"w": np.zeros((), np.float32)}
    start = dataclasses.replace(method.start(fed.task, Seed(0)), w0=zero)
    return method.round(start, fed, cohort(fed, -1, clients=clients), Seed(0))


@BOTH
def test_a_centroid_is_the_mean_of_the_models_in_its_cluster(kind, tiny, cohort, step):
    # One step of rate ½ from 0: w = 0, 1, 10, 12; everyone counts 1, whatever its examples.
    fed, method = tiny(kind=kind, a=[0], b=[2, 2, 2], c=[20], d=[24]), kmeans(local=step(0.5), clusters=2, init_steps=1)
    out = clustered(method, fed, cohort)
    assert out.assignment == {"a": 0, "b": 0, "c": 1, "d": 1}
    assert out.state.bank["w"].tolist() == [0.5, 11]
    assert (out.label, out.closes, method.stage(out.state)) == ("k-means", True, "done")
    assert method.place(out.state, fed, fed.clients, Seed(0)).row == out.assignment


def test_a_newcomer_trains_alone_and_joins_the_nearest_centroid_but_not_to_be_scored(tiny, cohort, step):
    fed = tiny(a=[0], b=[2], c=[20], d=[24], y=[5], z=[30])
    method = kmeans(local=step(0.5), clusters=2, init_steps=1)
    state = clustered(method, fed, cohort, clients="abcd").state
    assert method.place(state, fed, "ayz", Seed(0)).row == {"a": 0, "y": 0, "z": 1}  # w = 2.5 and 15
    assert method.place(state, fed.evaluating(), "ayz", Seed(0)).row == {"a": 0}
    assert method.place(method.start(fed.task, Seed(0)), fed, "az", Seed(0)).row == {"a": 0, "z": 0}


def test_as_many_clusters_as_clients_give_back_the_local_models_to_the_bit(blobs, run_rounds):
    fed, _ = blobs()
    method = kmeans(clusters=12, init_steps=20)
    state, _ = run_rounds(method, fed, 0)
    local = dataclasses.replace(LOCAL, steps=20)
    alone = fed.ask(fed.clients, fit, Seed(0).fold("prepare", 0), start=state.w0, local=local)
    assert tree.same(tree.take(state.bank, [state.assignment[client] for client in alone.clients]), alone["params"])


def test_own_starts_differ_and_are_the_clients_own(blobs, run_rounds):
    # With a rate of 0 nobody moves: each model is its start.
    fed, _ = blobs()
    still = LocalSGD(learning_rate=0.0)
    common, _ = run_rounds(kmeans(local=still, clusters=12, init_steps=1), fed, 0)
    own, _ = run_rounds(kmeans(local=still, clusters=12, init_steps=1, init="own"), fed, 0)
    assert tree.rows(common.bank) == 1
    assert tree.rows(own.bank) == 12
    for client in fed.clients:
        first = fed.task.init(Seed(0).fold("init", client))
        assert tree.same(tree.row(own.bank, own.assignment[client]), first)
    assert not tree.same(tree.row(common.bank, 0), tree.row(own.bank, 0))


def test_fine_tuning_is_oracle_in_the_clusters_found(blobs, run_rounds):
    fed, truth = blobs()
    method = kmeans(clusters=2, init_steps=50, finetune_rounds=3)
    state, _ = run_rounds(method, fed, 0)
    assert dict(state.assignment) == truth
    mine, _ = run_rounds(method, fed, 3, size=5, state=state)
    theirs, _ = run_rounds(Oracle(LOCAL, truth=truth), fed, 3, size=5, state=state.bank)
    assert tree.same(mine.bank, theirs)
    assert method.stage(mine) == "done"
    # Newcomers are compared with what the clusters were made of, not with where they have gone.
    assert tree.same(mine.centroids, state.centroids)


class Losing(Sequential):
    """Loses the replies of some clients."""

    lost = ""

    def carry(self, order):
        return (block for block in super().carry(order) if order.evaluating or block.clients[0] not in self.lost)


@pytest.fixture
def late(numbers, quadratic, cohort, step):
    """The clusters {a, b} and {c, d} around 0.5 and 10.5, which z, with x = 18 and so w = 9, has missed."""

    def make(**settings):
        transport = Losing(numbers(a=[0], b=[2], c=[20], d=[22], z=[18]), quadratic)
        method = kmeans(local=step(0.5), clusters=2, init_steps=1, finetune_rounds=3, **settings)
        transport.lost = "z"
        fed = Server(transport)
        state = clustered(method, fed, cohort).state
        assert set(state.assignment) == set("abcd")
        transport.lost = ""
        return transport, fed, method, state

    return make


def test_who_missed_the_clustering_joins_before_the_first_round_of_its_cohort(late, cohort):
    # z is nearer to 10.5 and trains from there, as c and d do, half way to x: (15.25 + 16.25 + 14.25)/3 = 15.25.
    _, fed, method, state = late()
    out = method.round(state, fed, cohort(fed, clients="abcd"), Seed(0))
    assert "z" not in out.state.assignment
    out = method.round(state, fed, cohort(fed), Seed(0))
    assert out.assignment == {"a": 0, "b": 0, "c": 1, "d": 1, "z": 1}
    assert out.state.assignment == out.assignment
    assert out.state.bank["w"].tolist() == [0.75, 15.25]
    assert out.evidence["distances"].tolist() == [[8.5, 1.5]]
    # Then everyone has a cluster, and nothing is decided. With starts of their own, all the same.
    assert method.round(out.state, fed, cohort(fed, 1), Seed(1)).evidence == {}
    _, fed, own, state = late(init="own")
    assert set(own.round(state, fed, cohort(fed), Seed(0)).state.assignment) == set("abcdz")


def test_who_is_lost_again_waits_while_the_others_train(late, cohort):
    transport, fed, method, state = late()
    transport.lost = "z"
    out = method.round(state, fed, cohort(fed), Seed(0))
    assert set(out.assignment) == set(out.state.assignment) == set("abcd")
    with pytest.raises(TooFewReplies):
        method.round(state, fed, cohort(fed, clients="z"), Seed(0))


def test_fine_tuning_takes_in_everyone_that_was_lost():
    # Of eight clients nearly a third is lost in each ask: all are in the cohort of each of six rounds.
    found = coterie.run(
        {
            "data": {"name": "blobs", "clients": 8, "samples": 20},
            "method": {"name": "localkmeans", "clusters": 2, "init_steps": 5, "finetune_rounds": 6},
            "faults": {"drop": 0.3},
            "run": {"rounds": 6, "clients_per_round": 8, "evaluate_every": 1},
        }
    )
    assert found.rounds[0]["coverage"] < 1
    assert found.summary["coverage"] == 1


def test_a_robust_rule_makes_the_centroids(numbers, quadratic, cohort, step):
    # w = 0, 1, 5 and 100 of one cluster: their mean is 26.5, their median 3.
    transport = Sequential(numbers(a=[0], b=[2], c=[10], d=[200]), quadratic)
    method = kmeans(local=step(0.5), clusters=1, init_steps=1)
    for rule, expected in (("mean", 26.5), ("median", 3)):
        out = clustered(method, Server(transport, aggregation=Aggregation(rule)), cohort)
        assert out.state.bank["w"].tolist() == [expected]


def test_newcomers_of_rounds_that_do_not_come_are_taken_in_when_all_is_done():
    found = coterie.run(
        {
            "data": {"name": "blobs", "clients": 8, "samples": 20},
            "method": {"name": "localkmeans", "clusters": 2, "init_steps": 5},
            "run": {"rounds": 4, "clients_per_round": 4, "newcomers": 0.5},
        }
    )
    (joined,) = found.summary["newcomers"]
    assert (joined["clients"], joined["coverage"]) == (4, 1.0)
    # To be scored nobody trains: half of all clients have a model in the end.
    assert (found.summary["rounds"], found.summary["coverage"]) == (0, 0.5)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"clusters": 0}, "clusters of localkmeans must be at least 1, got 0"),
        ({"init_steps": 0}, "init_steps of localkmeans must be at least 1"),
        ({"finetune_rounds": -1}, "finetune_rounds of localkmeans must be at least 0"),
        ({"init": "random"}, "init must be one of 'common', 'own', got 'random'"),
        ({"finetune_rounds": 11}, "finetune_rounds = 11 needs run.rounds of at least as many, got 10"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings, text):
    with pytest.raises(SpecError, match=text):
        kmeans(**settings)


@pytest.mark.slow
def test_rotated_digits_are_recovered_from_a_common_start(run_rounds):
    task = models.build("mclr", (8, 8), 10, normalize=Normalize(0.0, 16.0))
    scores = []
    for seed in range(10):
        images = data.load("digits", clients=40, clusters=4, seed=seed)
        truth = {client: int(cluster) for client, cluster in zip(images.clients, images.truth, strict=True)}
        state, _ = run_rounds(LocalKMeans(rounds=1), vectorized(images, task), 0, seed=seed)
        scores.append(adjusted_rand(dict(state.assignment), truth))
    assert scores.count(1.0) >= 9, scores
