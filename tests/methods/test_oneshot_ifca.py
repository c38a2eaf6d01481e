"""ONE_SHOT-IFCA: the number of clusters and the first round come from ONE_SHOT, the other rounds are IFCA's."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from coterie import data, models, tree
from coterie.aggregation import Aggregation
from coterie.clients import LocalSGD
from coterie.errors import SpecError
from coterie.federation import Sequential, Server, vectorized
from coterie.methods.ifca import IFCA
from coterie.methods.oneshot_ifca import OneShotIFCA
from coterie.metrics import adjusted_rand
from coterie.models import Normalize
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("backend", ["sequential", pytest.param("vectorized", marks=pytest.mark.exhaustive)])
LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1)


def prepared(method, fed, cohort):
    """The state after ONE_SHOT from w_0 = 0."""
    zero = {"w": np.zeros((), np.float32)}
    start = dataclasses.replace(method.start(fed.task, Seed(0)), w0=zero)
    return method.round(start, fed, cohort(fed, -1), Seed(0))


@BOTH
def test_round_0_trains_the_clusters_of_one_shot_only(backend, tiny, cohort, step, bank):
    # From 0, w = x/2 = 0, 1, 10, 11, 40; λ = 5 joins {a, b} and {c, d}, and e has no cluster. First models are the
    # means 0.5 and 10.5; half way to each x: (0.25 + 1.25)/2 and (15.25 + 16.25)/2.
    fed = tiny(backend=backend, a=[0], b=[2], c=[20], d=[22], e=[80])
    method = OneShotIFCA(step(0.5), distance="l2", threshold=5.0, init_steps=1)
    out = prepared(method, fed, cohort)
    assert out.assignment == {"a": 0, "b": 0, "c": 1, "d": 1}
    assert out.state.ifca.banks[0]["w"].tolist() == [0.5, 10.5]
    assert method.stage(out.state) == "train"
    first = method.round(out.state, fed, cohort(fed), Seed(0))
    assert first.assignment == {"a": 0, "b": 0, "c": 1, "d": 1}
    assert first.state.ifca.banks[0]["w"].tolist() == [0.75, 15.75]
    assert first.distances == {"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.5}
    # Round 1: e chooses the nearer one.
    second = method.round(first.state, fed, cohort(fed, 1), Seed(1))
    assert second.assignment == {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1}
    # Round 0 trains the clusters of C_0, even if another model fits better.
    swapped = dataclasses.replace(out.state.ifca, banks=(bank(10, 0),))
    wrong = dataclasses.replace(out.state, ifca=swapped)
    assert method.round(wrong, fed, cohort(fed), Seed(0)).assignment == {"a": 0, "b": 0, "c": 1, "d": 1}


def test_a_robust_rule_averages_the_first_models(numbers, quadratic, cohort, step):
    # w = 0, 1, 5 and 100 of one cluster: their mean is 26.5, their median 3.
    transport = Sequential(numbers(a=[0], b=[2], c=[10], d=[200]), quadratic)
    method = OneShotIFCA(step(0.5), distance="l2", threshold=1000.0, init_steps=1)
    for rule, expected in (("mean", 26.5), ("median", 3)):
        out = prepared(method, Server(transport, aggregation=Aggregation(rule)), cohort)
        assert out.state.ifca.banks[0]["w"].tolist() == [expected]


@pytest.mark.exhaustive
def test_there_is_one_independent_random_model_per_cluster(blobs, run_rounds):
    for clusters in (2, 4):
        fed, truth = blobs(clients=16, clusters=clusters)
        method = OneShotIFCA(LOCAL, init_steps=50, first_models="random")
        state, _ = run_rounds(method, fed, 0)
        assert tree.rows(state.ifca.banks[0]) == clusters == len(set(truth.values()))
        assert len({row.tobytes() for row in tree.flatten_rows(state.ifca.banks[0])}) == clusters


@pytest.mark.parametrize("first_models", ["random", "mean"])
def test_with_the_true_clusters_assignments_never_change(first_models, blobs, run_rounds):
    fed, truth = blobs()
    method = OneShotIFCA(LOCAL, init_steps=50, first_models=first_models)
    state, rounds = run_rounds(method, fed, 4)
    assert dict(state.first) == truth
    for out in rounds[2:]:
        assert out.assignment == truth


def test_after_round_0_it_is_ifca_to_the_bit(blobs, run_rounds):
    fed, _ = blobs()
    method = OneShotIFCA(LOCAL, init_steps=50, members=3)
    state, _ = run_rounds(method, fed, 1)
    mine, theirs = state, state.ifca
    plain = IFCA(LOCAL, clusters=2, members=3)
    from coterie.federation import Cohort

    for t in (1, 2):
        clients = tuple(fed.clients)
        current = Cohort(t, clients, Seed(0).fold("cohort", t), clients)
        mine = method.round(mine, fed, current, Seed(t)).state
        theirs = plain.round(theirs, fed, current, Seed(t)).state
        assert tree.same(mine.ifca.banks[0], theirs.banks[0])
    assert method.place(mine, fed, fed.clients, Seed(0))[1].row == plain.place(theirs, fed, fed.clients, Seed(0))[1].row


def test_at_most_k_members_train_and_all_clients_are_served_before_and_after(blobs, run_rounds):
    fed, _ = blobs()
    method = OneShotIFCA(LOCAL, init_steps=50, members=2)
    assert set(method.place(method.start(fed.task, Seed(0)), fed, fed.clients, Seed(0))[1].row.values()) == {0}
    state, rounds = run_rounds(method, fed, 3)
    assert [len(out.assignment) for out in rounds[1:]] == [4, 4, 4]
    assert set(method.place(state, fed, fed.clients, Seed(0))[1].row) == set(fed.clients)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"members": 0}, "members must be at least 1, got 0"),
        ({"first_models": "zero"}, "first_models must be one of 'mean', 'random', got 'zero'"),
        ({"threshold": -1.0}, "threshold must be above 0, got -1.0"),
    ],
)
def test_invalid_settings_are_rejected(settings, text):
    with pytest.raises(SpecError, match=text):
        OneShotIFCA(**settings)


@pytest.mark.slow
def test_rotated_digits_are_recovered_without_the_number_of_clusters(run_rounds, seeds):
    task = models.build("mclr", (8, 8), 10, normalize=Normalize(0.0, 16.0))
    scores = []
    for seed in seeds:
        images = data.load("digits", clients=40, clusters=4, seed=seed)
        truth = {client: int(cluster) for client, cluster in zip(images.clients, images.truth, strict=True)}
        fed, method = vectorized(images, task), OneShotIFCA()
        state, _ = run_rounds(method, fed, 4, seed=seed)
        scores.append(adjusted_rand(method.place(state, fed, fed.clients, Seed(0))[1].row, truth))
    assert scores.count(1.0) >= len(seeds) - len(seeds) // 10, scores
