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

BOTH = pytest.mark.parametrize("backend", ["sequential", pytest.param("vectorized", marks=pytest.mark.exhaustive)])
LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1)


def kmeans(**settings):
    """The method in a run of ten rounds."""
    return LocalKMeans(**{"local": LOCAL, "rounds": 10, **settings})


def clustered(method, fed, cohort, clients=None):
    """The round of clustering from w_0 = 0."""
    zero = {"w": np.zeros((), np.float32)}
    start = dataclasses.replace(method.start(fed.task, Seed(0)), w0=zero)
    return method.round(start, fed, cohort(fed, -1, clients=clients), Seed(0))


@BOTH
def test_a_centroid_is_the_mean_of_the_models_in_its_cluster(backend, tiny, cohort, step):
    # One step of rate ½ from 0: w = 0, 1, 10, 12; clients have equal weights, whatever their number of examples.
    fed, method = (
        tiny(backend=backend, a=[0], b=[2, 2, 2], c=[20], d=[24]),
        kmeans(local=step(0.5), clusters=2, init_steps=1),
    )
    out = clustered(method, fed, cohort)
    assert out.assignment == {"a": 0, "b": 0, "c": 1, "d": 1}
    assert out.state.bank["w"].tolist() == [0.5, 11]
    assert (out.label, out.closes, method.stage(out.state)) == ("k-means", True, "done")
    assert method.place(out.state, fed, fed.clients, Seed(0))[1].row == out.assignment


def test_a_newcomer_trains_alone_and_joins_the_nearest_centroid_except_in_evaluation(tiny, cohort, step):
    fed = tiny(a=[0], b=[2], c=[20], d=[24], y=[5], z=[30])
    method = kmeans(local=step(0.5), clusters=2, init_steps=1)
    state = clustered(method, fed, cohort, clients="abcd").state
    assert method.place(state, fed, "ayz", Seed(0))[1].row == {"a": 0, "y": 0, "z": 1}  # w = 2.5 and 15
    assert method.place(state, fed.evaluating(), "ayz", Seed(0))[1].row == {"a": 0}
    assert method.place(method.start(fed.task, Seed(0)), fed, "az", Seed(0))[1].row == {"a": 0, "z": 0}


def test_one_cluster_per_client_gives_the_local_models_to_the_bit(blobs, run_rounds):
    fed, _ = blobs()
    method = kmeans(clusters=12, init_steps=20)
    state, _ = run_rounds(method, fed, 0)
    local = dataclasses.replace(LOCAL, steps=20)
    alone = fed.ask(fed.clients, fit, Seed(0).fold("prepare", 0), start=state.w0, local=local)
    assert tree.same(tree.take(state.bank, [state.assignment[client] for client in alone.clients]), alone["params"])


@pytest.mark.exhaustive
def test_own_initial_models_differ_between_clients(blobs, run_rounds):
    # With a rate of 0 each model stays at its initial model.
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


def test_fine_tuning_is_oracle_with_the_found_clusters(blobs, run_rounds):
    fed, truth = blobs()
    method = kmeans(clusters=2, init_steps=50, finetune_rounds=3)
    state, _ = run_rounds(method, fed, 0)
    assert dict(state.assignment) == truth
    mine, _ = run_rounds(method, fed, 3, size=5, state=state)
    theirs, _ = run_rounds(Oracle(LOCAL, truth=truth), fed, 3, size=5, state=state.bank)
    assert tree.same(mine.bank, theirs)
    assert method.stage(mine) == "done"
    # Newcomers are compared with the initial centroids, not with the trained models.
    assert tree.same(mine.centroids, state.centroids)


class Losing(Sequential):
    """Drops the replies of some clients."""

    lost = ""

    def send(self, request):
        return (batch for batch in super().send(request) if request.evaluating or batch.clients[0] not in self.lost)


@pytest.fixture
def with_newcomer(numbers, quadratic, cohort, step):
    """The clusters {a, b} and {c, d} around 0.5 and 10.5, and z with x = 18, w = 9, which missed the clustering."""

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


def test_a_client_that_missed_the_clustering_joins_when_it_is_in_a_cohort(with_newcomer, cohort):
    # z is nearer to 10.5 and trains from there, as c and d do, half way to x: (15.25 + 16.25 + 14.25)/3 = 15.25.
    _, fed, method, state = with_newcomer()
    out = method.round(state, fed, cohort(fed, clients="abcd"), Seed(0))
    assert "z" not in out.state.assignment
    out = method.round(state, fed, cohort(fed), Seed(0))
    assert out.assignment == {"a": 0, "b": 0, "c": 1, "d": 1, "z": 1}
    assert out.state.assignment == out.assignment
    assert out.state.bank["w"].tolist() == [0.75, 15.25]
    assert out.evidence["distances"].tolist() == [[8.5, 1.5]]
    # Then all clients have a cluster, and no evidence is needed. The same with their own initial models.
    assert method.round(out.state, fed, cohort(fed, 1), Seed(1)).evidence == {}
    _, fed, own, state = with_newcomer(init="own")
    assert set(own.round(state, fed, cohort(fed), Seed(0)).state.assignment) == set("abcdz")


def test_a_newcomer_that_is_lost_again_does_not_train(with_newcomer, cohort):
    transport, fed, method, state = with_newcomer()
    transport.lost = "z"
    out = method.round(state, fed, cohort(fed), Seed(0))
    assert set(out.assignment) == set(out.state.assignment) == set("abcd")
    with pytest.raises(TooFewReplies):
        method.round(state, fed, cohort(fed, clients="z"), Seed(0))


def test_all_lost_clients_join_during_fine_tuning():
    # Nearly a third of the replies is lost in each request; all eight clients are in the cohort of all six rounds.
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


def test_a_robust_rule_averages_the_centroids(numbers, quadratic, cohort, step):
    # w = 0, 1, 5 and 100 of one cluster: their mean is 26.5, their median 3.
    transport = Sequential(numbers(a=[0], b=[2], c=[10], d=[200]), quadratic)
    method = kmeans(local=step(0.5), clusters=1, init_steps=1)
    for rule, expected in (("mean", 26.5), ("median", 3)):
        out = clustered(method, Server(transport, aggregation=Aggregation(rule)), cohort)
        assert out.state.bank["w"].tolist() == [expected]


def test_without_rounds_newcomers_join_at_the_end_of_the_run():
    found = coterie.run(
        {
            "data": {"name": "blobs", "clients": 8, "samples": 20},
            "method": {"name": "localkmeans", "clusters": 2, "init_steps": 5},
            "run": {"rounds": 4, "clients_per_round": 4, "newcomers": 0.5},
        }
    )
    (joined,) = found.summary["newcomers"]
    assert (joined["clients"], joined["coverage"]) == (4, 1.0)
    # Their placement is kept: all clients are covered in the end.
    assert (found.summary["rounds"], found.summary["coverage"]) == (0, 1.0)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"clusters": 0}, "clusters must be at least 1, got 0"),
        ({"init_steps": 0}, "init_steps must be at least 1, got 0"),
        ({"finetune_rounds": -1}, "finetune_rounds must be at least 0, got -1"),
        ({"init": "random"}, "init must be one of 'common', 'own', got 'random'"),
        ({"finetune_rounds": 11}, "finetune_rounds = 11 needs at least as many run.rounds, got 10"),
    ],
)
def test_invalid_settings_are_rejected(settings, text):
    with pytest.raises(SpecError, match=text):
        kmeans(**settings)


@pytest.mark.slow
def test_rotated_digits_are_recovered_from_a_common_initial_model(run_rounds, seeds):
    task = models.build("mclr", (8, 8), 10, normalize=Normalize(0.0, 16.0))
    scores = []
    for seed in seeds:
        images = data.load("digits", clients=40, clusters=4, seed=seed)
        truth = {client: int(cluster) for client, cluster in zip(images.clients, images.truth, strict=True)}
        state, _ = run_rounds(LocalKMeans(rounds=1), vectorized(images, task), 0, seed=seed)
        scores.append(adjusted_rand(dict(state.assignment), truth))
    assert scores.count(1.0) >= len(seeds) - len(seeds) // 10, scores
