"""FeSEM: E-step and M-step by hand, options, identities, and its degenerate start."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from coterie import models, tree
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD
from coterie.errors import SpecError, TooFewReplies
from coterie.federation import Sequential, Server
from coterie.methods.fedavg import FedAvg
from coterie.methods.fesem import FeSEM
from coterie.metrics import adjusted_rand
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("backend", ["sequential", pytest.param("vectorized", marks=pytest.mark.exhaustive)])
LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1, lr_decay=0.9)


@pytest.fixture(scope="session")
def four(tiny):
    """F_i(w) = ½(w - x_i)², so one step of rate ½ halves the distance to x_i = 0, 10, 12, 20; c has two samples."""
    return lambda **options: tiny(a=[0], b=[10], c=[12, 12], d=[20], **options)


def begin(method, fed, bank, w0=0.0, **known):
    """The state of a run with these centers and these last local models."""
    return dataclasses.replace(
        method.start(fed.task, Seed(0)),
        w0={"w": np.float32(w0)},
        bank=bank,
        models=ClientMap({client: np.array([w], np.float32) for client, w in known.items()}),
        samples=ClientMap(dict.fromkeys(known, 1)),
    )


# E and M -------------------------------------------------------------------------------------------------------------


@BOTH
def test_clients_train_the_center_nearest_to_their_last_model(backend, four, cohort, bank, step):
    # Centers 1 and 8.   a: last at 2, nearest 1 → 0.5    b: last at 7, nearest 8 → 9    c: last at 9, 8 → 10
    # (9 + 10)/2 = 9.5, although c has twice the samples of b.
    fed, method = four(backend=backend), FeSEM(step(0.5), clusters=2)
    out = method.round(begin(method, fed, bank(1, 8), a=2, b=7, c=9), fed, cohort(fed, clients="abc"), Seed(0))
    assert out.assignment == {"a": 0, "b": 1, "c": 1}
    assert out.state.bank["w"].tolist() == [0.5, 9.5]
    assert {client: model.tolist() for client, model in out.state.models.items()} == {"a": [0.5], "b": [9], "c": [10]}
    assert out.distances == {"a": 0, "b": 0.5, "c": 0.5}
    assert out.loss == (0.5 + 2 + 2 * 8) / 4


def test_clients_can_be_weighted_by_samples(four, cohort, bank, step):
    # (9 + 2·10) / 3
    fed, method = four(), FeSEM(step(0.5), clusters=2, weights="samples")
    out = method.round(begin(method, fed, bank(1, 8), a=2, b=7, c=9), fed, cohort(fed, clients="abc"), Seed(0))
    np.testing.assert_allclose(out.state.bank["w"], [0.5, 29 / 3], rtol=1e-6)


def test_all_known_clients_are_averaged_with_their_last_models(four, cohort, bank, step):
    # d is not asked; its last model 14 is nearest to 8: (9 + 10 + 14)/3 = 11. It can change its center without being
    # asked.
    fed, method = four(), FeSEM(step(0.5), clusters=2, average_over="all")
    state = begin(method, fed, bank(1, 8), a=2, b=7, c=9, d=14)
    out = method.round(state, fed, cohort(fed, clients="abc"), Seed(0))
    assert out.state.bank["w"].tolist() == [0.5, 11]
    assert out.assignment == {"a": 0, "b": 1, "c": 1}
    state = begin(method, fed, bank(1, 8), a=2, b=7, c=9, d=1.5)
    assert method.round(state, fed, cohort(fed, clients="abc"), Seed(0)).state.bank["w"].tolist() == [1, 9.5]


def test_a_center_can_be_its_first_client_as_in_the_code_of_flexcfl(four, cohort, bank, step):
    # b comes before c: center 1 moves to b's 9, and c's 10 is ignored.
    fed, method = four(), FeSEM(step(0.5), clusters=2, agg="first_only")
    out = method.round(begin(method, fed, bank(1, 8), a=2, b=7, c=9), fed, cohort(fed, clients="abc"), Seed(0))
    assert out.state.bank["w"].tolist() == [0.5, 9]
    assert out.distances == {"a": 0, "b": 0, "c": 1}


@BOTH
def test_between_two_e_steps_clients_keep_their_center(backend, four, cohort, bank, step):
    # Centers 1 and 8, E in rounds 0, 2, …; last models: b 7, d 4.
    # Round 0, with b: b belongs to 8, d (|4 - 1| = 3) to 1. b trains 8 → 9, and center 1 is at 9.
    fed, method = four(backend=backend), FeSEM(step(0.5), clusters=2, recluster_every=2)
    state = begin(method, fed, bank(1, 8), b=7, d=4)
    out = method.round(state, fed, cohort(fed, 0, "b"), Seed(0))
    assert dict(out.state.assignment) == {"b": 1, "d": 0}
    assert out.state.bank["w"].tolist() == [1, 9]
    # Round 1, with a, which is new (w_0 = 0, nearest to 1), and d, which stays with 0: 1 → 0.5 and 1 → 10.5, mean 5.5.
    out = method.round(out.state, fed, cohort(fed, 1, "ad"), Seed(1))
    assert out.assignment == {"a": 0, "d": 0}
    assert out.state.bank["w"].tolist() == [5.5, 9]
    # d's last model, 10.5, is nearer to 9; it is served by 5.5 until the next E-step. c is new.
    assert method.place(out.state, fed, fed.clients, Seed(0))[1].row == {"a": 0, "b": 1, "c": 0, "d": 0}
    # Round 2, with b: all are assigned again, d to 9.
    out = method.round(out.state, fed, cohort(fed, 2, "b"), Seed(2))
    assert dict(out.state.assignment) == {"a": 0, "b": 1, "d": 1}


def test_an_e_step_in_every_round_keeps_no_assignment(blobs, run_rounds):
    state, _ = run_rounds(FeSEM(LOCAL, clusters=2), blobs()[0], 3)
    assert not state.assignment


def test_ties_go_to_the_lowest_center_and_empty_centers_are_kept_to_the_bit(four, cohort, bank, step):
    fed, method = four(), FeSEM(step(0.5), clusters=3)
    state = begin(method, fed, bank(2, 8, 1e6 / 7), a=5)
    out = method.round(state, fed, cohort(fed, clients="a"), Seed(0))
    assert out.assignment == {"a": 0}
    assert out.state.bank["w"][1:].tobytes() == state.bank["w"][1:].tobytes()
    assert out.counts == {"empty_clusters": 2}
    late = method.round(state, fed, cohort(fed, clients="a", efforts={"a": 0.5}), Seed(0))
    assert tree.same(late.state.bank, state.bank)


def test_a_client_that_never_trained_is_placed_by_w0(four, bank, step):
    fed, method = four(), FeSEM(step(0.5), clusters=2)
    state = begin(method, fed, bank(1, 8), w0=6, a=2)
    assert method.place(state, fed, fed.clients, Seed(0))[1].row == {"a": 0, "b": 1, "c": 1, "d": 1}


def test_distances_can_be_limited_to_the_last_layer(two_layers, step):
    # a's last model: wide 0, head 5. Centers (wide, head): (0, 0) and (9, 5).
    for layers, nearest in (("all", 0), ("last", 1)):
        method = FeSEM(step(0.5), clusters=2, layers=layers)
        state = dataclasses.replace(
            method.start(dataclasses.replace(two_layers, layers=("wide", "head")), Seed(0)),
            bank={"wide": np.array([0, 9], np.float32), "head": np.array([0, 5], np.float32)},
            models=ClientMap({"a": tree.flatten({"wide": np.float32(0), "head": np.float32(5)})}),
        )
        assert state.nearest(["a"]) == {"a": nearest}


def test_the_first_round_assigns_all_clients_to_one_center(blobs, run_rounds):
    # The degenerate start that the papers report.
    fed, _ = blobs()
    _, rounds = run_rounds(FeSEM(LOCAL, clusters=3), fed, 3)
    assert all(len(set(out.assignment.values())) == 1 for out in rounds)
    assert all(out.counts == {"empty_clusters": 2} for out in rounds)


def test_the_e_step_does_not_increase_the_objective(blobs, run_rounds):
    fed, _ = blobs()
    method = FeSEM(LOCAL, clusters=2, warm_start=True)
    state = None
    for t in range(4):
        state, rounds = run_rounds(method, fed, 1, state=state, seed=t)
        distances = np.square(state.distances(fed.clients))
        before = rounds[-1].assignment
        after = state.nearest(fed.clients)
        rows = np.arange(len(fed.clients))
        assert (
            distances[rows, [after[c] for c in fed.clients]].sum()
            <= distances[rows, [before[c] for c in fed.clients]].sum()
        )


# Warm start ----------------------------------------------------------------------------------------------------------


@BOTH
def test_a_warm_start_by_hand(backend, four, cohort, bank, step):
    # From w_0 = 8, one epoch: a: 4, b: 9, c: 10, d: 14. By k-means in two: {a} and {b, c, d}, whose mean is 11, since
    # 0 + (4 + 1 + 9) = 14 is less than {a, b, c} and {d}: 20.67 of squares.
    fed, method = four(backend=backend), FeSEM(step(0.5), clusters=2, warm_start=True)
    out = method.round(begin(method, fed, bank(-50, -60), w0=8), fed, cohort(fed), Seed(0))
    assert out.assignment == {"a": 0, "b": 1, "c": 1, "d": 1}
    # Then halfway from the centers 4 and 11: a: 2; b: 10.5, c: 11.5, d: 15.5, whose mean is 12.5.
    assert out.state.bank["w"].tolist() == [2, 12.5]
    assert out.state.warmed


def test_a_client_whose_warm_start_is_lost_is_assigned_by_w0_once_there_are_centers(
    numbers, quadratic, cohort, bank, step
):
    class Losing(Sequential):
        def send(self, request):
            return iter(()) if request.work.name == "update" else super().send(request)

    fed = Server(Losing(numbers(a=[0], b=[10]), quadratic))
    method = FeSEM(step(0.5), clusters=2, warm_start=True)
    state = begin(method, fed, bank(1, 8), w0=6)
    with pytest.raises(TooFewReplies):
        method.round(state, fed, cohort(fed), Seed(0))
    # a and b count as 6, which is nearest to 8: 8 → 4 and 8 → 9.
    out = method.round(dataclasses.replace(state, warmed=True), fed, cohort(fed), Seed(0))
    assert out.assignment == {"a": 1, "b": 1}
    assert out.state.bank["w"].tolist() == [1, 6.5]


def test_a_warm_start_costs_each_client_one_exchange(blobs, run_rounds):
    fed, _ = blobs()
    state, _ = run_rounds(FeSEM(LOCAL, clusters=2, warm_start=True), fed, 4)
    model, n = 4 * tree.size(state.w0), len(fed.clients)
    assert fed.traffic.by_purpose()["pretrain"] == {"down": n * model, "up": n * model}
    assert fed.traffic.by_purpose()["train"] == {"down": 4 * n * model, "up": 4 * n * model}


@pytest.mark.slow
@pytest.mark.parametrize("average_over", ["cohort", "all"])
def test_distant_populations_are_separated_after_a_warm_start(average_over, tiny, run_rounds, step, seeds):
    scores = []
    for seed in seeds:
        noise = Seed(seed).fold("x").uniform(16)
        truth = {f"{i:02}": i % 2 for i in range(16)}
        fed = tiny(backend="vectorized", **{client: [40 * truth[client] + noise[int(client)]] for client in truth})
        method = FeSEM(step(0.5), clusters=2, warm_start=True, average_over=average_over)
        state, _ = run_rounds(method, fed, 4, size=12, seed=seed)
        scores.append(adjusted_rand(state.nearest(state.models), {c: truth[c] for c in state.models}))
    assert scores.count(1.0) >= len(seeds) - len(seeds) // 10, scores


# Identities ----------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_one_center_is_fedavg(backend, weights, blobs, run_rounds):
    fed, _ = blobs(backend=backend)
    mine, rounds = run_rounds(FeSEM(LOCAL, clusters=1, weights=weights), fed, 3, size=5, stragglers=1)
    theirs, others = run_rounds(FedAvg(LOCAL, weights=weights), fed, 3, size=5, stragglers=1)
    np.testing.assert_allclose(tree.flatten(tree.row(mine.bank, 0)), tree.flatten(theirs), atol=1e-6)
    np.testing.assert_allclose([r.loss for r in rounds], [r.loss for r in others], rtol=1e-5)


def test_traffic_equals_that_of_fedavg(blobs, run_rounds):
    # 2 K T models.
    fed, _ = blobs()
    state, _ = run_rounds(FeSEM(LOCAL, clusters=3), fed, 3, size=5)
    model = 4 * tree.size(state.w0)
    sent = fed.traffic.by_purpose()
    assert sent["train"] == {"down": 15 * model, "up": 15 * model}
    assert set(sent) == {"train", "control"}


def test_running_statistics_do_not_enter_distances():
    task = models.Task(
        name="with statistics",
        init=lambda seed: {"kernel": np.zeros(2, np.float32), "norm": {"stats": {"mean": np.zeros(3, np.float32)}}},
        apply=lambda params, x, key: x,
        shape=(2,),
        classes=2,
        layers=("kernel", "norm"),
    )
    assert FeSEM(clusters=2).start(task, Seed(0)).counted.tolist() == [True, True, False, False, False]


def test_invalid_settings_are_refused():
    for settings, text in (
        ({"clusters": 0}, "clusters must be at least 1, got 0"),
        ({"recluster_every": 0}, "recluster_every must be at least 1, got 0"),
        ({"agg": "first"}, "agg must be one of 'mean', 'first_only'"),
        ({"average_over": "some"}, "average_over must be one of 'cohort', 'all'"),
        ({"layers": "first"}, "layers must be one of 'all', 'last'"),
    ):
        with pytest.raises(SpecError, match=text):
            FeSEM(**settings)
