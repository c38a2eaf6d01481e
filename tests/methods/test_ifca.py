"""IFCA: equations by hand, variants, identities, and recovery of planted clusters."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import data, tree
from coterie.aggregation import Aggregation
from coterie.clients import LocalSGD
from coterie.data.datasets.regression import planted_weights
from coterie.errors import SpecError
from coterie.federation import Sequential, Server, vectorized
from coterie.methods.fedavg import FedAvg
from coterie.methods.ifca import IFCA
from coterie.metrics import adjusted_rand
from coterie.models import linear_regression
from coterie.seeds import Seed

#: Of further settings of what a test in `make test` shows.
MORE = pytest.mark.exhaustive
BOTH = pytest.mark.parametrize("backend", ["sequential", pytest.param("vectorized", marks=MORE)])
LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1, lr_decay=0.9)


def begin(method, task, *banks):
    """The state of a run whose restarts have these models."""
    return dataclasses.replace(method.start(task, Seed(0)), banks=banks)


@pytest.fixture(scope="session")
def three(tiny):
    """The federation of the examples by hand.

    F_i(θ) = ½(θ - x_i)², so one step of rate ½ halves the distance to x_i. Centers start at 1 and 8.
        a: x = 0,  chooses 1 → 0.5         losses ½·1², ½·8²         gradient  1
        b: x = 10, chooses 8 → 9           losses ½·9², ½·2²         gradient -2
        c: x = 12, chooses 8 → 10          losses ½·11², ½·4²        gradient -4        with two samples
    """
    return lambda **options: tiny(a=[0], b=[10], c=[12, 12], **options)


# (a), (b), (c) ------------------------------------------------------------------------------------------------------


@BOTH
def test_each_cluster_moves_to_the_mean_of_its_own_clients(backend, three, cohort, bank, step):
    # (9 + 10) / 2 = 9.5, although c has twice the samples of b.
    fed, method = three(backend=backend), IFCA(step(0.5), clusters=2)
    out = method.round(begin(method, fed.task, bank(1, 8)), fed, cohort(fed), Seed(0))
    assert out.assignment == {"a": 0, "b": 1, "c": 1}
    assert out.state.banks[0]["w"].tolist() == [0.5, 9.5]
    assert out.distances == {"a": 0, "b": 0.5, "c": 0.5}
    # The losses before the step, weighted by samples: (½·1 + ½·4 + 2·½·16) / 4.
    assert out.loss == (0.5 + 2 + 2 * 8) / 4


def test_a_round_reports_the_losses_behind_the_choices(three, cohort, bank, step):
    fed, method = three(), IFCA(step(0.5), clusters=2)
    out = method.round(begin(method, fed.task, bank(1, 8)), fed, cohort(fed), Seed(0))
    assert out.evidence["clients"] == ["a", "b", "c"]
    np.testing.assert_allclose(out.evidence["losses"], 0.5 * np.array([[1, 64], [81, 4], [121, 16]]))


@BOTH
def test_clients_can_be_weighted_by_samples(backend, three, cohort, bank, step):
    # (9 + 2·10) / 3
    fed, method = three(backend=backend), IFCA(step(0.5), clusters=2, weights="samples")
    out = method.round(begin(method, fed.task, bank(1, 8)), fed, cohort(fed), Seed(0))
    np.testing.assert_allclose(out.state.banks[0]["w"], [0.5, 29 / 3], rtol=1e-6)


@BOTH
def test_a_cluster_can_be_its_first_client_as_in_the_code_of_flexcfl(backend, three, cohort, bank, step):
    # b comes before c: cluster 1 moves to b's 9, and c's 10 is ignored.
    fed, method = three(backend=backend), IFCA(step(0.5), clusters=2, agg="first_only")
    out = method.round(begin(method, fed.task, bank(1, 8)), fed, cohort(fed), Seed(0))
    assert out.assignment == {"a": 0, "b": 1, "c": 1}
    assert out.state.banks[0]["w"].tolist() == [0.5, 9]
    assert out.distances == {"a": 0, "b": 0, "c": 1}
    with pytest.raises(
        SpecError, match="averaging='gradients' needs the defaults of shared, members, first_round and agg"
    ):
        IFCA(agg="first_only", averaging="gradients")


@BOTH
def test_gradients_are_divided_by_the_size_of_the_cohort(backend, three, cohort, bank, step):
    # θ_j - (γ/|M|) Σ_i s_ij g_i with γ = ½ and |M| = 3:    1 - ½·1/3 = 5/6,    8 + ½·(2 + 4)/3 = 9
    fed, method = three(backend=backend), IFCA(step(0.5), clusters=2, averaging="gradients")
    out = method.round(begin(method, fed.task, bank(1, 8)), fed, cohort(fed), Seed(0))
    np.testing.assert_allclose(out.state.banks[0]["w"], [5 / 6, 9], rtol=1e-6)
    assert out.assignment == {"a": 0, "b": 1, "c": 1}
    assert out.loss == (0.5 + 2 + 2 * 8) / 4


def test_gradients_can_be_divided_by_the_size_of_the_cluster(three, cohort, bank, step):
    # 1 - ½·1 = 0.5,    8 + ½·(2 + 4)/2 = 9.5
    fed, method = three(), IFCA(step(0.5), clusters=2, averaging="gradients", normalizer="cluster")
    out = method.round(begin(method, fed.task, bank(1, 8)), fed, cohort(fed), Seed(0))
    assert out.state.banks[0]["w"].tolist() == [0.5, 9.5]


def test_the_learning_rate_of_gradients_decays_too(three, cohort, bank, step):
    # γ = ½·½ in round 1: 1 - ¼·1 = 0.75, 8 + ¼·3 = 8.75
    fed = three()
    method = IFCA(step(0.5, lr_decay=0.5), clusters=2, averaging="gradients", normalizer="cluster")
    out = method.round(begin(method, fed.task, bank(1, 8)), fed, cohort(fed, 1), Seed(0))
    assert out.state.banks[0]["w"].tolist() == [0.75, 8.75]


@BOTH
def test_ties_go_to_the_lowest_index(backend, tiny, cohort, bank, step):
    # a: ½·3² at 8 and at 2. b: ½·9² at 11 and at 11.
    fed, method = tiny(backend=backend, a=[5], b=[20]), IFCA(step(0.5), clusters=4)
    state = begin(method, fed.task, bank(8, 2, 11, 11))
    assert method.round(state, fed, cohort(fed), Seed(0)).assignment == {"a": 0, "b": 2}
    assert method.place(state, fed, fed.clients, Seed(0))[1].row == {"a": 0, "b": 2}


@BOTH
@pytest.mark.parametrize("averaging", ["models", "gradients"])
def test_a_cluster_that_no_client_chose_is_kept_to_the_bit_and_counted(backend, averaging, three, cohort, bank, step):
    fed, method = three(backend=backend), IFCA(step(0.5), clusters=4, averaging=averaging)
    start = bank(1 / 3, 1e6 / 7, 8, -1e-30)
    out = method.round(begin(method, fed.task, start), fed, cohort(fed), Seed(0))
    # The last is the nearest to a's 0, and 8 to 10 and 12.
    assert out.assignment == {"a": 3, "b": 2, "c": 2}
    for j in (0, 1):
        assert out.state.banks[0]["w"][j].tobytes() == start["w"][j].tobytes()
    assert out.counts == {"empty_clusters": 2}


def test_if_one_initial_model_is_best_for_all_clients_the_others_never_change(three, run_rounds, bank, step):
    # The failure that the paper's restarts address: all clients are nearer to 6 than to -100, in every round.
    fed, method = three(), IFCA(step(0.5), clusters=2)
    state, rounds = run_rounds(method, fed, 5, state=begin(method, fed.task, bank(6, -100)))
    assert state.banks[0]["w"][1] == -100
    assert all(r.counts == {"empty_clusters": 1} for r in rounds)


def test_a_cohort_of_stragglers_only_changes_nothing(three, cohort, bank, step):
    fed = three()
    for averaging in ("models", "gradients"):
        method = IFCA(step(0.5), clusters=2, averaging=averaging)
        late = cohort(fed, efforts=dict.fromkeys("abc", 0.5))
        out = method.round(begin(method, fed.task, bank(1 / 3, 8)), fed, late, Seed(0))
        assert tree.same(out.state.banks[0], bank(1 / 3, 8))
        assert (dict(out.assignment), out.loss, out.counts) == ({}, None, {"empty_clusters": 2})


@pytest.mark.parametrize(
    ("averaging", "expected"),
    # Without b: c alone moves cluster 1 to 10; with gradients |M| = 2: 1 - ½·½ = 0.75, 8 + ½·4/2 = 9.
    [("models", [0.5, 10]), ("gradients", [0.75, 9])],
)
def test_stragglers_are_dropped(averaging, expected, three, cohort, bank, step):
    fed, method = three(), IFCA(step(0.5), clusters=2, averaging=averaging)
    out = method.round(begin(method, fed.task, bank(1, 8)), fed, cohort(fed, efforts={"b": 0.9}), Seed(0))
    assert out.state.banks[0]["w"].tolist() == expected
    assert out.assignment == {"a": 0, "c": 1}


def test_clients_outside_the_cohort_keep_their_last_assignment(three, cohort, bank, step):
    fed, method = three(), IFCA(step(0.5), clusters=2)
    first = method.round(begin(method, fed.task, bank(1, 8)), fed, cohort(fed, clients="ab"), Seed(0)).state
    assert first.assignment == {"a": 0, "b": 1}
    # Then a alone, with the models exchanged.
    exchanged = dataclasses.replace(first, banks=(bank(8, 1),))
    assert method.round(exchanged, fed, cohort(fed, 1, clients="a"), Seed(1)).state.assignment == {"a": 1, "b": 1}


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(3)))
def test_renaming_clusters_renames_the_result(order, three, cohort, bank, step):
    fed, method = three(), IFCA(step(0.3), clusters=3)
    centers = np.array([1, 8, 11.5])
    plain = method.round(begin(method, fed.task, bank(*centers)), fed, cohort(fed), Seed(0))
    out = method.round(begin(method, fed.task, bank(*centers[order])), fed, cohort(fed), Seed(0))
    assert tree.same(out.state.banks[0], tree.take(plain.state.banks[0], order))
    assert {client: order[j] for client, j in out.assignment.items()} == plain.assignment


def test_newcomers_are_served_the_model_with_the_lowest_training_loss(tiny, bank, step):
    fed, method = tiny(a=[0], new=[9, 5], odd=[4.4]), IFCA(step(0.5), clusters=2)
    placement = method.place(begin(method, fed.task, bank(1, 8)), fed, ["new", "odd"], Seed(0))[1]
    # new: (8² + 4²)/2 against (1² + 3²)/2; odd: 3.4 away from 1 and 3.6 from 8.
    assert placement.row == {"new": 1, "odd": 0}
    assert placement.bank["w"].tolist() == [1, 8]


def test_clusters_start_from_independent_models(quadratic, step):
    state = IFCA(step(0.5), clusters=3, restarts=2).start(quadratic, Seed(0))
    drawn = [float(value) for bank in state.banks for value in bank["w"]]
    assert len(set(drawn)) == 6
    assert drawn[0] == float(FedAvg(step(0.5)).start(quadratic, Seed(0))["w"])


# Identities ---------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_one_cluster_is_fedavg_to_the_bit(backend, weights, blobs, run_rounds):
    fed, _ = blobs(backend=backend)
    state, rounds = run_rounds(IFCA(LOCAL, clusters=1, weights=weights), fed, 3, 5, stragglers=1)
    plain, plain_rounds = run_rounds(FedAvg(LOCAL, weights=weights), fed, 3, 5, stragglers=1)
    assert tree.same(tree.row(state.banks[0], 0), plain)
    assert [(r.loss, r.assignment, r.distances) for r in rounds] == [
        (r.loss, r.assignment, r.distances) for r in plain_rounds
    ]


@BOTH
@pytest.mark.parametrize("options", [{"first_round": "balanced"}, {"members": 12}, {"shared": "averaged"}])
def test_one_cluster_is_fedavg_in_every_variant(backend, options, blobs, run_rounds):
    # All clients take part, so that drawing members draws all of them.
    fed, _ = blobs(backend=backend)
    state, _ = run_rounds(IFCA(LOCAL, clusters=1, **options), fed, 2)
    plain, _ = run_rounds(FedAvg(LOCAL, weights="uniform"), fed, 2)
    assert tree.same(tree.row(state.banks[0], 0), plain)


@BOTH
def test_gradients_are_one_full_step_if_all_clients_choose_the_same_cluster(backend, blobs, run_rounds):
    # θ - (γ/|M|) Σ g_i = (1/|M|) Σ (θ - γ g_i). The two are rounded to float32 at different points: some units of
    # 6e-8, relative to parameters below 1, after three rounds.
    fed, _ = blobs(backend=backend)
    local = LocalSGD(steps=1, batch_size=0, learning_rate=0.5)
    one, two = IFCA(local, clusters=2, averaging="gradients"), IFCA(local, clusters=2)
    first = one.start(fed.task, Seed(0)).banks[0]
    far = tree.map(lambda leaf: np.stack([leaf[0], leaf[1] + np.float32(50) * np.sign(leaf[1])]), first)
    by_gradients, rounds = run_rounds(one, fed, 3, state=begin(one, fed.task, far))
    by_models, _ = run_rounds(two, fed, 3, state=begin(two, fed.task, far))
    assert all(set(r.assignment.values()) == {0} for r in rounds)
    moved = np.abs(tree.flatten(by_models.banks[0]) - tree.flatten(far)).max()
    np.testing.assert_allclose(tree.flatten(by_gradients.banks[0]), tree.flatten(by_models.banks[0]), atol=5e-7)
    assert moved > 0.01


# First round, members, warm start, restarts -------------------------------------------------------------------------


@BOTH
def test_a_balanced_first_round_assigns_clients_evenly(backend, tiny, run_rounds, step):
    # 7 clients among 3 clusters: sizes 3, 2, 2, whatever their data; one step of rate 1 moves each to the mean of its
    # clients.
    held = {f"c{i}": [float(i)] for i in range(7)}
    fed, method = tiny(backend=backend, **held), IFCA(step(1.0), clusters=3, first_round="balanced")
    assignments = set()
    for seed in range(3):
        state, (first,) = run_rounds(method, fed, 1, seed=seed)
        assert sorted(Counter(first.assignment.values()).values()) == [2, 2, 3]
        for j in range(3):
            own = [held[client][0] for client, cluster in first.assignment.items() if cluster == j]
            assert state.banks[0]["w"][j] == pytest.approx(np.mean(own))
        assignments.add(tuple(sorted(first.assignment.items())))
    assert len(assignments) == 3


@settings(max_examples=25, deadline=None)
@given(size=st.integers(1, 9), clusters=st.integers(1, 5), seed=st.integers(0, 100))
def test_balanced_sizes_differ_by_at_most_one(size, clusters, seed, tiny, cohort, step):
    fed = tiny(**{f"c{i}": [0] for i in range(9)})
    method = IFCA(step(1.0), clusters=clusters, first_round="balanced")
    asked = cohort(fed, clients=fed.clients[:size])
    out = method.round(method.start(fed.task, Seed(0)), fed, asked, Seed(seed))
    sizes = np.bincount(list(out.assignment.values()), minlength=clusters)
    assert set(out.assignment) == set(asked)
    assert sizes.max() - sizes.min() <= 1
    assert out.counts == {"empty_clusters": max(0, clusters - size)}


@BOTH
@pytest.mark.parametrize("members", [0, 12])
def test_the_first_round_may_assign_clients_by_their_numbers(backend, members, tiny, run_rounds, step):
    # In the order of ids, a, b, c, d, e are clients 0 to 4; modulo 2: a, c, e and b, d, for all data and seeds.
    # One step of rate 1 moves the models to (1 + 5 + 9)/3 = 5 and (3 + 7)/2 = 5. A tie goes to the first model, so that
    # all clients choose it in the next round, and it moves to (1 + 3 + 5 + 7 + 9)/5 = 5; the other stays.
    fed = tiny(backend=backend, e=[9.0], a=[1.0], b=[3.0], c=[5.0], d=[7.0])
    method = IFCA(step(1.0), clusters=2, first_round="modulo", members=members)
    for seed in range(2):
        state, (first, second) = run_rounds(method, fed, 2, seed=seed)
        assert first.assignment == {"a": 0, "b": 1, "c": 0, "d": 1, "e": 0}
        assert set(second.assignment.values()) == {0}
        assert state.banks[0]["w"].tolist() == [5, 5]


def test_numbers_are_those_among_all_clients(tiny, cohort, step):
    # c is client 2 and d client 3, whoever else is in the cohort.
    fed, method = tiny(a=[0], b=[0], c=[0], d=[0]), IFCA(step(1.0), clusters=2, first_round="modulo")
    out = method.round(method.start(fed.task, Seed(0)), fed, cohort(fed, clients="d"), Seed(0))
    assert out.assignment == {"d": 1}


def test_after_a_balanced_first_round_clients_choose_by_loss(three, cohort, bank, step):
    fed, method = three(), IFCA(step(0.5), clusters=2, first_round="balanced")
    state = method.round(method.start(fed.task, Seed(0)), fed, cohort(fed, 0), Seed(0)).state
    out = method.round(dataclasses.replace(state, banks=(bank(1, 8),)), fed, cohort(fed, 1), Seed(1))
    assert out.assignment == {"a": 0, "b": 1, "c": 1}
    assert out.state.banks[0]["w"].tolist() == [0.5, 9.5]
    # In one exchange: two models of four bytes down to each of three clients, and one up.
    assert (fed.traffic.total("down", "train", 1), fed.traffic.total("up", "train", 1)) == (24, 12)


@BOTH
def test_members_are_drawn_among_all_clients_of_each_cluster(backend, tiny, cohort, bank, step):
    # Near 0: a, b, c; near 100: d. The cohort is d alone, but all clients choose, and at most two of each cluster
    # train.
    held = {"a": [-1.0], "b": [0.0], "c": [4.0], "d": [100.0]}
    fed, method = tiny(backend=backend, **held), IFCA(step(1.0), clusters=2, members=2)
    drawn = set()
    for seed in range(8):
        asked = cohort(fed, clients="d", seed=seed)
        out = method.round(begin(method, fed.task, bank(1, 90)), fed, asked, Seed(0))
        near = [client for client, j in out.assignment.items() if j == 0]
        assert len(near) == 2
        assert [client for client, j in out.assignment.items() if j == 1] == ["d"]
        # One step of rate 1 moves to the mean of the drawn clients.
        assert out.state.banks[0]["w"].tolist() == [sum(held[client][0] for client in near) / 2, 100]
        assert out.evidence["clients"] == ["a", "b", "c", "d"]
        assert out.evidence["losses"].shape == (4, 2)
        drawn.add(tuple(near))
    assert len(drawn) > 1


def test_a_cluster_that_no_client_chose_has_no_members(three, cohort, bank, step):
    fed, method = three(), IFCA(step(0.5), clusters=3, members=5)
    out = method.round(begin(method, fed.task, bank(1, 8, 1000)), fed, cohort(fed), Seed(0))
    assert out.state.banks[0]["w"].tolist() == [0.5, 9.5, 1000]
    assert out.counts == {"empty_clusters": 1}


def test_stragglers_among_the_members_are_dropped_too(three, cohort, bank, step):
    # As without members: c alone moves cluster 1 to 10, and the partial work of b is ignored.
    fed, method = three(), IFCA(step(0.5), clusters=2, members=3)
    out = method.round(begin(method, fed.task, bank(1, 8)), fed, cohort(fed, efforts={"b": 0.9}), Seed(0))
    assert out.assignment == {"a": 0, "c": 1}
    assert out.state.banks[0]["w"].tolist() == [0.5, 10]


@BOTH
def test_warm_rounds_are_fedavg_in_fixed_groups_of_equal_size(backend, tiny, run_rounds, step):
    # Steps of rate ½ toward x_i from the group's model θ: its mean halves its distance to the group's mean x̄, so that
    # after three rounds it is x̄ + (θ - x̄)/8. Groups that change from step to step would not reach this value.
    held = {f"c{i}": [float(10**i)] for i in range(6)}
    fed, method = tiny(backend=backend, **held), IFCA(step(0.5), clusters=2, warm_rounds=3)
    state, rounds = run_rounds(method, fed, 0)
    assert len(rounds) == 3
    assert (state.prepared, state.rounds, method.stage(state)) == (3, 0, "train")
    assert sorted(Counter(rounds[0].assignment.values()).items()) == [(0, 3), (1, 3)]
    assert rounds[0].assignment == rounds[1].assignment == rounds[2].assignment
    first = method.start(fed.task, Seed(0)).banks[0]["w"]
    for j in range(2):
        mean = np.mean([held[client][0] for client, cluster in rounds[0].assignment.items() if cluster == j])
        assert state.banks[0]["w"][j] == pytest.approx(mean + (first[j] - mean) / 8, rel=1e-6)


def test_warm_rounds_do_not_count_as_the_first_round(tiny, run_rounds, step):
    # A balanced first round follows them, then all clients choose by loss.
    fed = tiny(**{f"c{i}": [0] for i in range(4)})
    _, rounds = run_rounds(IFCA(step(0.5), clusters=2, warm_rounds=1, first_round="balanced"), fed, 2)
    sizes = [sorted(Counter(r.assignment.values()).values()) for r in rounds]
    assert sizes == [[2, 2], [2, 2], [4]]


def test_restarts_serve_the_run_with_the_lowest_training_loss(three, cohort, bank, step):
    # Training losses weighted by samples: from 100 and 200 about ½·90²; from 1 and 8 (0.5 + 2 + 2·8)/4; from 1 and 50
    # more.
    fed, method = three(), IFCA(step(0.5), clusters=2, restarts=3)
    state = begin(method, fed.task, bank(100, 200), bank(1, 8), bank(1, 50))
    assert state.best == 0
    out = method.round(state, fed, cohort(fed), Seed(0))
    assert out.state.best == 1
    assert out.state.losses[1] == out.loss == (0.5 + 2 + 2 * 8) / 4
    assert out.assignment == {"a": 0, "b": 1, "c": 1}
    # All three restarts have trained: 100 halves its distance to 0, 10 and 12: (50 + 55 + 56)/3.
    assert out.state.banks[1]["w"].tolist() == [0.5, 9.5]
    np.testing.assert_allclose(out.state.banks[0]["w"], [161 / 3, 200], rtol=1e-6)
    placement = method.place(out.state, fed, fed.clients, Seed(0))[1]
    assert placement.bank["w"].tolist() == [0.5, 9.5]
    assert placement.row == {"a": 0, "b": 1, "c": 1}


def test_the_first_restart_equals_the_run_without_restarts(blobs, run_rounds):
    fed, _ = blobs()
    several, _ = run_rounds(IFCA(LOCAL, clusters=2, restarts=2), fed, 2, 5)
    one, _ = run_rounds(IFCA(LOCAL, clusters=2), fed, 2, 5)
    assert tree.same(several.banks[0], one.banks[0])
    assert not tree.same(several.banks[1], one.banks[0])


# Balanced starts ----------------------------------------------------------------------------------------------------


def test_initial_models_are_redrawn_until_they_are_balanced(tiny, run_rounds, step):
    # The boundary between two models is their mean: with clients at -½ and ½ they are balanced if it lies in between.
    fed, method = tiny(a=[-0.5], b=[0.5]), IFCA(step(0.5), clusters=2, balanced_share=0.5)
    kept = 0
    for seed in range(12):
        drawn = method.start(fed.task, Seed(seed)).banks[0]
        state, rounds = run_rounds(method, fed, 0, seed=seed)
        assert len(rounds) == 1
        assert abs(state.banks[0]["w"].mean()) < 0.5
        balanced = abs(drawn["w"].mean()) < 0.5
        assert tree.same(state.banks[0], drawn) == balanced
        kept += balanced
    assert 0 < kept < 12


def test_every_restart_is_balanced(tiny, run_rounds, step):
    fed, method = tiny(a=[-0.5], b=[0.5]), IFCA(step(0.5), clusters=2, balanced_share=0.5, restarts=3)
    for seed in range(4):
        state, _ = run_rounds(method, fed, 0, seed=seed)
        assert all(abs(bank["w"].mean()) < 0.5 for bank in state.banks)
        assert len({float(bank["w"][0]) for bank in state.banks}) == 3


def test_initial_models_that_cannot_be_balanced_are_an_error(tiny, run_rounds, step):
    # Clients with the same data choose the same model.
    fed = tiny(a=[3], b=[3])
    with pytest.raises(SpecError, match=r"100 sets of .* a share of 0\.4 of the clients; lower method\.balanced_share"):
        run_rounds(IFCA(step(0.5), clusters=2, balanced_share=0.4), fed, 0)


def test_a_cluster_with_exactly_its_share_is_balanced(tiny, cohort, bank, step):
    # 7, 9 and 9 of 25 clients, and 0.28·25 is 7.000000000000001 in floating point.
    fed = tiny(**{f"c{i:02}": [0 if i < 7 else 10 if i < 16 else 20] for i in range(25)})
    method = IFCA(step(0.5), clusters=3, balanced_share=0.28)
    state = begin(method, fed.task, bank(0, 10, 20))
    out = method.round(state, fed, cohort(fed, -1), Seed(0))
    assert tree.same(out.state.banks[0], state.banks[0])


# Shared layers ------------------------------------------------------------------------------------------------------
#
# F_i = ½(wide + head - x_i)². From wide = 2 and heads -1 and 6 the models are 1 and 8, as above, and one step of rate ½
# moves both layers by half the distance:
#     a: -½ → wide 1.5, head -1.5        b: +1 → wide 3, head 7        c: +2 → wide 4, head 8


def layers(wide, head):
    return {"wide": np.array(wide, np.float32), "head": np.array(head, np.float32)}


@BOTH
@pytest.mark.parametrize(
    ("options", "wide", "head"),
    [
        ({"shared": "none"}, [1.5, 3.5], [-1.5, 7.5]),
        ({"shared": "averaged"}, [8.5 / 3, 8.5 / 3], [-1.5, 7.5]),  # (1.5 + 3 + 4)/3 over the whole cohort
        # c counts twice
        pytest.param({"shared": "averaged", "weights": "samples"}, [12.5 / 4] * 2, [-1.5, 23 / 3], marks=MORE),
        ({"shared": "frozen"}, [2, 2], [-1.5, 7.5]),
        # each cluster has both layers of its own
        pytest.param({"shared": "averaged", "head_layers": 2}, [1.5, 3.5], [-1.5, 7.5], marks=MORE),
        pytest.param({"shared": "averaged", "members": 3}, [8.5 / 3] * 2, [-1.5, 7.5], marks=MORE),
    ],
)
def test_lower_layers_are_shared_as_set(backend, options, wide, head, three, cohort, step, two_layers):
    fed, method = three(task=two_layers, backend=backend), IFCA(step(0.5), clusters=2, **options)
    out = method.round(begin(method, two_layers, layers([2, 2], [-1, 6])), fed, cohort(fed), Seed(0))
    np.testing.assert_allclose(out.state.banks[0]["wide"], wide, rtol=1e-6)
    np.testing.assert_allclose(out.state.banks[0]["head"], head, rtol=1e-6)
    assert out.assignment == {"a": 0, "b": 1, "c": 1}


@BOTH
@pytest.mark.parametrize("options", [{}, {"first_round": "balanced"}, {"members": 2}, {"weights": "samples"}])
def test_frozen_layers_are_kept_to_the_bit_and_heads_train(backend, options, three, run_rounds, step, two_layers):
    fed = three(task=two_layers, backend=backend)
    method = IFCA(step(0.3), clusters=2, shared="frozen", **options)
    first = method.start(two_layers, Seed(0))
    state, _ = run_rounds(method, fed, 4)
    assert tree.same(state.banks[0]["wide"], first.banks[0]["wide"])
    assert first.banks[0]["wide"][0] == first.banks[0]["wide"][1]
    assert not tree.same(state.banks[0]["head"], first.banks[0]["head"])


@pytest.mark.parametrize(
    "options",
    [
        {},
        *(
            pytest.param(each, marks=MORE)
            for each in ({"first_round": "balanced"}, {"warm_rounds": 2}, {"restarts": 2})
        ),
    ],
)
@pytest.mark.parametrize("shared", ["averaged", "frozen"])
def test_shared_layers_are_equal_in_all_clusters_from_the_start(shared, options, three, run_rounds, step, two_layers):
    # Also before any training, in a cluster that no client chose, and after a warm start.
    fed, method = three(task=two_layers), IFCA(step(0.3), clusters=3, shared=shared, **options)
    first = method.start(two_layers, Seed(0))
    _, rounds = run_rounds(method, fed, 2)
    for state in [first, *(r.state for r in rounds)]:
        for bank in state.banks:
            assert np.unique(bank["wide"]).size == 1
            assert np.unique(bank["head"]).size == 3


def test_warm_rounds_train_the_layers_that_are_frozen_afterwards(three, run_rounds, step, two_layers):
    # One model for all clients for two rounds; every cluster gets its lower layer, the heads keep their initial values.
    fed, method = three(task=two_layers), IFCA(step(0.3), clusters=2, shared="frozen", warm_rounds=2)
    first = method.start(two_layers, Seed(0)).banks[0]
    state, rounds = run_rounds(method, fed, 3)
    w = tree.row(first, 0)
    for t in range(2):
        # A step of rate 0.3 for each of x = 0, 10, 12, with uniform weights: both layers move by 0.3·(22/3 - wide -
        # head).
        move = 0.3 * (22 / 3 - float(w["wide"] + w["head"]))
        w = tree.map(lambda leaf, by=move: leaf + by, w)
        assert rounds[t].state.banks[0]["wide"] == pytest.approx([float(w["wide"])] * 2, rel=1e-5)
        assert tree.same(rounds[t].state.banks[0]["head"], first["head"])
    assert tree.same(state.banks[0]["wide"], rounds[1].state.banks[0]["wide"])
    assert not tree.same(state.banks[0]["head"], first["head"])


def test_warm_rounds_with_averaged_layers_average_them_over_all_groups(three, run_rounds, step, two_layers):
    # Starting from a common lower layer, each group moves it by its own update; the result is the mean update.
    fed, method = three(task=two_layers), IFCA(step(0.5), clusters=2, shared="averaged", warm_rounds=1)
    first = method.start(two_layers, Seed(0)).banks[0]
    state, (warm,) = run_rounds(method, fed, 0)
    held = {"a": 0.0, "b": 10.0, "c": 12.0}
    updates = [0.5 * (held[c] - float(first["wide"][j] + first["head"][j])) for c, j in warm.assignment.items()]
    assert state.banks[0]["wide"] == pytest.approx([float(first["wide"][0]) + np.mean(updates)] * 2, rel=1e-5)


def test_distances_with_shared_layers_are_those_to_the_whole_model(three, cohort, step, two_layers):
    # Averaged: wide is 17/6 in all clusters and differs by 8/6, 1/6 and 7/6; the heads differ by 0, 3/6 and 3/6.
    fed = three(task=two_layers)
    averaged = {"a": 8 / 6, "b": 10**0.5 / 6, "c": 58**0.5 / 6}
    for shared, shown in (("averaged", averaged), ("frozen", {"a": 0, "b": 0.5, "c": 0.5})):
        method = IFCA(step(0.5), clusters=2, shared=shared)
        state = begin(method, two_layers, layers([2, 2], [-1, 6]))
        assert method.round(state, fed, cohort(fed), Seed(0)).distances == pytest.approx(shown, rel=1e-6)


def test_a_robust_rule_averages_the_shared_layers_over_all_clients(numbers, cohort, step, two_layers):
    # The median of wide = 1.5, 3 and 4 is 3; the mean of the clusters' medians would be (1.5 + 2·3.5)/3.
    transport = Sequential(numbers(a=[0], b=[10], c=[12]), two_layers)
    fed, method = Server(transport, aggregation=Aggregation("median")), IFCA(step(0.5), clusters=2, shared="averaged")
    out = method.round(begin(method, two_layers, layers([2, 2], [-1, 6])), fed, cohort(fed), Seed(0))
    assert out.state.banks[0]["wide"].tolist() == [3, 3]
    assert out.state.banks[0]["head"].tolist() == [-1.5, 7.5]


@BOTH
@pytest.mark.parametrize(("shared", "down"), [("none", 2 * 8), ("averaged", 4 + 2 * 4), ("frozen", 4 + 2 * 4)])
def test_shared_layers_are_sent_once_and_heads_k_times(backend, shared, down, three, cohort, step, two_layers):
    # Two layers of one float32 each; k = 2 whole models, or wide once and k heads, for each of three clients.
    fed, method = three(task=two_layers, backend=backend), IFCA(step(0.5), clusters=2, shared=shared)
    state = method.start(two_layers, Seed(0))
    method.round(state, fed, cohort(fed), Seed(0))
    assert fed.traffic.total("down", "train") == 3 * down
    # Up: one model; and beside it, as control, k losses, the choice, the training loss and the number of steps.
    assert fed.traffic.total("up", "train") == 3 * 8
    assert fed.traffic.total("up", "control") == 3 * (2 * 4 + 4 + 4 + 4)


# Settings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"clusters": 0}, r"method\.clusters must be at least 1, got 0"),
        ({"restarts": 0}, r"method\.restarts must be at least 1, got 0"),
        ({"members": -1}, r"method\.members must be at least 0, got -1"),
        ({"head_layers": 0}, r"method\.head_layers must be at least 1, got 0"),
        ({"warm_rounds": -2}, r"method\.warm_rounds must be at least 0, got -2"),
        ({"clusters": 4, "balanced_share": 0.3}, r"method\.balanced_share must be at most 1/clusters, got 0\.3"),
        ({"balanced_share": -0.1}, r"method\.balanced_share must be between 0 and 1, got -0\.1"),
        ({"averaging": "gradients", "members": 3}, "averaging='gradients' needs the defaults of"),
        ({"averaging": "gradients", "shared": "frozen"}, "averaging='gradients' needs the defaults of"),
        ({"averaging": "gradients", "first_round": "balanced"}, "averaging='gradients' needs the defaults of"),
    ],
)
def test_invalid_settings_are_refused(options, text):
    with pytest.raises(SpecError, match=text):
        IFCA(**options)


# Convergence --------------------------------------------------------------------------------------------------------

_LINEAR = linear_regression((50,), bias=False)


@pytest.mark.parametrize("averaging", ["gradients", "models"])
@pytest.mark.parametrize("seed", range(2))
def test_near_the_true_models_clients_are_assigned_at_once_and_the_error_decays_geometrically(
    averaging, seed, run_rounds
):
    # 10 of 20 clients with n = 100 in each of k = 2 clusters: the eigenvalues of a cluster's Hessian are within
    # (1 ± √(50/1000))², that is [0.60, 1.50]. The step is ½ of its gradient (γ = 1 divided by the cohort, which is
    # twice the cluster; or γ = ½ in each cluster): the error shrinks at least by 1 - ½·0.60 = 0.70 in each round; 0.8
    # allows for random variation. The floor is σ √(d/1000) = 2e-4, far below 0.7·0.8¹⁰ = 0.08.
    planted = data.load("regression", clients=20, clusters=2, dimension=50, samples=100, test_samples=0, seed=seed)
    fed = vectorized(planted, _LINEAR)
    local = LocalSGD(steps=1, batch_size=0, learning_rate=1.0 if averaging == "gradients" else 0.5)
    method = IFCA(local, clusters=2, averaging=averaging)
    true = planted_weights(2, 50, seed=seed)
    near = true + 0.1 * np.random.default_rng(seed).standard_normal(true.shape)
    state = begin(method, _LINEAR, {"linear": {"kernel": near.astype(np.float32)}})
    _, rounds = run_rounds(method, fed, 10, state=state)
    assert rounds[0].assignment == {c: int(k) for c, k in zip(planted.clients, planted.truth, strict=True)}
    models = [near, *(r.state.banks[0]["linear"]["kernel"] for r in rounds)]
    errors = [np.linalg.norm(model - true, axis=1) for model in models]
    for before, after in itertools.pairwise(errors):
        assert (after <= 0.8 * before).all()
    assert (errors[-1] <= 0.8**10 * errors[0]).all()


@pytest.mark.parametrize("options", [{"restarts": 3}, {"balanced_share": 0.25}])
def test_planted_clusters_are_found_in_six_rounds(options, blobs, run_rounds, accuracy, seeds):
    # Adjusted Rand index 1 on at least 9 of the seeds 0..9.
    method = IFCA(LocalSGD(epochs=2, batch_size=8, learning_rate=0.1), clusters=2, **options)
    found = 0
    for seed in seeds:
        fed, truth = blobs(seed)
        state, rounds = run_rounds(method, fed, 6, seed=seed)
        placement = method.place(state, fed, fed.clients, Seed(0))[1]
        if adjusted_rand(placement.row, truth) == 1.0:
            found += 1
            assert placement.row == rounds[-1].assignment
            assert rounds[-1].counts == {"empty_clusters": 0}
            assert accuracy(method, state, fed) > 0.9
    assert found >= len(seeds) - len(seeds) // 10
