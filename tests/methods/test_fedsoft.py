"""FedSoft: weights, proximal term and centers by hand, client memory, identities, traffic."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from coterie import tree
from coterie.aggregation import Aggregation
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD
from coterie.errors import SpecError
from coterie.federation import Cached, Sequential, Server
from coterie.methods import local
from coterie.methods.fedprox import FedProx
from coterie.methods.fedsoft import FedSoft
from coterie.methods.local import Local
from coterie.metrics import adjusted_rand
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("backend", ["sequential", pytest.param("vectorized", marks=pytest.mark.exhaustive)])
LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1, lr_decay=0.9)


@pytest.fixture(scope="session")
def three(tiny):
    """F_i(w) = ½(w - x)²: the loss of a sample grows with the distance of the center. Means 5, 2, 1."""
    return lambda **options: tiny(a=[0, 0, 10, 10], b=[0, 0, 0, 8], c=[1], **options)


def begin(method, fed, bank, start=1.0):
    """The state of a run with these centers and this initial model."""
    return dataclasses.replace(method.start(fed.task, Seed(0)), bank=bank, start={"w": np.float32(start)})


def own_models(method, state, fed, clients=None):
    """The models that clients are served: their own, or a center."""
    asked = fed.clients if clients is None else clients
    adapt = method.place(state, fed.evaluating(), asked, Seed(0))[1].adapt
    got = fed.evaluating().ask(asked, adapt.work, Seed(0), **adapt.sent)
    return {client: float(model["w"]) for client, model in got.by_client("params").items()}


# Weights -------------------------------------------------------------------------------------------------------------


@BOTH
def test_weights_are_shares_of_samples_by_their_nearest_center(backend, three, cohort, bank, step):
    # Centers 0 and 10.   a: two samples each   b: three and one   c: one and none, which σ replaces.
    fed, method = three(backend=backend), FedSoft(step(0.5), clusters=2, sigma=0.25)
    out = method.round(begin(method, fed, bank(0, 10)), fed, cohort(fed), Seed(0))
    assert out.evidence["clients"] == ["a", "b", "c"]
    assert out.evidence["weights"].tolist() == [[0.5, 0.5], [0.75, 0.25], [1, 0.25]]
    assert dict(out.state.samples) == {"a": 4, "b": 4, "c": 1}
    # u n: (2, 2), (3, 1), (1, ¼), which add up to 6 and 3.25 for the two centers.
    shares = out.state.importance(fed.clients)
    np.testing.assert_allclose(shares, [[2 / 6, 3 / 6, 1 / 6], [2 / 3.25, 1 / 3.25, 0.25 / 3.25]])
    np.testing.assert_allclose(shares.sum(axis=1), 1)


def test_weights_can_be_renormalized_to_the_sum_one(three, cohort, bank, step):
    # c: (1, ¼) / 1.25
    fed, method = three(), FedSoft(step(0.5), clusters=2, sigma=0.25, renormalize=True)
    out = method.round(begin(method, fed, bank(0, 10)), fed, cohort(fed), Seed(0))
    np.testing.assert_allclose(out.evidence["weights"], [[0.5, 0.5], [0.75, 0.25], [0.8, 0.2]])


def test_ties_go_to_the_lowest_center_and_sigma_can_be_zero(tiny, cohort, bank, step):
    fed, method = tiny(a=[5, 5, 6]), FedSoft(step(0.5), clusters=2, sigma=0.0)
    out = method.round(begin(method, fed, bank(0, 10)), fed, cohort(fed), Seed(0))
    np.testing.assert_allclose(out.evidence["weights"], [[2 / 3, 1 / 3]])
    far = method.round(begin(method, fed, bank(0, 100)), fed, cohort(fed), Seed(0))
    assert far.evidence["weights"].tolist() == [[1, 0]]


@BOTH
def test_weights_are_estimated_by_all_clients_at_the_set_interval(backend, three, cohort, bank, step):
    fed, method = three(backend=backend), FedSoft(step(0.5), clusters=2, estimate_every=2, members=1)
    state = begin(method, fed, bank(0, 10))
    for t in range(5):
        out = method.round(state, fed, cohort(fed, t, clients="a"), Seed(t))
        state = out.state
        assert ("weights" in out.evidence) == (t % 2 == 0)
        # Two centers of four bytes to each of three clients.
        assert fed.traffic.by_purpose(t).get("estimate") == ({"down": 3 * 2 * 4, "up": 0} if t % 2 == 0 else None)


def test_a_skipped_estimate_is_made_in_the_next_round(three, cohort, bank, step):
    fed, method = three(), FedSoft(step(0.5), clusters=2, estimate_every=3)
    state = begin(method, fed, bank(0, 10))  # the state after a skipped round 0
    state = method.round(state, fed, cohort(fed, 1), Seed(1)).state
    assert set(state.weights) == {"a", "b", "c"}
    assert method.round(state, fed, cohort(fed, 2), Seed(2)).evidence == {}
    assert "weights" in method.round(state, fed, cohort(fed, 3), Seed(3)).evidence


def test_a_client_that_is_not_asked_keeps_its_weights(three, cohort, bank, step):
    fed, method = three(), FedSoft(step(0.5), clusters=2)
    state = method.round(begin(method, fed, bank(0, 10)), fed, cohort(fed), Seed(0)).state
    some = dataclasses.replace(cohort(fed, 1), available=("a", "b"))
    after = method.round(dataclasses.replace(state, bank=bank(0, 1e3)), fed, some, Seed(1)).state
    assert after.weights["a"].tolist() == [1, 1e-4]
    assert after.weights["c"].tolist() == state.weights["c"].tolist()


# Training and centers ------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(("renormalize", "at_c"), [(False, 2.25), (True, 2)])
def test_the_proximal_terms_to_all_centers_are_weighted(backend, renormalize, at_c, three, cohort, bank, step):
    # One step of rate ½ from 1, λ = 2, σ = ¼, centers 0 and 10:  g = (1 - mean) + λ Σ_s u_s (1 - c_s)
    #   a: (1 - 5) + 2 (½·1 + ½·(-9)) = -12        1 + 6    = 7
    #   b: (1 - 2) + 2 (¾·1 + ¼·(-9)) = -4         1 + 2    = 3
    #   c: (1 - 1) + 2 (1·1 + ¼·(-9)) = -2.5       1 + 1.25 = 2.25;  with 0.8 and 0.2: 2 (0.8 - 1.8) = -2, 2
    fed = three(backend=backend)
    method = FedSoft(step(0.5), clusters=2, mu=2.0, sigma=0.25, selection="all", renormalize=renormalize)
    out = method.round(begin(method, fed, bank(0, 10)), fed, cohort(fed, clients="a"), Seed(0))
    assert own_models(method, out.state, fed) == pytest.approx({"a": 7, "b": 3, "c": at_c})
    # c_s = Σ_k v_sk w_k, with v as above (u n is 0.8 and 0.2 for c if renormalized).
    first, second = (2, 3, 0.8 if renormalize else 1), (2, 1, 0.2 if renormalize else 0.25)
    models = (7, 3, at_c)
    expected = [np.dot(v, models) / sum(v) for v in (first, second)]
    np.testing.assert_allclose(out.state.bank["w"], expected, rtol=1e-6)
    assert out.assignment == {"a": 0, "b": 0, "c": 0}
    # Distances to the center of the largest weight; losses before the step: (2·1 + 2·81 + 3·1 + 49 + 0)/2 over nine
    # samples.
    assert out.distances == pytest.approx({k: abs(m - expected[0]) for k, m in zip("abc", models, strict=True)})
    assert out.loss == pytest.approx((2 + 2 * 81 + 3 + 49) / 2 / 9)


@pytest.mark.parametrize("rule", ["trimmed-mean", "median", "geometric-median", "krum", "multi-krum", "norm-clip"])
def test_with_a_robust_rule_a_client_enters_the_center_of_its_largest_weight_only(
    rule, numbers, quadratic, cohort, bank, step
):
    # Two clients per true cluster, with a tenth of the other's samples and so a weight on both centers. Without a
    # proximal term and with rate 1 each trains to its mean, 4 or 36; a robust rule of equal models returns that model.
    held = {"a": [0] * 9 + [40], "b": [40] * 9 + [0]}
    images = numbers(**{f"{cluster}{i}": xs for cluster, xs in held.items() for i in (1, 2)})
    fed, method = (
        Server(Sequential(images, quadratic), aggregation=Aggregation(rule)),
        FedSoft(step(1.0), clusters=2, mu=0.0, selection="all"),
    )
    out = method.round(begin(method, fed, bank(0, 40)), fed, cohort(fed), Seed(0))
    assert out.state.weights["a1"].tolist() == [0.9, 0.1]
    assert out.state.bank["w"].tolist() == pytest.approx([4, 36])
    # A center that has no client's largest weight is kept.
    method = dataclasses.replace(method, clusters=3)
    far = method.round(begin(method, fed, bank(0, 40, 1e6 / 7)), fed, cohort(fed), Seed(0))
    assert far.state.bank["w"][2:].tobytes() == bank(1e6 / 7)["w"].tobytes()


def test_training_continues_from_the_clients_own_model(tiny, cohort, bank, step):
    # x = 0 and a center at 8, λ = 1: g = w + (w - 8) = 2w - 8. From w_0 = 0 with rate ¼: 2, where the center follows.
    # With the center put back to 8: from 2, g = -4, 3. From w_0 it would be 2 again, from the center 8 - ¼·8 = 6.
    fed, method = tiny(a=[0]), FedSoft(step(0.25), clusters=1, mu=1.0)
    first = method.round(begin(method, fed, bank(8), start=0), fed, cohort(fed), Seed(0))
    assert own_models(method, first.state, fed) == {"a": 2}
    assert first.state.bank["w"].tolist() == [2]
    kept = dataclasses.replace(first.state, bank=bank(8))
    second = method.round(kept, fed, cohort(fed, 1), Seed(1))
    assert own_models(method, second.state, fed) == {"a": 3}


def test_a_center_is_the_uniform_mean_of_the_clients_drawn_for_it(three, cohort, bank, step):
    # All clients have a weight on both centers, and all are drawn: both centers are at (7 + 3 + 2.25)/3.
    fed, method = three(), FedSoft(step(0.5), clusters=2, mu=2.0, sigma=0.25, members=3)
    out = method.round(begin(method, fed, bank(0, 10)), fed, cohort(fed), Seed(0))
    np.testing.assert_allclose(out.state.bank["w"], [(7 + 3 + 2.25) / 3] * 2, rtol=1e-6)


def test_only_clients_with_a_weight_are_drawn_and_a_center_without_clients_is_kept_to_the_bit(
    three, cohort, bank, step
):
    # Without σ, c has no weight on 10, and no client has one on the third center: fewer than K are drawn, or none.
    fed, method = three(), FedSoft(step(0.5), clusters=3, mu=2.0, sigma=0.0, members=3)
    before = begin(method, fed, bank(0, 10, 1e6 / 7))
    out = method.round(before, fed, cohort(fed), Seed(0))
    # c now: (1 - 1) + 2·1·1 = 2, 1 - 1 = 0.
    np.testing.assert_allclose(out.state.bank["w"][:2], [(7 + 3 + 0) / 3, (7 + 3) / 2], rtol=1e-6)
    assert out.state.bank["w"][2:].tobytes() == before.bank["w"][2:].tobytes()
    assert out.counts == {"empty_clusters": 2}  # 10 is not the largest weight of any client either


def test_draws_follow_the_weights(tiny, cohort, bank, step):
    # Clients with n = 9 samples are drawn nine times as often as those with one sample.
    many = {f"{i:02}": [0.0] * (9 if i < 10 else 1) for i in range(20)}
    fed, method = tiny(backend="vectorized", **many), FedSoft(step(0.5), clusters=1, members=1)
    state = begin(method, fed, bank(0))
    drawn = []
    for t in range(60):
        out = method.round(state, fed, cohort(fed, t), Seed(t))
        drawn += list(out.assignment)
    assert len(drawn) == 60
    large = sum(int(client) < 10 for client in drawn)
    # Binomial with p = 0.9 and 60 draws: 54 on average, standard deviation 2.3; five of these below the mean is 42.
    assert large > 42
    again = method.round(state, fed, cohort(fed, 59), Seed(59))
    assert list(again.assignment) == drawn[-1:]


@pytest.mark.exhaustive
def test_each_center_draws_an_equal_share_of_the_cohort_by_default(blobs, run_rounds):
    fed, _ = blobs()
    _, rounds = run_rounds(FedSoft(LOCAL, clusters=2, sigma=1.0), fed, 3, size=5)
    # ⌈5/2⌉ = 3 for each center; some are drawn for both.
    assert all(3 <= len(out.assignment) <= 6 for out in rounds)


def test_stragglers_and_clients_without_samples_do_not_train(tiny, cohort, bank, step):
    fed, method = tiny(a=[0], b=[], c=[8]), FedSoft(step(0.5), clusters=1, mu=0.0, members=3)
    out = method.round(begin(method, fed, bank(0)), fed, cohort(fed, efforts={"c": 0.5}), Seed(0))
    assert out.assignment == {"a": 0}
    assert out.state.bank["w"].tolist() == [0.5]
    assert out.evidence["clients"] == ["a", "c"]
    state = begin(method, fed, bank(1 / 3))
    idle = method.round(state, fed, dataclasses.replace(cohort(fed, clients="b"), available=("b",)), Seed(0))
    assert tree.same(idle.state.bank, state.bank)
    assert idle.assignment == {}


# Identities ----------------------------------------------------------------------------------------------------------


@BOTH
def test_with_one_client_and_one_center_it_is_fedprox(backend, blobs, run_rounds):
    # Then the client's own model equals the center: μ = λ, and training starts from the model received.
    fed, _ = blobs(backend=backend, clients=1, clusters=1)
    mine, rounds = run_rounds(FedSoft(LOCAL, clusters=1, mu=0.5), fed, 3)
    theirs, others = run_rounds(FedProx(LOCAL, mu=0.5), fed, 3)
    np.testing.assert_allclose(tree.flatten(tree.row(mine.bank, 0)), tree.flatten(theirs), atol=1e-6)
    assert [r.loss for r in rounds] == pytest.approx([r.loss for r in others], rel=1e-5)


def test_without_proximal_term_it_is_local_training(blobs, run_rounds):
    fed, _ = blobs()
    n = len(fed.clients)
    method = FedSoft(LOCAL, clusters=2, mu=0.0, selection="all")
    mine, _ = run_rounds(method, fed, 3)
    theirs, _ = run_rounds(Local(LOCAL, rounds=3, clients_per_round=n, clients=n), fed, 3)
    adapt = method.place(mine, fed.evaluating(), fed.clients, Seed(0))[1].adapt
    got = fed.evaluating().ask(fed.clients, adapt.work, Seed(0), **adapt.sent)["params"]
    expected = fed.evaluating().ask(fed.clients, local.recall, Seed(0), start=Cached(theirs.start))["params"]
    assert tree.same(got, expected)


@BOTH
def test_with_one_hot_weights_clusters_train_independently(backend, tiny, run_rounds, bank):
    # One-hot weights: all samples of a and b lie near the first center, those of c and d near the second.
    held = {"a": [0.0, 1], "b": [2.0], "c": [100.0, 103], "d": [101.0]}
    local = LocalSGD(epochs=2, batch_size=1, learning_rate=0.1)
    method = FedSoft(local, clusters=2, mu=0.5, sigma=0.0, selection="all")
    fed = tiny(backend=backend, **held)
    together, rounds = run_rounds(method, fed, 3, state=begin(method, fed, bank(5, 95)))
    assert rounds[-1].assignment == {"a": 0, "b": 0, "c": 1, "d": 1}
    single = dataclasses.replace(method, clusters=1)
    for s, center in enumerate((5, 95)):
        part = tiny(backend=backend, **{name: held[name] for name in ("ab", "cd")[s]})
        apart, _ = run_rounds(single, part, 3, state=begin(single, part, bank(center)))
        np.testing.assert_allclose(together.bank["w"][s], apart.bank["w"][0], rtol=1e-6)
        mine = own_models(method, together, fed, list(("ab", "cd")[s]))
        assert mine == pytest.approx(own_models(single, apart, part), rel=1e-6)


@pytest.mark.slow
def test_planted_clusters_are_recovered(tiny, run_rounds, bank, step, seeds):
    # Two populations forty apart, with a tenth of the samples from the other one; centers start between them.
    scores, shares = [], []
    for seed in seeds:
        noise = Seed(seed).fold("x").uniform(16)
        truth = {f"{i:02}": i % 2 for i in range(16)}
        held = {c: [40 * k + noise[int(c)]] * 9 + [40 * (1 - k)] for c, k in truth.items()}
        fed = tiny(backend="vectorized", **held)
        method = FedSoft(step(0.5), clusters=2, mu=0.1)
        state, _ = run_rounds(method, fed, 6, size=8, seed=seed, state=begin(method, fed, bank(15, 25), start=20))
        scores.append(adjusted_rand(state.largest(fed.clients), truth))
        shares.append(np.abs(state.table(fed.clients).max(axis=1) - 0.9).max())
    assert scores.count(1.0) >= len(seeds) - len(seeds) // 10, scores
    assert sum(gap < 1e-6 for gap in shares) >= len(seeds) - len(seeds) // 10, shares


# Placement, traffic, settings ----------------------------------------------------------------------------------------


@BOTH
def test_clients_are_served_their_own_model_or_the_center_nearest_to_their_samples(backend, tiny, cohort, bank, step):
    # a trained: 1 - ½ (1 - 0) = ½. b has weights but no model, the newcomer neither, and `empty` has no sample.
    fed = tiny(backend=backend, a=[0], b=[9, 9, 0], empty=[], newcomer=[11])
    method = FedSoft(step(0.5), clusters=2, mu=0.0)
    state = begin(method, fed, bank(0, 10))
    known = dataclasses.replace(cohort(fed, clients="a"), available=("a", "b"))
    state = dataclasses.replace(
        state,
        weights=ClientMap({"a": np.array([1, 0.0]), "b": np.array([1 / 3, 2 / 3])}),
        samples=ClientMap({"a": 1, "b": 0}),
    )
    state = dataclasses.replace(state, estimated=1)
    state = dataclasses.replace(method.round(state, fed, known, Seed(0)).state, bank=bank(0, 10))
    served = {"a": 0.5, "b": 10, "empty": 0, "newcomer": 10}
    assert own_models(method, state, fed) == served
    placement = method.place(state, fed.evaluating(), fed.clients, Seed(0))[1]
    assert placement.row == {"a": 0, "b": 1, "empty": 0, "newcomer": 1}
    center = dataclasses.replace(method, serve="center").place(state, fed.evaluating(), fed.clients, Seed(0))[1]
    assert (center.row, center.adapt) == (placement.row, None)
    assert method.place(state, fed.evaluating(), [], Seed(0))[1].row == {}


def test_counting_and_training_clients_are_sent_all_centers_and_training_ones_send_one_model(blobs, run_rounds):
    fed, _ = blobs()
    state, rounds = run_rounds(FedSoft(LOCAL, clusters=3, estimate_every=2), fed, 3, size=6)
    model, n = 4 * tree.size(state.start), len(fed.clients)
    trained = [len(out.assignment) for out in rounds]
    for t, estimates in enumerate((True, False, True)):
        sent = fed.traffic.by_purpose(t)
        assert sent["train"] == {"down": 3 * trained[t] * model, "up": trained[t] * model}
        assert ("estimate" in sent) == estimates
        if estimates:
            assert sent["estimate"] == {"down": 3 * n * model, "up": 0}
    # w_0 once to each client that trained.
    ever = len({client for out in rounds for client in out.assignment})
    assert fed.traffic.by_purpose()["base"] == {"down": ever * model, "up": 0}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"clusters": 0}, "method.clusters must be at least 1, got 0"),
        ({"estimate_every": 0}, "method.estimate_every must be at least 1, got 0"),
        ({"members": -1}, "method.members must be at least 0, got -1"),
        ({"mu": -0.1}, "method.mu must be at least 0, got -0.1"),
        ({"sigma": 2.0}, "method.sigma must be between 0 and 1, got 2.0"),
        ({"selection": "some"}, "method.selection must be one of 'drawn', 'all', got 'some'"),
        ({"serve": "mean"}, "method.serve must be one of 'own', 'center', got 'mean'"),
    ],
)
def test_invalid_settings_are_refused(given, text):
    with pytest.raises(SpecError, match=f"^{text}$"):
        FedSoft(**given)
