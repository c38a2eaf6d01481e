"""CFL: splits and the tree by hand, the certificate, lost clients and newcomers, and planted clusters."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from coterie import codec, data, models, tree
from coterie.clients import LocalSGD
from coterie.clustering.split_statistics import split_statistics
from coterie.errors import SpecError, TooFewReplies
from coterie.federation import Faults, FaultTransport, Sequential, Server, Vectorized, vectorized
from coterie.methods.cfl import CFL, directions_without_oneself
from coterie.methods.fedavg import FedAvg
from coterie.metrics import adjusted_rand
from coterie.models import Normalize
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("backend", ["sequential", pytest.param("vectorized", marks=pytest.mark.exhaustive)])
LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1, lr_decay=0.9)

# Four true clusters with mixed ids: F_i(w) = ½(w - x_i)², so one step of rate 1 from w is Δ_i = x_i - w.
CLIENTS = {"a": [-6], "b": [2], "c": [-6], "d": [6], "e": [-2], "f": [2], "g": [-2], "h": [6]}


@pytest.fixture
def split(step):
    """`split(...)`: absolute norms, a mean below ½ is small, an update above 1 is large; one step reaches x_i."""

    def make(**settings):
        return CFL(**{"local": step(1.0), "units": "absolute", "eps1": 0.5, "eps2": 1.0, "warmup": 0, **settings})

    return make


def from_zero(method, fed):
    """The initial state with the model 0."""
    start = method.start(fed.task, Seed(0))
    return dataclasses.replace(start, bank=tree.map(np.zeros_like, start.bank))


def rounds(method, fed, cohort, count, state=None, first=0, **how):
    """Rounds with all clients from the model 0."""
    state = from_zero(method, fed) if state is None else state
    done = []
    for t in range(first, first + count):
        done.append(method.round(state, fed, cohort(fed, t, **how), Seed(0)))
        state = done[-1].state
    return state, done


# The tree ------------------------------------------------------------------------------------------------------------


@BOTH
def test_the_second_split_yields_client_ids_and_not_positions(backend, tiny, cohort, split):
    # Round 0 at 0:      Δ = x, whose mean is 0: Δ < 0 for {a, c, e, g}, Δ > 0 for {b, d, f, h}.
    # Round 1 at 0, 0:   means -4 and 4 are large; the models are -4 and 4 then.
    # Round 2 at -4, 4:  Δ = -2, -2, 2, 2 for a, c, e, g and -2, 2, -2, 2 for b, d, f, h: both split again.
    # Round 3:           each true cluster reaches its own number.
    state, done = rounds(split(), tiny(backend=backend, **CLIENTS), cohort, 4)
    assert [out.counts["splits"] for out in done] == [1, 0, 2, 0]
    assert done[0].assignment == {"a": 0, "c": 0, "e": 0, "g": 0, "b": 1, "d": 1, "f": 1, "h": 1}
    assert done[2].assignment == {"a": 0, "c": 0, "b": 1, "f": 1, "e": 2, "g": 2, "d": 3, "h": 3}
    assert done[2].state.bank["w"].tolist() == [-4, 4, -4, 4]
    assert state.bank["w"].tolist() == [-6, 2, -2, 6]
    assert set(state.clusters(CLIENTS)) == set(CLIENTS), "the leaves hold all clients"


def test_a_split_stores_what_newcomers_need_and_both_parts_continue_from_the_new_model(tiny, cohort, split):
    # From 0: Δ = -3, 5, 4, -5, whose mean is 0.25 < ½; the new model of both parts is 0.25.
    fed = tiny(a=[-3], b=[5], c=[4], d=[-5])
    state, _ = rounds(split(), fed, cohort, 1)
    assert state.bank["w"].tolist() == [0.25, 0.25]
    kept = state.splits[0]
    assert (kept.parts, kept.t, kept.model["w"]) == ((1, 2), 0, 0)
    assert kept.updates.tolist() == [[-3], [5], [4], [-5]]
    assert kept.sides.tolist() == [0, 1, 1, 0]
    assert state.rows == (0, 0, 1)
    assert codec.encode(codec.decode(codec.encode(state))) == codec.encode(state)


@BOTH
def test_the_mean_is_weighted_by_samples_or_uniform(backend, tiny, cohort, split):
    # Δ = 2 with one example, 6 with three: (2 + 18)/4 = 5, or 4. The norms are those of the same mean, and 6.
    fed = tiny(backend=backend, a=[2], b=[6, 6, 6])
    for weights, mean in (("samples", 5), ("uniform", 4)):
        state, (out,) = rounds(split(weights=weights), fed, cohort, 1)
        assert state.bank["w"].tolist() == [mean]
        assert out.evidence == {"0": {"clients": ["a", "b"], "mean_norm": mean, "max_norm": 6}}
        assert out.distances == {"a": mean - 2, "b": 6 - mean}
        assert out.loss == (0.5 * 4 + 3 * 0.5 * 36) / 4


@pytest.mark.parametrize(
    ("settings", "splits"),
    [
        ({}, 1),
        ({"eps1": 0.25}, 0),  # the mean norm is 0.25, not below
        ({"eps2": 5.0}, 0),  # the largest update is 5, not above
        ({"warmup": 1}, 0),
        ({"min_size": 4}, 0),
        ({"min_size": 3}, 1),
        ({"gamma_max": 0.9}, 1),  # α_cross is -1, so that γ_max must be below √((1 + 1)/2) = 1
        # Parts {-3, -5} and {5, 4}: B = 2·2/4·8.5² = 72.25, W = (1 + 1 + ¼ + ¼)/2 = 1.25, B/W = 57.8.
        ({"separation": 57.0}, 1),
        ({"separation": 58.0}, 0),
    ],
)
def test_the_conditions_of_a_split(settings, splits, tiny, cohort, split):
    fed = tiny(a=[-3], b=[5], c=[4], d=[-5])
    _, (out,) = rounds(split(**settings), fed, cohort, 1)
    assert out.counts == {"splits": splits}


def test_relative_norms_are_relative_to_the_largest_mean_at_the_first_rate(tiny, cohort, split, step):
    # Round 0 at 0, rate ½: Δ = -2, 2, 6, whose mean is 2, the largest.
    # Round 1 at 2, rate ¼: Δ = ¼·(-6, 2, 10) = -1.5, 0.5, 2.5, whose mean is 0.5. At the first rate that would be 1,
    # and the largest update 5: the shares are 0.5 and 2.5.
    fed = tiny(a=[-4], b=[4], c=[12])
    how = {"units": "relative", "local": step(0.5, lr_decay=0.5), "separation": 0.0, "min_size": 2}
    for eps1, eps2, splits in ((0.51, 2.4, 1), (0.49, 2.4, 0), (0.51, 2.6, 0)):
        state, done = rounds(split(eps1=eps1, eps2=eps2, **how), fed, cohort, 2)
        assert [out.evidence["0"]["mean_norm"] for out in done] == [2, 1]
        assert [out.evidence["0"]["max_norm"] for out in done] == [6, 5]
        assert state.largest == 2
        assert [out.counts["splits"] for out in done] == [0, splits]


def test_a_cluster_without_replies_keeps_its_model_to_the_bit(tiny, cohort, split):
    fed = tiny(**CLIENTS)
    state, _ = rounds(split(), fed, cohort, 3)
    some = dataclasses.replace(cohort(fed, 3), available=("a", "c"))
    out = split().round(state, fed, some, Seed(0))
    assert out.state.bank["w"][1:].tobytes() == state.bank["w"][1:].tobytes()
    assert out.state.bank["w"][0] == -6
    assert set(out.assignment) == {"a", "c"}


def test_stragglers_do_not_train(tiny, cohort, split):
    # Without b and f, only {d, h} have Δ > 0.
    fed = tiny(**CLIENTS)
    _, (out,) = rounds(split(eps1=2.0), fed, cohort, 1, efforts={"b": 0.5, "f": 0.5})
    assert out.assignment == {"a": 0, "c": 0, "e": 0, "g": 0, "d": 1, "h": 1}


def test_clients_without_examples_change_nothing(tiny, cohort, split):
    fed = tiny(**CLIENTS)
    more = tiny(**CLIENTS, bb=[])
    mine, theirs = (rounds(split(), each, cohort, 4)[0] for each in (fed, more))
    assert tree.same(mine.bank, theirs.bank)
    # A client without an update goes to the first part of every split.
    assert state_rows(theirs, ["bb"]) == {"bb": 0}


# The certificate -----------------------------------------------------------------------------------------------------


def test_a_noise_bound_that_is_too_high_prevents_the_split(two_layers):
    # Three clients with the updates of the certificate by hand, of two numbers (wide, head): the bound is 0.894.
    updates = np.array([[1, 0], [0.6, 0.8], [-1, 0]])
    found = split_statistics(updates)
    assert found.bound == pytest.approx(0.8944, abs=1e-4)
    assert found.alpha_cross == pytest.approx(-0.6)
    for gamma, separated in ((0.0, True), (0.89, True), (0.9, False)):
        assert CFL(gamma_max=gamma, separation=0.0).is_separated(found) == separated


# Repeated splits -----------------------------------------------------------------------------------------------------


def test_directions_leave_out_the_clients_own_update():
    # Parts {1, 3} and {10}: means 2 and 10. Without 1 the first mean is 3, without 3 it is 1; without 10 the second
    # part is empty, and its mean counts as 0.
    found = directions_without_oneself(np.array([[1.0], [3.0], [10.0]]), np.array([0, 0, 1]))
    assert found.tolist() == [[-7], [-9], [2]]


def test_a_split_is_made_only_if_both_halves_of_the_clients_agree(tiny, cohort, split):
    # Two equal examples per client: both halves have the client's own update, and agree. The clients are at -5 and 5.
    how = {"warmup": 0, "repeated": True, "linkage": "average"}
    agreeing = tiny(**{c: [x, x] for c, x in zip("abcdefgh", (-5, -5, -5, -6, 5, 5, 5, 6), strict=True)})
    _, (out,) = rounds(split(**how), agreeing, cohort, 1)
    assert out.counts == {"splits": 1}
    assert out.evidence["0"]["repeatability"] == pytest.approx(1.0)
    assert agreeing.traffic.by_purpose()["noise_floor"]["up"] == 8 * 2 * 4
    # One example at -100, one at 90 or 110: the halves of every client point to opposite sides, and disagree.
    noisy = tiny(**{c: [-100, 100 + x] for c, x in zip("abcdefgh", (-10, -10, -10, -10, 10, 10, 10, 10), strict=True)})
    method = split(**how)
    state, (out,) = rounds(method, noisy, cohort, 1)
    assert out.counts == {"splits": 0}
    assert out.evidence["0"]["repeatability"] < 0
    assert state.refused == {0: 0}
    _, (out,) = rounds(dataclasses.replace(method, repeated=False), noisy, cohort, 1)
    assert out.counts == {"splits": 1}


# Lost clients and newcomers ------------------------------------------------------------------------------------------


class Losing(Sequential):
    """Drops replies: `lost` is (work name, number of earlier requests for it) → clients."""

    lost: dict = {}  # noqa: RUF012
    asked: dict = {}  # noqa: RUF012

    def send(self, request):
        count = self.asked[request.work.name] = self.asked.get(request.work.name, -1) + 1
        gone = self.lost.get((request.work.name, count), ())
        return (batch for batch in super().send(request) if batch.clients[0] not in gone)


@pytest.fixture
def losing(numbers, quadratic):
    """`losing({("fit", 0): "g"})`: the federation of `CLIENTS` that loses g's reply to the first fit."""

    def make(lost):
        transport = Losing(numbers(**CLIENTS), quadratic)
        transport.lost, transport.asked = lost, {}
        return Server(transport)

    return make


def test_a_client_left_at_a_split_descends_before_it_trains_again(losing, cohort, split):
    # g is lost in round 0: means of the others are 2/7 < ½. In round 1 it descends with Δ = -2 from 0, and trains.
    fed = losing({("fit", 0): "g"})
    state, done = rounds(split(), fed, cohort, 2)
    assert "g" not in done[0].assignment
    assert done[0].state.splits[0].updates.tolist() == [[-6], [2], [-6], [6], [-2], [2], [6]]
    assert done[1].assignment["g"] == 0
    assert state.nodes["g"] == state.splits[0].parts[0]
    # 2/7 was the mean of round 0, and every model goes to the mean of its own.
    assert state.bank["w"].tolist() == [-4, 4]
    model = 4
    assert fed.traffic.by_purpose()["pretrain"] == {"down": model, "up": model}


def test_a_client_lost_while_descending_stays_at_the_split(losing, cohort, split):
    fed = losing({("fit", 0): "g", ("update", 0): "g"})
    state, done = rounds(split(), fed, cohort, 3)
    assert "g" not in done[1].assignment
    # Round 1: {a, c, e} go to their mean, -14/3. Round 2: g descends and trains with them; Δ = -4/3, -4/3, 8/3, 8/3,
    # whose mean 2/3 is not small, and moves the model to -4. The other part, at 4, splits in two meanwhile.
    assert done[1].state.bank["w"].tolist() == pytest.approx([-14 / 3, 4])
    assert {done[2].assignment[client] for client in "aceg"} == {0}
    assert state.bank["w"].tolist() == pytest.approx([-4, 4, 4])
    assert len(state.splits) == 2


def test_lost_descents_skip_the_round_only_if_no_other_client_trains(losing, cohort, split):
    fed = losing({("fit", 0): "g", ("update", 0): "g"})
    state, _ = rounds(split(), fed, cohort, 1)
    alone = dataclasses.replace(cohort(fed, 1), available=("g",))
    with pytest.raises(TooFewReplies):
        split().round(state, fed, alone, Seed(0))


@BOTH
def test_newcomers_descend_the_tree(backend, tiny, cohort, split):
    # The tree splits at 0, then at -4 and 4.  n: Δ = 5.5 from 0 and 1.5 from 4, with d and h.
    # m: Δ = -5 and -1, with a and c.      o: Δ = 3 and -1, with b and f.      p: -1 and 3: e and g.
    new = {"m": [-5], "n": [5.5], "o": [3], "p": [-1]}
    fed = tiny(backend=backend, **CLIENTS, **new)
    old = dataclasses.replace(cohort(fed), clients=tuple(CLIENTS), available=tuple(CLIENTS))
    state = from_zero(split(), fed)
    for t in range(4):
        state = split().round(state, fed, dataclasses.replace(old, t=t), Seed(0)).state
    sent = fed.traffic.by_purpose()["train"]
    assert split().place(state, fed, new, Seed(0))[1].row == {"m": 0, "n": 3, "o": 1, "p": 2}
    assert split().place(state, fed, CLIENTS, Seed(0))[1].row == state_rows(state, CLIENTS)
    assert fed.traffic.by_purpose()["pretrain"] == {"down": 2 * 4 * 4, "up": 2 * 4 * 4}, (
        "a model each way at each split"
    )
    assert fed.traffic.by_purpose()["train"] == sent
    assert split().place(state, fed.evaluating(), [*CLIENTS, *new], Seed(0))[1].row == state_rows(state, CLIENTS)


def state_rows(state, clients):
    return {client: state.rows[node] for client, node in state.clusters(clients).items()}


def test_a_newcomer_with_a_zero_update_takes_the_first_part_and_before_a_split_costs_nothing(tiny, cohort, split):
    fed = tiny(**CLIENTS, z=[0])
    state = from_zero(split(), fed)
    assert split().place(state, fed, ["z"], Seed(0))[1].row == {"z": 0}
    assert fed.traffic.total() == 0
    known = dataclasses.replace(cohort(fed), clients=tuple(CLIENTS), available=tuple(CLIENTS))
    state = split().round(state, fed, known, Seed(0)).state
    assert split().place(state, fed, ["z"], Seed(0))[1].row == {"z": 0}


# Cohorts -------------------------------------------------------------------------------------------------------------


def test_with_cohorts_a_cluster_splits_when_each_member_has_a_recent_update(tiny, cohort, split):
    # From 0, a and b have Δ = -2 and 2, and so have c and d: with either cohort, the model stays at 0.
    fed = tiny(a=[-2], b=[2], c=[-2], d=[2])
    for max_age, splits in ((1, [0, 1, 0, 0]), (0, [0, 0, 0, 0])):
        method = split(participation="cohort", max_age=max_age)
        state, seen = from_zero(method, fed), []
        for t, drawn in enumerate(("ab", "cd", "ab", "cd")):
            out = method.round(state, fed, cohort(fed, t, clients=drawn), Seed(0))
            seen.append(out.counts["splits"])
            assert set(out.assignment) == set(drawn)
            state = out.state
        assert seen == splits, max_age
        if max_age:
            # The split of round 1 assigns all four clients, also those of the earlier cohort.
            assert set(state.clusters("abcd")) == set("abcd")
            assert state.splits[0].updates.tolist() == [[-2], [2], [-2], [2]]


def test_with_cohorts_each_update_is_scaled_by_the_rate_of_its_own_round(tiny, cohort, split, step):
    # The rate is ½ in round 0 and ¼ in round 1, and the model stays at 0 since Δ = -2, 2 and -1, 1 cancel. Scaled to
    # the first rate, all four are ±2: parts without spread, a mean of 0, 2 for the largest. With round 1's factor for
    # all, a's and b's would count 4 and their parts would be spread.
    fed = tiny(a=[-4], b=[4], c=[-4], d=[4])
    how = {"units": "relative", "local": step(0.5, lr_decay=0.5), "participation": "cohort", "max_age": 1}
    method = split(eps1=0.5, eps2=0.9, separation=1e6, **how)
    state = dataclasses.replace(from_zero(method, fed), largest=2.0)
    for t, drawn in enumerate(("ab", "cd")):
        out = method.round(state, fed, cohort(fed, t, clients=drawn), Seed(0))
        state = out.state
    assert (out.evidence["0"]["mean_norm"], out.evidence["0"]["max_norm"]) == (0, 2)
    assert out.evidence["0"]["separation"] == np.inf
    assert out.counts == {"splits": 1}
    # Stored unscaled: newcomers are compared by direction alone.
    assert state.splits[0].updates.tolist() == [[-2], [2], [-1], [1]]


def test_a_round_with_stragglers_only_changes_nothing(tiny, cohort, split):
    fed = tiny(a=[-3], b=[5])
    state, (out,) = rounds(split(), fed, cohort, 1, efforts={"a": 0.5, "b": 0.5})
    assert state.bank["w"].tolist() == [0]
    assert (out.assignment, out.loss, out.distances, out.counts) == ({}, None, {}, {"splits": 0})


def test_updates_from_another_node_do_not_count(tiny, cohort, split):
    # After the split of round 1, no client has an update from the model of a part until it is in a cohort again.
    fed = tiny(**CLIENTS)
    method = split(participation="cohort", max_age=9)
    state = from_zero(method, fed)
    for t, drawn in enumerate(("abcd", "efgh")):
        # a, b, c, d: -6, 2, -6, 6, mean -1; the model is reset to 0, so that e, f, g, h start from the same model.
        state = dataclasses.replace(state, bank=tree.map(np.zeros_like, state.bank))
        state = method.round(state, fed, cohort(fed, t, clients=drawn), Seed(0)).state
    assert len(state.splits) == 1
    out = method.round(state, fed, cohort(fed, 2, clients="a"), Seed(0))
    assert out.evidence == {}
    assert len(out.state.splits) == 1


# Identities ----------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_before_the_first_split_it_is_fedavg_with_all_clients(backend, weights, blobs, run_rounds):
    fed, _ = blobs(backend=backend)
    mine, done = run_rounds(CFL(LOCAL, weights=weights), fed, 3, size=5)
    theirs, others = run_rounds(FedAvg(LOCAL, weights=weights), fed, 3)
    np.testing.assert_allclose(tree.flatten(tree.row(mine.bank, 0)), tree.flatten(theirs), atol=1e-7)
    assert [out.loss for out in done] == pytest.approx([out.loss for out in others])
    assert done[-1].distances == pytest.approx(others[-1].distances, rel=1e-5)
    model = 4 * tree.size(theirs)
    assert fed.traffic.by_purpose()["train"] == {"down": 2 * 3 * 12 * model, "up": 2 * 3 * 12 * model}


@pytest.mark.exhaustive
def test_running_statistics_do_not_count_in_updates(blobs, cohort):
    import jax
    import jax.numpy as jnp

    def learn(params, x, key, weight):
        flat = x.reshape(len(x), -1)
        return flat @ params["kernel"], {"norm": {"stats": {"mean": flat.mean(axis=0) + 1e3}}}

    task = models.Task(
        name="with statistics of its own",
        init=lambda seed: {
            "kernel": np.asarray(jax.random.normal(seed.key(), (64, 4)) * 0.01, np.float32),
            "norm": {"stats": {"mean": np.zeros(64, np.float32)}},
        },
        apply=lambda params, x, key: jnp.asarray(x).reshape(len(x), -1) @ params["kernel"],
        shape=(8, 8),
        classes=4,
        normalize=Normalize(0.0, 255.0),
        layers=("kernel", "norm"),
        learn=learn,
    )
    fed = vectorized(data.load("blobs", clients=6, clusters=2, samples=30, seed=0), task)
    out = CFL(LOCAL, warmup=0, eps1=9.0, eps2=0.0, separation=0.0).round(
        CFL(LOCAL).start(task, Seed(0)), fed, cohort(fed), Seed(0)
    )
    assert out.evidence["0"]["max_norm"] < 100
    assert out.state.splits[0].updates.shape == (6, 64 * 4)
    assert out.state.bank["norm"]["stats"]["mean"].min() >= 1e3


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"eps1": -0.1}, "eps1 must be at least 0, got -0.1"),
        ({"eps2": float("nan")}, "eps2 must be at least 0, got nan"),
        ({"separation": -1.0}, "separation must be at least 0, got -1.0"),
        ({"gamma_max": 1.0}, "gamma_max must be at least 0 and below 1, got 1.0"),
        ({"warmup": -1}, "warmup must be at least 0"),
        ({"min_size": 0}, "min_size must be at least 1"),
        ({"max_age": -1}, "max_age must be at least 0"),
        ({"units": "meters"}, "units must be one of 'relative', 'absolute', got 'meters'"),
        ({"linkage": "ward"}, "linkage must be one of 'average', 'single', 'complete'"),
    ],
)
def test_invalid_settings_are_rejected(settings, text):
    with pytest.raises(SpecError, match=text):
        CFL(**settings)


# Planted clusters ----------------------------------------------------------------------------------------------------

TASK = models.build("mclr", (8, 8), 10, normalize=Normalize(0.0, 16.0))


def digits(seed, **how):
    images = data.load("digits", clients=40, clusters=4, seed=seed, **how)
    truth = None if images.truth is None else dict(zip(images.clients, images.truth.tolist(), strict=True))
    return images, TASK, truth


@pytest.mark.exhaustive
@pytest.mark.slow
def test_rotated_digits_are_recovered(run_rounds, seeds):
    scores = []
    for seed in seeds:
        images, task, truth = digits(seed)
        state, _ = run_rounds(CFL(), vectorized(images, task), 50, seed=seed)
        scores.append(adjusted_rand(state_rows(state, images.clients), truth))
    assert scores.count(1.0) >= len(seeds) - len(seeds) // 10, scores


@pytest.mark.exhaustive
def test_rotated_digits_are_recovered_and_newcomers_placed_while_three_replies_in_ten_are_lost(run_rounds):
    images, task, truth = digits(0)
    fed = Server(FaultTransport(Vectorized(images, task), Faults(drop=0.3), Seed(0).fold("faults")))
    old = [client for i, client in enumerate(sorted(images.clients)) if i % 8]
    state, _ = run_rounds(CFL(), fed, 60, among=old)
    placed = CFL().place(state, vectorized(images, task), images.clients, Seed(1))[1].row
    assert set(placed) == set(images.clients)
    assert adjusted_rand(placed, truth) == 1


@pytest.mark.exhaustive
@pytest.mark.slow
def test_identically_distributed_clients_are_never_split(run_rounds):
    for seed in range(3):
        images, task, _ = digits(seed, partition="iid")
        state, _ = run_rounds(CFL(), vectorized(images, task), 50, seed=seed)
        assert not state.splits
