"""SR-FCA: ONE_SHOT, trimmed training, RECLUSTER and MERGE by hand, identities, faults, and planted clusters."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import coterie
from coterie import data, models, tree
from coterie.aggregation import Aggregation
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD
from coterie.errors import SpecError, TooFewReplies
from coterie.federation import Cohort, Sequential, Server, vectorized
from coterie.methods.global_model import Global
from coterie.methods.oracle import Oracle
from coterie.methods.srfca import SRFCA
from coterie.metrics import adjusted_rand
from coterie.models import Normalize
from coterie.runs.build import build
from coterie.runs.spec import Spec
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("backend", ["sequential", pytest.param("vectorized", marks=pytest.mark.exhaustive)])
LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1)


@pytest.fixture(scope="session")
def four(tiny):
    """The federation of the hand-computed examples, from w_0 = 0.

    F_i(w) = ½(w - x_i)², so one step of rate ½ from 0 is w_i = x_i/2:
        a: x = 0,  w = 0        c: x = 20, w = 10
        b: x = 2,  w = 1        d: x = 22, w = 11
    """
    return lambda **how: tiny(a=[0], b=[2], c=[20], d=[22], **how)


@pytest.fixture
def srfca(step):
    """`srfca(...)`: one step of rate ½ alone and in each round, all clients take part, one REFINE of one round."""

    def make(**settings):
        base = {"local": step(0.5), "init_steps": 1, "members": 0, "refines": 1, "beta": 0.0, "rounds": 1}
        return SRFCA(**{**base, **settings})

    return make


def from_zero(method, fed):
    """The initial state with w_0 = 0."""
    zero = {"w": np.zeros((), np.float32)}
    return dataclasses.replace(method.start(fed.task, Seed(0)), w0=zero, bank=tree.stack([zero]))


def finish(method, fed, state=None, seed=0, among=None, until="done"):
    """Run until a stage, or until the part of a label is over; the final state and the rounds."""
    root, all_clients = Seed(seed), tuple(fed.clients if among is None else sorted(among))
    state = method.start(fed.task, root) if state is None else state
    rounds, t, prepared = [], state.rounds, 0
    while method.stage(state) not in ("done", until):
        if method.stage(state) == "prepare":
            name, at, prepared = root.fold("prepare", prepared), -1, prepared + 1
        else:
            name, at, t = root.fold("round", t), t, t + 1
        done = method.round(state, fed, Cohort(at, all_clients, name.fold("cohort"), all_clients), name)
        rounds.append(done)
        state = done.state
        if done.closes and done.label == until:
            break
    return state, rounds


def clustered(method, fed, row, bank, threshold=5.0):
    """The state before RECLUSTER with these clusters; all clients trained alone to x_i/2."""
    state, _ = finish(dataclasses.replace(method, threshold=math.inf), fed, from_zero(method, fed), until="one shot")
    known = {"assignment": ClientMap(row), "bank": bank, "threshold": threshold, "rounds": 1, "untrained": False}
    return dataclasses.replace(state, **known)


# ONE_SHOT ------------------------------------------------------------------------------------------------------------


@BOTH
def test_clients_with_close_models_form_a_cluster(backend, four, cohort, srfca):
    # l2 of 0, 1, 10, 11: components join at 1, 1 and 9, and the gap's middle is 5.
    fed, method = four(backend=backend), srfca(distance="l2")
    out = method.round(from_zero(method, fed), fed, cohort(fed, -1), Seed(0))
    assert out.assignment == {"a": 0, "b": 0, "c": 1, "d": 1}
    assert out.state.trained.models["w"].tolist() == [0, 1, 10, 11]
    assert out.state.threshold == 5
    assert out.evidence["distances"].tolist() == [[0, 1, 10, 11], [1, 0, 9, 10], [10, 9, 0, 1], [11, 10, 1, 0]]
    assert (out.label, out.closes) == ("one shot", True)


@BOTH
def test_cross_losses_compare_each_model_on_the_other_clients_examples(backend, four, cohort, srfca):
    # f_a(w_b) = ½(1 - 0)², f_b(w_a) = ½(0 - 2)²: (0.5 + 2)/2 = 1.25. c and d: (40.5 + 72)/2 = 56.25.
    # a and c: (50 + 200)/2 = 125. b and c: (32 + 180.5)/2 = 106.25, the nearest across.
    fed, method = four(backend=backend), srfca(threshold=80.0)
    out = method.round(from_zero(method, fed), fed, cohort(fed, -1), Seed(0))
    D = out.evidence["distances"]
    assert [D[0, 1], D[2, 3], D[0, 2], D[1, 2]] == [1.25, 56.25, 125, 106.25]
    assert out.assignment == {"a": 0, "b": 0, "c": 1, "d": 1}
    # Components join at 1.25, 56.25 and 106.25: the widest gap is the first, with half of the clients below it. It is
    # used by default, too, because a single example has no noise floor.
    assert srfca().threshold == "auto"
    out = srfca().round(from_zero(method, fed), fed, cohort(fed, -1), Seed(0))
    assert (out.state.threshold, out.assignment) == (28.75, {"a": 0, "b": 0})


@pytest.mark.parametrize(
    ("settings", "row"),
    [
        ({"threshold": 0.9}, None),
        ({"threshold": 1.0}, {"a": 0, "b": 0, "c": 1, "d": 1}),
        ({"threshold": 9.0}, {"a": 0, "b": 0, "c": 0, "d": 0}),  # a chain: d(a, d) = 11
        ({"threshold": math.inf}, {"a": 0, "b": 0, "c": 0, "d": 0}),
        ({"threshold": 1.0, "min_size": 3}, None),
        ({"threshold": 1.0, "grouping": "pivot"}, None),  # pairs, and more than t = 2 are needed
        ({"threshold": 1.0, "grouping": "pivot", "min_size": 1}, {"a": 0, "b": 0, "c": 1, "d": 1}),
        # The pairs are 1, 1, 9, 10, 10, 11: number ⌈6/4⌉ from 0 is 9, number ⌈6/6⌉ is 1.
        ({"threshold": "quantile"}, {"a": 0, "b": 0, "c": 0, "d": 0}),
        ({"threshold": "quantile", "quantile": 1 / 6}, {"a": 0, "b": 0, "c": 1, "d": 1}),
    ],
)
def test_threshold_and_minimum_size_determine_the_clusters(settings, row, four, cohort, srfca):
    fed, method = four(), srfca(distance="l2", **settings)
    if row is None:
        with pytest.raises(SpecError, match=r"No \d clients form a cluster .* Use a larger one"):
            method.round(from_zero(method, fed), fed, cohort(fed, -1), Seed(0))
    else:
        assert method.round(from_zero(method, fed), fed, cohort(fed, -1), Seed(0)).assignment == row


def test_a_client_without_a_cluster_joins_one_in_recluster(tiny, cohort, srfca):
    # e: w = 30 is far from all: it has no cluster in C_0, does not train, is not evaluated, and joins {c, d} later.
    fed, method = tiny(a=[0], b=[2], c=[20], d=[22], e=[60]), srfca(distance="l2", threshold=5.0)
    state, rounds = finish(method, fed, from_zero(method, fed))
    assert [set(out.assignment) for out in rounds] == [set("abcd"), set("abcd"), set("abcde")]
    assert state.assignment == {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1}
    trained = rounds[1].state
    assert set(method.place(trained, fed.evaluating(), fed.clients, Seed(0))[1].row) == set("abcd")
    assert method.place(trained, fed, fed.clients, Seed(0))[1].row["e"] == 1  # outside of evaluation it may train


# Training ------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("mode", ["models", "gradients"])
def test_a_cluster_moves_to_the_trimmed_mean_of_its_members(backend, mode, tiny, cohort, srfca):
    # Models 1, 2, 3, 4, 100; gradients -2, -4, -6, -8, -200, of which half a step: β = 0.2 drops one at each end → 3.
    fed = tiny(backend=backend, a=[2], b=[4], c=[6], d=[8], e=[200])
    for beta, expected in ((0.2, 3), (0.0, 22)):
        method = srfca(threshold=math.inf, mode=mode, beta=beta)
        _, rounds = finish(method, fed, from_zero(method, fed))
        assert rounds[1].state.bank["w"].tolist() == [expected]
        assert (rounds[1].label, rounds[1].closes) == ("train 1", True)


def test_clusters_train_independently_and_distances_are_to_their_models(four, cohort, srfca):
    # {a, b} → (0 + 1)/2, {c, d} → (10 + 11)/2
    fed, method = four(), srfca(distance="l2")
    _, rounds = finish(method, fed, from_zero(method, fed))
    assert rounds[1].state.bank["w"].tolist() == [0.5, 10.5]
    assert rounds[1].distances == {"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.5}
    trimmed = srfca(distance="l2", beta=0.3)
    assert finish(trimmed, fed, from_zero(trimmed, fed))[1][1].distances == rounds[1].distances


@pytest.mark.exhaustive
def test_at_most_k_members_of_each_cluster_train(blobs):
    fed, truth = blobs()
    method = SRFCA(LOCAL, init_steps=30, members=2, refines=1, rounds=6)
    _, rounds = finish(method, fed)
    drawn = [sorted(out.assignment) for out in rounds if out.label == "train 1"]
    for clients in drawn:
        assert sorted(truth[client] for client in clients) == [0, 0, 1, 1]
    assert len({tuple(each) for each in drawn}) > 1


def test_each_refine_starts_from_w0_or_continues(four, srfca):
    # From 0: 0.5 and 10.5 in both. Continuing: half way from 0.5 to 0 and to 2 is 0.25 and 1.25, so 0.75; from 10.5:
    # 15.25 and 16.25, so 15.75.
    fed = four()
    for start_from, expected in (("w0", [0.5, 10.5]), ("continue", [0.75, 15.75])):
        method = srfca(distance="l2", refines=2, rounds=2, start_from=start_from)
        state, rounds = finish(method, fed, from_zero(method, fed))
        assert rounds[1].state.bank["w"].tolist() == [0.5, 10.5]
        assert state.bank["w"].tolist() == expected


def test_each_refine_can_start_from_new_random_models(four, srfca):
    # One step of rate ½ halves the distance of the mean x, 1 and 21, so a start s gives (s + 1)/2 and (s + 21)/2.
    fed, method = four(), srfca(distance="l2", refines=2, rounds=2, start_from="new")
    _, rounds = finish(method, fed, from_zero(method, fed))
    starts = [2 * rounds[i].state.bank["w"].astype(float) - [1, 21] for i in (1, 3)]
    assert len({round(start, 3) for each in starts for start in each.tolist()}) == 4  # two clusters, two REFINE steps


def test_members_of_a_cluster_train_in_turn_but_alone_in_one_shot(four, srfca):
    # Alone, all from 0: 0, 1, 10, 11. In turn from 0: a then b 0 and 1, b then a 1 and 0.5; c then d 10 and 16, d then
    # c 11 and 15.5.
    fed, method = four(), srfca(distance="l2", local=LocalSGD(steps=1, batch_size=0, learning_rate=0.5, in_turn=True))
    _, rounds = finish(method, fed, from_zero(method, fed))
    assert rounds[0].state.trained.models["w"].tolist() == [0, 1, 10, 11]
    low, high = rounds[1].state.bank["w"].tolist()
    assert low in (0.5, 0.75)
    assert high in (13, 13.25)


@BOTH
def test_trimming_as_coded_drops_one_low_and_two_high_of_ten(backend, tiny, srfca):
    # Models 1 … 9 and 100, β = 0.15: as coded (2 + … + 8)/7 = 5, symmetric (2 + … + 9)/8 = 5.5.
    fed = tiny(backend=backend, **{f"c{i}": [2 * i] for i in range(1, 10)}, d=[200])
    for trimming, expected in (("symmetric", 5.5), ("as_coded", 5.0)):
        method = srfca(threshold=math.inf, beta=0.15, trimming=trimming)
        _, rounds = finish(method, fed, from_zero(method, fed))
        assert rounds[1].state.bank["w"].tolist() == [expected]


def test_final_training_continues_from_the_merged_models_without_trimming(tiny, srfca):
    # One REFINE ends at 3 (see above); then all clients count: half way from ω to the mean x = 44.
    fed = tiny(a=[2], b=[4], c=[6], d=[8], e=[200])
    trained = {}
    for final in ("fedavg", "fedprox"):
        method = srfca(threshold=math.inf, beta=0.2, rounds=2, final=final, mu=0.0)
        state, rounds = finish(method, fed, from_zero(method, fed))
        assert [out.label for out in rounds] == ["one shot", "train 1", "refine 1", "final"]
        trained[final] = state.bank["w"].tolist()
    assert trained == {"fedavg": [23.5], "fedprox": [23.5]}
    # With μ = 1, one step of rate ½ is the same: the proximal term is 0 at the model received. Two steps differ.
    two = dataclasses.replace(method.local, steps=2)
    proximal = srfca(local=two, threshold=math.inf, rounds=2, final="fedprox", mu=1.0)
    plain = srfca(local=two, threshold=math.inf, rounds=2, final="fedavg")
    one, other = (finish(each, fed, from_zero(each, fed))[0].bank["w"][0] for each in (proximal, plain))
    assert abs(one - 33) < abs(other - 33)  # both come from ω = 33, ¾ of the way to 44


def test_stragglers_take_part_in_fedprox_only(four, cohort, srfca):
    fed = four()
    for final, took_part in (("fedavg", set("abd")), ("fedprox", set("abcd"))):
        method = srfca(distance="l2", rounds=2, final=final)
        state, _ = finish(method, fed, from_zero(method, fed), until="refine 1")
        out = method.round(state, fed, cohort(fed, 1, efforts={"c": 0.5}), Seed(0))
        assert set(out.assignment) == took_part


# RECLUSTER and MERGE -------------------------------------------------------------------------------------------------


@BOTH
def test_clients_move_to_the_nearest_cluster(backend, four, cohort, srfca, bank):
    # C_0 has b and c exchanged. With l2, w = 0, 1, 10, 11 to ω = 0 and 10. With cross losses, b to cluster 0,
    # {a, c}: f_0(w_b) = (½·1² + ½·19²)/2 = 90.5, f_b(ω_0) = 2; to 1 = {b, d}: f_1(w_b) = (0.5 + 220.5)/2 = 110.5,
    # f_b(ω_1) = 32: it goes to 0.
    fed = four(backend=backend)
    for distance in ("l2", "cross"):
        method = srfca(distance=distance)
        state = clustered(method, fed, {"a": 0, "b": 1, "c": 0, "d": 1}, bank(0, 10))
        assert method.stage(state) == "prepare"
        out = method.round(state, fed, cohort(fed, -1), Seed(0))
        assert out.assignment == {"a": 0, "b": 0, "c": 1, "d": 1}
        assert out.counts == {"clients_moved": 2, "clusters_dissolved": 0, "clusters_merged": 0}
        assert (out.label, out.closes, method.stage(out.state)) == ("refine 1", True, "done")
    assert out.evidence["distances"][1].tolist() == [46.25, 71.25]


def test_recluster_uses_the_members_before_and_merge_those_after(four, cohort, srfca, bank):
    # After RECLUSTER {a, b} and {c, d}: f_0(ω_1) = (½·10² + ½·8²)/2 = 41, f_1(ω_0) = (½·20² + ½·22²)/2 = 221: 131.
    fed, method = four(), srfca()
    row = {"a": 0, "b": 1, "c": 0, "d": 1}
    for threshold, clusters in ((130.9, 2), (131.0, 1)):
        state = clustered(method, fed, row, bank(0, 10), threshold)
        out = method.round(state, fed, cohort(fed, -1), Seed(0))
        assert out.evidence["clusters"][0, 1] == 131
        assert tree.rows(out.state.bank) == clusters


def test_small_clusters_are_dissolved_and_models_are_renumbered_with_members(tiny, cohort, srfca, bank):
    # w = 0, 1, 10, 10.5, 12 with ω = 50, 0, 12, 10: no client is near 50; only e is near 12, which is dissolved, and e
    # stays in its cluster.
    fed, method = tiny(a=[0], b=[2], c=[20], d=[21], e=[24]), srfca(distance="l2")
    row = {"a": 0, "b": 0, "c": 2, "d": 2, "e": 3}
    out = method.round(clustered(method, fed, row, bank(50, 0, 12, 10)), fed, cohort(fed, -1), Seed(0))
    assert out.assignment == {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1}
    assert out.state.bank["w"].tolist() == [0, 10]
    assert out.evidence["merged"] == [[1], [3]]
    assert out.counts == {"clients_moved": 4, "clusters_dissolved": 2, "clusters_merged": 0}


def test_close_clusters_merge_at_the_mean_of_their_models(tiny, cohort, srfca, bank):
    # ω = 0 of {a, b}, 4 of {c, d, e}, 30 of {f, g}; λ = 5.  (0 + 4)/2; continuing, (2·0 + 3·4)/5.
    fed = tiny(a=[0], b=[0], c=[8], d=[8], e=[8], f=[60], g=[60])
    row = {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1, "f": 2, "g": 2}
    for start_from, merged in (("w0", 2.0), ("continue", 2.4)):
        method = srfca(distance="l2", start_from=start_from)
        out = method.round(clustered(method, fed, row, bank(0, 4, 30)), fed, cohort(fed, -1), Seed(0))
        assert out.assignment == dict.fromkeys("abcde", 0) | dict.fromkeys("fg", 1)
        assert out.state.bank["w"].tolist() == pytest.approx([merged, 30])
        assert out.counts["clusters_merged"] == 1


# Lost replies --------------------------------------------------------------------------------------------------------


class Losing(Sequential):
    """Drops the replies of some clients: work name → clients."""

    lost: dict[str, str] = {}  # noqa: RUF012 - set by the tests

    def send(self, request):
        gone = "" if request.evaluating else self.lost.get(request.work.name, "")
        return (batch for batch in super().send(request) if batch.clients[0] not in gone)


@pytest.mark.parametrize("distance", ["l2", "cross"])
def test_a_client_that_missed_one_shot_trains_alone_before_recluster(distance, numbers, quadratic, srfca):
    transport = Losing(numbers(a=[0], b=[2], c=[20], d=[22], e=[21]), quadratic)
    transport.lost = {"fit": "e"}
    fed, method = Server(transport), srfca(distance=distance, threshold={"l2": 5.0, "cross": 80.0}[distance])
    state, _ = finish(method, fed, from_zero(method, fed), until="train 1")
    assert set(state.trained.clients) == set("abcd")
    transport.lost = {}
    state, _ = finish(method, fed, state)
    assert state.assignment == {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1}
    assert state.trained.clients == tuple("abcde")


def test_a_client_with_lost_losses_is_compared_by_the_losses_of_others(numbers, quadratic, srfca):
    # Without f_b: d(a, b) = f_a(w_b) = 0.5, d(b, c) = f_c(w_b) = 180.5.
    transport = Losing(numbers(a=[0], b=[2], c=[20], d=[22]), quadratic)
    transport.lost = {"losses_of": "b"}
    fed, method = Server(transport), srfca(threshold=80.0)
    state, rounds = finish(method, fed, from_zero(method, fed))
    assert rounds[0].evidence["distances"][1].tolist()[::2] == [0.5, 180.5]
    assert state.assignment == {"a": 0, "b": 0, "c": 1, "d": 1}
    transport.lost = {"losses_of": "abcd"}
    with pytest.raises(TooFewReplies):
        finish(method, fed, from_zero(method, fed))


@pytest.fixture
def losing(numbers, quadratic):
    """Clients with w = 0, 1 and 10, 11, 12, and their transport, which can lose replies."""
    transport = Losing(numbers(a=[0], b=[2], c=[20], d=[22], e=[24]), quadratic)
    transport.lost = {}
    return transport, Server(transport)


def test_a_round_without_replies_counts_and_recluster_follows_on_schedule(losing, cohort, srfca):
    # T = 2, and round 1, the last of both REFINE and run, is lost: the models are those of round 0, 0.5 and 11.
    transport, fed = losing
    method = srfca(distance="l2", rounds=2)
    state, _ = finish(method, fed, from_zero(method, fed), until="one shot")
    state = method.round(state, fed, cohort(fed, 0), Seed(0)).state
    transport.lost = {"fit": "abcde"}
    out = method.round(state, fed, cohort(fed, 1), Seed(0))
    assert out.skipped == "0 of 5 clients replied to 'fit'; the minimum is 1"
    assert (out.label, out.closes, method.stage(out.state)) == ("train 1", True, "prepare")
    out = method.round(out.state, fed, cohort(fed, -1), Seed(0))
    assert (out.label, out.assignment) == ("refine 1", {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1})
    assert out.state.bank["w"].tolist() == [0.5, 11]
    assert method.stage(out.state) == "done"


def test_a_refine_without_any_training_leaves_the_clusters_as_they_are(losing, cohort, srfca):
    # At w_0 all clusters have the same model: RECLUSTER would merge them.
    transport, fed = losing
    method = srfca(distance="l2", refines=2, rounds=2)
    state, _ = finish(method, fed, from_zero(method, fed), until="one shot")
    transport.lost = {"fit": "abcde"}
    state = method.round(state, fed, cohort(fed, 0), Seed(0)).state
    state = method.round(state, fed, cohort(fed, -1), Seed(0)).state
    assert (state.refined, len(set(state.assignment.values())), method.stage(state)) == (1, 2, "train")
    transport.lost = {}
    state, rounds = finish(method, fed, state)
    assert [out.label for out in rounds] == ["train 2", "refine 2"]
    assert state.bank["w"].tolist() == [0.5, 11]


def test_a_run_whose_last_round_is_lost_ends_with_recluster_and_merge(numbers, quadratic):
    spec = {"method": {"name": "srfca", "refines": 1, "init_steps": 1}, "faults": {"drop": 0.4}}
    lost = []
    for seed in range(8):
        run = {"rounds": 2, "clients_per_round": 2, "seed": seed, "backend": "sequential"}
        found = coterie.run({**spec, "run": run}, data=numbers(a=[0], b=[2]), task=quadratic)
        trained = [row["skipped"] for row in found.rounds if row["stage"] == "train"]
        assert len(trained) == 2
        assert found.rounds[-1]["phase"] == "refine 1"
        lost.append(trained[-1])
    assert any(lost)  # otherwise the test checks nothing


@pytest.mark.parametrize("beta", [0.0, 0.15])
@pytest.mark.parametrize("mode", ["models", "gradients"])
def test_a_round_with_stragglers_only_is_skipped(mode, beta, four, cohort, srfca):
    fed, method = four(), srfca(distance="l2", mode=mode, beta=beta)
    state, _ = finish(method, fed, from_zero(method, fed), until="one shot")
    out = method.round(state, fed, cohort(fed, efforts=dict.fromkeys("abcd", 0.5)), Seed(0))
    assert out.skipped == "All 4 clients that were drawn are stragglers"
    assert tree.same(out.state.bank, state.bank)
    assert out.state.rounds == 1


@pytest.mark.parametrize("distance", ["l2", "cross"])
def test_clients_lost_before_join_in_final_training(distance, losing, cohort, srfca):
    # {a, b} and {c, d} are at 0.5 and 10.5; then e joins c and d, which go half way from there to 20, 22 and 24:
    # (15.25 + 16.25 + 17.25)/3 = 16.25.
    transport, fed = losing
    threshold = {"l2": 5.0, "cross": 80.0}[distance]
    method = srfca(distance=distance, threshold=threshold, rounds=3, refine_rounds=1, final="fedavg")
    transport.lost = {"fit": "e"}
    state, _ = finish(method, fed, from_zero(method, fed), until="refine 1")
    assert set(state.assignment) == set("abcd")
    out = method.round(state, fed, cohort(fed, 1), Seed(0))
    assert set(out.assignment) == set(out.state.assignment) == set("abcd")  # e is lost again
    transport.lost = {}
    assert set(method.round(state, fed, cohort(fed, 1, clients="abcd"), Seed(0)).state.assignment) == set("abcd")
    preparing = fed.traffic.by_purpose(-1)
    out = method.round(state, fed, cohort(fed, 1), Seed(0))
    assert fed.traffic.by_purpose(-1) == preparing  # its traffic belongs to the round
    assert out.state.assignment == out.assignment == {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1}
    assert out.state.bank["w"].tolist() == [0.75, 16.25]


@pytest.mark.parametrize("mode", ["models", "gradients"])
def test_the_learning_rate_starts_again_in_each_refine(mode, four, srfca):
    # Rates ½ and ¼ from w_0 = 0, in both REFINE steps: {a, b} goes to 0.5 and 0.5 + 0.25·0.5, {c, d} twenty-one times
    # as far. Final training starts with ½ again: 0.625 + 0.375/2.
    local = LocalSGD(steps=1, batch_size=0, learning_rate=0.5, lr_decay=0.5)
    settings = {"refines": 2, "refine_rounds": 2, "rounds": 5, "final": "fedavg"}
    fed, method = four(), srfca(local=local, distance="l2", mode=mode, **settings)
    _, rounds = finish(method, fed, from_zero(method, fed))
    trained = [out.state.bank["w"].tolist() for out in rounds if out.label.startswith(("train", "final"))]
    assert trained == [[w, 21 * w] for w in (0.5, 0.625, 0.5, 0.625, 0.8125)]


def test_clusters_that_the_last_merge_joined_train_in_the_remaining_rounds(four, bank, srfca):
    # ω = 5 and 6 are nearer than λ = 5 and become 5.5; the mean of 0, 2, 20 and 22 is 11, and each round goes half way.
    # ω = 0 and 11 stay apart, and the run ends. With final = "none" it ends in any case.
    row = {"a": 0, "b": 0, "c": 1, "d": 1}
    for final, centers, expected in (
        ("auto", (5, 6), [("refine 1", [5.5]), ("final", [8.25]), ("final", [9.625])]),
        ("auto", (0, 11), [("refine 1", [0, 11])]),
        ("none", (5, 6), [("refine 1", [5.5])]),
    ):
        fed, method = four(), srfca(distance="l2", rounds=3, refine_rounds=1, final=final)
        _, rounds = finish(method, fed, clustered(method, fed, row, bank(*centers)))
        assert [(out.label, out.state.bank["w"].tolist()) for out in rounds] == expected
        assert rounds[0].counts["clusters_merged"] == (centers == (5, 6))


# Averaging -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["models", "gradients"])
def test_the_federations_rule_applies_to_means_that_are_not_trimmed(mode, numbers, quadratic, srfca):
    # Models 1, 2, 3, 4, 100, or half steps along such gradients: mean 22, median 3; β = 0.2 trims to 3, with any rule:
    # Krum's would be 2.
    transport = Sequential(numbers(a=[2], b=[4], c=[6], d=[8], e=[200]), quadratic)
    for beta, rule, expected in ((0.0, "mean", 22), (0.0, "median", 3), (0.2, "krum", 3)):
        fed = Server(transport, aggregation=Aggregation(rule))
        method = srfca(threshold=math.inf, mode=mode, beta=beta)
        _, rounds = finish(method, fed, from_zero(method, fed))
        assert rounds[1].state.bank["w"].tolist() == [expected]


def test_a_robust_rule_warns_about_the_means_that_do_not_use_it(caplog):
    def logged(beta, rule):
        caplog.clear()
        method = {"name": "srfca", "beta": beta}
        build(Spec.of({"data": {"name": "blobs", "clients": 4}, "method": method, "aggregation": {"rule": rule}}))
        return caplog.text

    assert "aggregation.rule = 'median' does not apply to all means of srfca: those of REFINE are trimmed" in logged(
        0.15, "median"
    )
    assert logged(0.15, "mean") == logged(0.0, "median") == ""


# Serving -------------------------------------------------------------------------------------------------------------


def test_after_one_shot_clients_are_served_their_own_models_then_those_of_clusters(four, srfca):
    fed, method = four(), srfca(distance="l2")
    start = from_zero(method, fed)
    assert method.place(start, fed, "ab", Seed(0))[1].row == {"a": 0, "b": 0}
    state, _ = finish(method, fed, start, until="one shot", among="abc")
    served = method.place(state, fed.evaluating(), fed.clients, Seed(0))[1]
    assert {c: float(served.bank["w"][row]) for c, row in served.row.items()} == {"a": 0, "b": 1, "c": 10}
    newcomer = method.place(state, fed, "d", Seed(0))[1]
    assert newcomer.bank["w"][newcomer.row["d"]] == 11
    state, _ = finish(method, fed, state, among="abc")
    assert method.place(state, fed.evaluating(), fed.clients, Seed(0))[1].row == {"a": 0, "b": 0, "c": 0}


@pytest.mark.parametrize("distance", ["l2", "cross"])
def test_a_newcomer_trains_alone_and_joins_the_nearest_cluster(distance, tiny, srfca):
    fed = tiny(a=[0], b=[2], c=[20], d=[22], y=[3], z=[19])
    method = srfca(distance=distance, threshold={"l2": 5.0, "cross": 80.0}[distance])
    state, _ = finish(method, fed, from_zero(method, fed), among="abcd")
    before = fed.traffic.total()
    placement = method.place(state, fed, fed.clients, Seed(0))[1]
    assert placement.row == {"a": 0, "b": 0, "c": 1, "d": 1, "y": 0, "z": 1}
    assert fed.traffic.total() > before
    assert set(method.place(state, fed.evaluating(), fed.clients, Seed(0))[1].row) == set("abcd")


# Identities ----------------------------------------------------------------------------------------------------------


@BOTH
def test_one_cluster_is_global_to_the_bit(backend, blobs, run_rounds):
    fed, _ = blobs(backend=backend)
    method = SRFCA(LOCAL, threshold=math.inf, init_steps=5, members=0, beta=0.0, refines=1, rounds=3)
    mine, rounds = finish(method, fed)
    theirs, others = run_rounds(Global(LOCAL), fed, 3)
    assert tree.same(tree.row(mine.bank, 0), theirs)
    assert [out.loss for out in rounds[1:4]] == [out.loss for out in others]


def test_the_true_partition_is_oracle_to_the_bit(blobs, run_rounds):
    fed, truth = blobs()
    method = SRFCA(LOCAL, init_steps=30, members=0, beta=0.0, refines=1, rounds=3)
    mine, rounds = finish(method, fed)
    assert rounds[0].assignment == truth
    theirs, _ = run_rounds(Oracle(LOCAL, weights="uniform", truth=truth), fed, 3)
    assert tree.same(mine.bank, theirs)


def test_traffic_counts_every_model_sent_to_every_client(blobs):
    # ONE_SHOT: w_0 to m clients and m models up; all m to each of m, and m losses from each. A round: K models down and
    # up in each cluster. RECLUSTER: C models to each of m, C losses from each.
    fed, _ = blobs()
    state, _ = finish(SRFCA(LOCAL, init_steps=30, members=4, refines=1, rounds=2), fed)
    m, k, c, t, model = 12, 4, 2, 2, 4 * tree.size(state.w0)
    sent = fed.traffic.by_purpose()["train"]
    assert sent["down"] == (m + m * m + k * c * t + c * m) * model
    assert sent["up"] == (m + k * c * t) * model + 4 * (m * m + c * m)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"threshold": 0.0}, "threshold must be above 0, got 0.0"),
        ({"threshold": math.nan}, "threshold must be above 0, got nan"),
        ({"threshold": "wide"}, "threshold must be a number above 0 or one of 'auto', 'gap', 'quantile', got 'wide'"),
        ({"quantile": 0.0}, "quantile must be above 0 and at most 1, got 0.0"),
        ({"distance": "l1"}, "distance must be one of 'cross', 'l2', got 'l1'"),
        ({"grouping": "cliques"}, "grouping must be one of 'components', 'pivot'"),
        ({"min_size": 0}, "min_size must be at least 1"),
        ({"init_steps": 0}, "init_steps must be at least 1"),
        ({"beta": 0.5}, "beta must be at least 0 and below 0.5, got 0.5"),
        ({"refines": 0}, "refines must be at least 1, got 0"),
        ({"members": -1}, "members must be at least 0, got -1"),
        ({"mu": math.inf}, "mu must be a finite number of at least 0, got inf"),
        ({"refine_rounds": 26}, "needs run.rounds of at least 52, got 50"),
        ({"refine_rounds": 25, "final": "fedavg"}, "needs run.rounds of at least 51, got 50"),
        ({"rounds": 1}, "needs run.rounds of at least 2, got 1"),
    ],
)
def test_invalid_settings_are_rejected(settings, text):
    with pytest.raises(SpecError, match=text):
        SRFCA(**{"rounds": 50, **settings})


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ({"rounds": 5}, ["train 1"] * 2 + ["refine 1"] + ["train 2"] * 2 + ["refine 2"]),
        ({"rounds": 5, "refine_rounds": 1}, ["train 1", "refine 1", "train 2", "refine 2"]),
        ({"rounds": 3, "final": "fedavg"}, ["train 1", "refine 1", "train 2", "refine 2", "final"]),
        ({"rounds": 3, "refines": 1, "refine_rounds": 1, "final": "fedavg"}, ["train 1", "refine 1"] + ["final"] * 2),
    ],
)
def test_the_rounds_of_a_run_are_divided_among_the_parts(settings, labels, four, srfca):
    fed, method = four(), srfca(**{"distance": "l2", "refines": 2, **settings})
    _, rounds = finish(method, fed, from_zero(method, fed))
    assert [out.label for out in rounds] == ["one shot", *labels]
    ends = [i for i, out in enumerate(rounds) if out.closes]
    assert ends == [i for i, out in enumerate(rounds) if i + 1 == len(rounds) or rounds[i + 1].label != out.label]


# Planted clusters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distance", [pytest.param("cross", marks=pytest.mark.exhaustive), "l2"])
def test_one_refine_repairs_a_fifth_of_misassigned_clients(distance, blobs):
    fed, truth = blobs(clients=20)
    method = SRFCA(LOCAL, distance=distance, init_steps=50, members=0, beta=0.3, refines=1, rounds=10)
    state, _ = finish(method, fed, until="one shot")
    wrong = [client for k in (0, 1) for client in sorted(c for c in truth if truth[c] == k)[:2]]
    impure = {client: 1 - k if client in wrong else k for client, k in truth.items()}
    state = dataclasses.replace(state, assignment=ClientMap(impure), bank=tree.stack([state.w0] * 2))
    repaired, _ = finish(method, fed, state)
    assert repaired.assignment == truth


def test_parts_of_one_true_cluster_merge_and_different_true_clusters_do_not(blobs):
    fed, truth = blobs(clients=20)
    method = SRFCA(LOCAL, init_steps=50, members=0, refines=1, rounds=10)
    state, _ = finish(method, fed, until="one shot")
    # Each true cluster in two halves.
    halves = {client: 2 * truth[client] + i % 4 // 2 for i, client in enumerate(sorted(truth))}
    assert sorted(np.bincount(list(halves.values()))) == [5, 5, 5, 5]
    state = dataclasses.replace(state, assignment=ClientMap(halves), bank=tree.stack([state.w0] * 4))
    merged, rounds = finish(method, fed, state)
    assert rounds[-1].counts["clusters_merged"] == 2
    assert merged.assignment == truth


@pytest.mark.slow
def test_rotated_digits_are_recovered_without_the_number_of_clusters(seeds):
    task = models.build("mclr", (8, 8), 10, normalize=Normalize(0.0, 16.0))
    scores = []
    for seed in seeds:
        images = data.load("digits", clients=40, clusters=4, seed=seed)
        truth = {client: int(cluster) for client, cluster in zip(images.clients, images.truth, strict=True)}
        state, _ = finish(SRFCA(rounds=20), vectorized(images, task), seed=seed)
        scores.append(adjusted_rand(dict(state.assignment), truth))
    assert scores.count(1.0) >= len(seeds) - len(seeds) // 10, scores


@pytest.mark.exhaustive
@pytest.mark.slow
def test_identically_distributed_clients_are_one_cluster():
    task = models.build("mclr", (8, 8), 10, normalize=Normalize(0.0, 16.0))
    found = []
    for seed in range(4):
        images = data.load("digits", clients=40, partition="iid", seed=seed)
        state, _ = finish(SRFCA(rounds=4), vectorized(images, task), seed=seed)
        found.append(tree.rows(state.bank))
    assert found.count(1) >= 3, found


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({"rounds": 5}, "of run.rounds = 5, 1 round remains, used only if the last MERGE joins clusters"),
        ({"rounds": 9, "refines": 4, "final": "none"}, "1 round remains, not used (method.final = 'none')"),
        ({"rounds": 4}, ""),  # 2 · 2
        ({"rounds": 5, "final": "fedavg"}, ""),  # 1 · 2 and the rest
    ],
)
def test_rounds_that_may_not_be_used_are_announced(settings, note):
    found = SRFCA(**settings).rounds_note
    assert note in found
    assert bool(found) == bool(note)
