"""Per-FedAvg: both variants by hand on quadratics, batches, adaptation."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from coterie import data, models, tree
from coterie.clients import LocalSGD
from coterie.errors import SpecError
from coterie.federation import sequential, vectorized
from coterie.methods.fedavg import FedAvg
from coterie.methods.per_fedavg import PerFedAvg, hessian_times
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("backend", ["sequential", pytest.param("vectorized", marks=pytest.mark.exhaustive)])
VARIANTS = pytest.mark.parametrize("variant", ["fo", "hf"])


def w(value):
    return {"w": np.float32(value)}


@pytest.fixture(scope="session")
def lines():
    """`lines(backend, a=(2, 6, 1))`: linear regression; a has one sample of input 2 and target 6.

    f_k(w) = ½ (2w - 6)² = ½ a (w - c)² with a = 2² and c = 6/2.
    """
    task = models.from_functions(
        lambda key: {"w": jax.random.normal(key)}, lambda params, x: x[:, 0] * params["w"], (1,), None, name="line"
    )

    def make(backend, **clients):
        held = {
            name: (np.full((n, 1), x, np.float32), np.full(n, y, np.float32)) for name, (x, y, n) in clients.items()
        }
        federation = {"sequential": sequential, "vectorized": vectorized}[backend]
        return federation(data.from_arrays(held, test={}, classes=None), task)

    return make


# One step ------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("batch", [0, pytest.param(10, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    ("variant", "weights", "expected"),
    [
        # α = 0.1, β = ½, w = 5.    p: a = 4, c = 3, one sample        q: a = 1, c = 0, three samples
        #   ∇f(w) = a (w - c)            4·2 = 8                          5
        #   w̃ = w - α ∇f(w)              4.2                              4.5
        #   g = a (w̃ - c)                4.8                              4.5
        #   FO: w - β g                  2.6                              2.75
        #   h = a g                      19.2                             4.5
        #   HF: w - β (g - α h)          5 - ½·2.88 = 3.56                5 - ½·4.05 = 2.975
        ("fo", "uniform", (2.6 + 2.75) / 2),
        ("fo", "samples", (2.6 + 3 * 2.75) / 4),
        ("hf", "uniform", (3.56 + 2.975) / 2),
    ],
)
def test_one_step_by_hand(backend, batch, variant, weights, expected, lines, cohort):
    fed = lines(backend, p=(2, 6, 1), q=(1, 0, 3))
    local = LocalSGD(steps=1, batch_size=batch, learning_rate=0.1)
    method = PerFedAvg(local, variant=variant, beta=0.5, delta=0.01, weights=weights)
    out = method.round(w(5), fed, cohort(fed), Seed(0))
    # With δ = 0.01, h has a rounding error of 6e-8·8/0.02: it is the difference of two gradients of about 8.
    assert out.state["w"] == pytest.approx(expected, abs=2e-5)
    # The loss of w̃ on D': p ½·4·1.2² = 2.88, q ½·4.5² = 10.125, weighted by samples.
    assert out.loss == pytest.approx((2.88 + 3 * 10.125) / 4, rel=1e-5)
    assert out.assignment == {"p": 0, "q": 0}


@pytest.mark.parametrize(("a", "c", "alpha"), [(1.0, 3.0, 0.5), (4.0, -2.0, 0.2), (0.25, 8.0, 1.0), (4.0, 1.0, 0.25)])
def test_hessian_free_is_the_exact_gradient_of_the_objective_on_quadratics(a, c, alpha, lines, cohort):
    # F(w) = f(w - α f'(w)), F' = (1 - α a) a (1 - α a)(w - c); FO leaves the first factor out.
    fed = lines("sequential", k=(np.sqrt(a), c * np.sqrt(a), 2))
    local = LocalSGD(steps=1, batch_size=0, learning_rate=alpha)
    for variant, factor in (("hf", 1 - alpha * a), ("fo", 1.0)):
        out = PerFedAvg(local, variant=variant, beta=1.0, delta=0.01).round(w(5), fed, cohort(fed), Seed(0))
        assert 5 - out.state["w"] == pytest.approx(factor * a * (1 - alpha * a) * (5 - c), abs=1e-4)


@pytest.mark.exhaustive
def test_hessian_free_is_the_gradient_of_the_objective_on_images(blobs, cohort):
    # With all samples in each batch, a step of β = 1 is -∇ f(w - α ∇f(w)), which JAX differentiates exactly.
    fed, _ = blobs(backend="sequential")
    images = data.load("blobs", clients=12, clusters=2, samples=50, seed=0)
    task, (x, y), alpha = fed.task, images.examples("00"), 0.5
    start = task.init(Seed(0))

    def f(at):
        return task.losses(at, x, y).mean()

    def objective(at):
        return f(tree.map(lambda v, g: v - alpha * g, at, jax.grad(f)(at)))

    exact = tree.flatten(tree.host(jax.grad(objective)(start)))
    first = tree.flatten(
        tree.host(jax.grad(f)(tree.map(lambda v, g: v - alpha * g, start, tree.host(jax.grad(f)(start)))))
    )
    local = LocalSGD(steps=1, batch_size=0, learning_rate=alpha)
    for variant, expected in (("hf", exact), ("fo", first)):
        method = PerFedAvg(local, variant=variant, beta=1.0, delta=0.01)
        out = method.round(start, fed, cohort(fed, clients=["00"]), Seed(0)).state
        np.testing.assert_allclose(tree.flatten(start) - tree.flatten(out), expected, atol=1e-4 * np.abs(exact).max())
    assert np.abs(exact - first).max() > 0.05 * np.abs(exact).max()  # otherwise the two could not be distinguished


def test_central_differences_converge_to_the_hessian_as_delta_shrinks():
    # f = w⁴: f' = 4w³, f'' g = 12 w² g = 24 at w = 1, g = 2. By differences: 12 w² g + 4 δ² g³ = 24 + 32 δ².
    for delta in (1.0, 0.1, 0.01):
        h = hessian_times(lambda at: {"w": 4 * at["w"] ** 3}, {"w": np.float64(1)}, {"w": np.float64(2)}, delta)
        assert h["w"] == pytest.approx(24 + 32 * delta**2, rel=1e-9)


# Batches -------------------------------------------------------------------------------------------------------------


def by_hand(held, start, local, method, order):
    """Algorithm 1 on f = ½ (w - x)² with batches in this order, in float64: w, the loss, the steps."""
    parts = 2 if method.variant == "fo" else 3
    size = min(local.batch_size or len(held), len(held))
    triples = []
    for one in order:
        batches = [held[one[i : i + size]] for i in range(0, len(held), size)]
        steps = max(1, len(batches) // parts)
        triples += [[batches[(s * parts + j) % len(batches)] for j in range(parts)] for s in range(steps)]
    at, losses = float(start), []
    for drawn in triples[: local.steps or None]:
        ahead = at - local.learning_rate * (at - drawn[0].mean())
        g = ahead - drawn[1].mean()
        losses.append(0.5 * (ahead - drawn[1]) ** 2)
        at -= method.beta * (g - local.learning_rate * g if parts == 3 else g)  # the Hessian is 1
    return at, np.concatenate(losses[-steps:]).mean(), len(losses)


@VARIANTS
@pytest.mark.parametrize(
    ("n", "options"),
    [
        pytest.param(12, {"batch_size": 2, "epochs": 2}, id="six batches: three pairs, two triples"),
        pytest.param(7, {"batch_size": 1, "epochs": 1}, id="one batch is left over", marks=pytest.mark.exhaustive),
        pytest.param(7, {"batch_size": 3, "epochs": 3}, id="three batches, the last one short"),
        pytest.param(
            4, {"batch_size": 2, "epochs": 2}, id="two batches, too few for a triple", marks=pytest.mark.exhaustive
        ),
        pytest.param(3, {"batch_size": 10, "epochs": 2}, id="one batch, used for all parts"),
        pytest.param(
            12, {"batch_size": 2, "steps": 7}, id="steps that end within a pass", marks=pytest.mark.exhaustive
        ),
        pytest.param(12, {"batch_size": 2, "steps": 1}, id="one step", marks=pytest.mark.exhaustive),
        pytest.param(1300, {"batch_size": 600, "epochs": 2}, id="batches of more than 512, the last one short"),
        pytest.param(1300, {"batch_size": 0, "steps": 3}, id="all of many samples", marks=pytest.mark.exhaustive),
    ],
)
def test_epochs_take_their_batches_in_pairs_or_triples(variant, n, options, tiny, cohort):
    check_batches(tiny, cohort, variant, n, options, "sequential")


@VARIANTS
@pytest.mark.parametrize(
    "options",
    [{"batch_size": 2, "epochs": 2}, pytest.param({"batch_size": 600, "epochs": 2}, marks=pytest.mark.exhaustive)],
)
def test_a_vectorized_cohort_takes_the_same_batches(variant, options, tiny, cohort):
    check_batches(tiny, cohort, variant, 1300, options, "vectorized")


def check_batches(tiny, cohort, variant, n, options, backend):
    held = Seed(9).fold("held").uniform(n) * 10
    local = LocalSGD(learning_rate=0.25, **options)
    method = PerFedAvg(local, variant=variant, beta=0.5, delta=0.125)
    fed = tiny(backend=backend, a=held)
    passes = options.get("epochs") or options["steps"]  # not all of them are needed
    order = Seed(4).fold("batches", "a").permutations(passes, n)
    at, loss, steps = by_hand(held, 3.0, local, method, order)
    got = method.round(w(3), fed, cohort(fed), Seed(4))
    assert got.state["w"] == pytest.approx(at, abs=2e-5)
    assert got.loss == pytest.approx(loss, rel=1e-4)
    assert steps == options.get("steps", steps)


@VARIANTS
def test_a_client_without_samples_has_weight_zero(variant, tiny, cohort, step):
    # b alone: FO 8 → 8 - ½·½·8 = 6; HF 8 - ½·½·½·8 = 7 (α = β = ½, x = 0).
    fed = tiny(a=[], b=[0])
    method = PerFedAvg(step(0.5), variant=variant, beta=0.5)
    expected = {"fo": 6, "hf": 7}[variant]
    assert method.round(w(8), fed, cohort(fed), Seed(0)).state["w"] == pytest.approx(expected, abs=1e-3)
    start = w(1 / 3)
    assert tree.same(method.round(start, fed, cohort(fed, clients="a"), Seed(0)).state, start)
    late = cohort(fed, clients="b", efforts={"b": 0.5})
    assert tree.same(method.round(start, fed, late, Seed(0)).state, start)


# Settings of local training ------------------------------------------------------------------------------------------


@BOTH
def test_without_an_inner_step_it_is_fedavg_with_learning_rate_beta(backend, blobs, run_rounds):
    fed, _ = blobs(backend=backend)
    mine, rounds = run_rounds(
        PerFedAvg(LocalSGD(epochs=3, batch_size=0, learning_rate=0.0, lr_decay=0.9), beta=0.2), fed, 2, size=5
    )
    local = LocalSGD(epochs=3, batch_size=0, learning_rate=0.2, lr_decay=0.9)
    theirs, others = run_rounds(FedAvg(local, weights="uniform"), fed, 2, size=5)
    np.testing.assert_allclose(tree.flatten(mine), tree.flatten(theirs), atol=1e-6)
    assert [r.loss for r in rounds] == pytest.approx([r.loss for r in others], rel=1e-5)


def test_momentum_does_not_affect_the_inner_step(tiny, cohort, step):
    # α = β = ½, x = 0, momentum ½. From 8: w̃ = 4, g = 4, v = 4, w = 6. Then w̃ = 3, g = 3, v = 2 + 3 = 5, w = 3.5.
    fed = tiny(a=[0])
    method = PerFedAvg(step(0.5, steps=2, momentum=0.5), beta=0.5)
    assert method.round(w(8), fed, cohort(fed), Seed(0)).state["w"] == 3.5
    assert method.adaptation.momentum == 0


@VARIANTS
def test_weight_decay_is_part_of_the_objective(variant, tiny, cohort, step):
    # ½ w² + ½·1·w²: a = 2. From 8 with α = ¼: w̃ = 8 - ¼·16 = 4, g = 8, h = 16. FO: 8 - ½·8 = 4; HF: 8 - ½·4 = 6.
    fed = tiny(a=[0])
    method = PerFedAvg(step(0.25, weight_decay=1.0), variant=variant, beta=0.5, delta=0.125)
    assert method.round(w(8), fed, cohort(fed), Seed(0)).state["w"] == {"fo": 4, "hf": 6}[variant]


@VARIANTS
def test_beta_is_alpha_times_the_batches_of_a_step_by_default(variant, tiny, cohort, step):
    # From 8 with α = ¼, x = 0: w̃ = 6, g = 6, h = 6. FO: β = 2·¼, 8 - ½·6 = 5. HF: β = 3·¼, 8 - ¾ (6 - ¼·6) = 4.625.
    fed = tiny(a=[0])
    method = PerFedAvg(step(0.25), variant=variant, delta=0.125)
    assert method.beta == "auto"
    assert method.round(w(8), fed, cohort(fed), Seed(0)).state["w"] == {"fo": 5, "hf": 4.625}[variant]


def test_beta_decays_and_alpha_does_not(tiny, cohort, step):
    # In round 2, β = ½·½² = 1/8: 8 - 1/8·4 = 7.5, where w̃ = 4 still.
    fed = tiny(a=[0])
    method = PerFedAvg(step(0.5, lr_decay=0.5), beta=0.5)
    assert [float(method.round(w(8), fed, cohort(fed, t), Seed(0)).state["w"]) for t in (0, 2)] == [6, 7.5]


def test_running_statistics_come_from_the_batch_at_w_tilde(cohort):
    task = models.Task(
        name="with statistics",
        init=lambda seed: {"norm": {"stats": {"mean": np.zeros(1, np.float32)}}, "out": np.ones(1, np.float32)},
        apply=lambda params, x, key: (x[:, 0] - params["norm"]["stats"]["mean"]) * params["out"],
        shape=(1,),
        classes=None,
        layers=("norm", "out"),
        learn=lambda params, x, key, weight: (
            x[:, 0] * params["out"],
            {"norm": {"stats": {"mean": params["norm"]["stats"]["mean"] / 2 + x.mean(axis=0)}}},
        ),
    )
    # One batch of input 1 and target 0 for both: out 1 → w̃ = ½, g = ½, out = ¾; the mean, from 0, sees 1 once.
    fed = sequential(
        data.from_arrays({"a": (np.ones((2, 1), np.float32), np.zeros(2, np.float32))}, test={}, classes=None), task
    )
    local = LocalSGD(steps=1, batch_size=2, learning_rate=0.5)
    out = PerFedAvg(local, beta=0.5).round(task.init(Seed(0)), fed, cohort(fed), Seed(0)).state
    assert out["out"].tolist() == [0.75]
    assert out["norm"]["stats"]["mean"].tolist() == [1]


# Adaptation ----------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # From 8 toward 0 with α = ½; two samples in batches of one are two steps per epoch.
        ({}, 2),
        ({"adapt_epochs": 2}, 0.5),
        ({"adapt_steps": 1}, 4),
        ({"adapt_steps": 3}, 1),
    ],
)
def test_all_clients_are_served_the_adapted_model(backend, options, expected, tiny):
    fed = tiny(backend=backend, a=[0, 0], newcomer=[0, 0])
    method = PerFedAvg(LocalSGD(epochs=7, batch_size=1, learning_rate=0.5), **options)
    placement = method.place(w(8), fed, fed.clients, Seed(0))[1]
    assert placement.row == {"a": 0, "newcomer": 0}
    served = fed.evaluating().ask(fed.clients, placement.adapt.work, Seed(0), **placement.adapt.sent)
    assert len(served) == 0  # an evaluation never trains; the adaptation comes before it
    served = fed.ask(fed.clients, placement.adapt.work, Seed(0), **placement.adapt.sent)
    assert served["params"]["w"].tolist() == [expected, expected]


@pytest.mark.slow
def test_adaptation_improves_accuracy_if_clients_differ(blobs, run_rounds, accuracy, seeds):
    # Two clusters whose labels contradict each other: one model cannot fit both, an adapted one can.
    gains = []
    for seed in seeds:
        fed, _ = blobs(seed)
        method = PerFedAvg(LocalSGD(epochs=2, batch_size=8, learning_rate=0.1), beta=0.1, adapt_epochs=2)
        state, _ = run_rounds(method, fed, 6, size=8, seed=seed)
        common = dataclasses.replace(method, local=dataclasses.replace(method.local, learning_rate=0.0))
        gains.append(accuracy(method, state, fed) - accuracy(common, state, fed))
    assert sum(gain > 0 for gain in gains) >= len(seeds) - len(seeds) // 10, gains


@pytest.mark.exhaustive
def test_a_round_sends_one_model_down_and_one_up_and_scoring_is_not_counted(blobs, run_rounds, accuracy):
    fed, _ = blobs()
    method = PerFedAvg(LocalSGD(epochs=1, batch_size=8))
    state, _ = run_rounds(method, fed, 2, size=5)
    model = 4 * tree.size(state)
    assert fed.traffic.by_purpose()["train"] == {"down": 2 * 5 * model, "up": 2 * 5 * model}
    before = fed.traffic.total()
    accuracy(method, state, fed)
    assert fed.traffic.total() == before


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"variant": "so"}, "method.variant must be one of 'fo', 'hf', got 'so'"),
        ({"weights": "equal"}, "method.weights must be one of 'uniform', 'samples', got 'equal'"),
        ({"beta": -1.0}, "method.beta must be at least 0, got -1.0"),
        ({"beta": np.inf}, "method.beta must be a finite number of at least 0, got inf"),
        ({"beta": "big"}, "method.beta must be a number of at least 0 or 'auto', got 'big'"),
        ({"delta": 0.0}, "method.delta must be above 0, got 0.0"),
        ({"adapt_epochs": 0}, "method.adapt_epochs must be at least 1, got 0"),
        ({"adapt_steps": -1}, "method.adapt_steps must be at least 0, got -1"),
    ],
)
def test_invalid_settings_are_refused(given, text):
    with pytest.raises(SpecError, match=f"^{text}$"):
        PerFedAvg(**given)
