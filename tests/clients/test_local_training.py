"""Local training, compared with the same training in NumPy."""

from __future__ import annotations

import dataclasses
import itertools
import math

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import tree
from coterie.clients import TRAINED, LocalSGD, Model, Settings, Values, Work, fit, train
from coterie.clients.local_training import lengths, optax_optimizer, plan
from coterie.data import from_arrays
from coterie.errors import SpecError
from coterie.federation import Cohort, Mean, sequential
from coterie.models import from_flax, from_functions, mclr, mlp
from coterie.seeds import Seed

RATE = 0.25
#: float32 rounds by 6e-8; numbers of size 1, tens of roundings per step, a dozen steps.
CLOSE = 1e-5


def drawn(name, n):
    """n points of the plane in three classes that are not linearly separable."""
    draws = Seed(0).fold(name).generator()
    return draws.normal(size=(n, 2)).astype(np.float32), draws.integers(0, 3, n)


DATA = from_arrays({"few": drawn("few", 7), "many": drawn("many", 1300), "none": drawn("none", 0)}, test={})
TASK = mclr((2,), 3)
FED = sequential(DATA, TASK)
START = TASK.init(Seed(1))
ROUND = Seed(2)

# F(w) = ½ (w - c)², with c = 3 for one client and -1 for the other.
POINT = from_functions(
    lambda key: {"w": np.zeros(1)},
    lambda params, x: jnp.broadcast_to(params["w"], x.shape[:1]),
    (1,),
    None,
    name="point",
)
POINTS = sequential(
    from_arrays({"three": (np.zeros((4, 1)), np.full(4, 3.0)), "minus": (np.zeros((2, 1)), np.full(2, -1.0))}, test={}),
    POINT,
)


def trained(local, client="few", *, fed=FED, start=START, seed=ROUND):
    """Model, loss and number of steps of one client."""
    got = fed.ask([client], fit, seed, start=start, local=local)
    assert got.clients == (client,)
    return tree.row(got["params"], 0), float(got["loss"][0]), int(got["steps"][0])


def point(local, client="three", start=0.0):
    """The trained parameter of a client of the quadratic problem."""
    return float(trained(local, client, fed=POINTS, start={"w": np.array([start], np.float32)})[0]["w"][0])


def batches(n, local, client):
    """The examples of each step: pass by pass, in the order of the raw words of the client's stream."""
    size = min(local.batch_size or n, n)
    in_pass = math.ceil(n / size)
    passes = math.ceil(local.steps / in_pass) if local.steps else local.epochs
    words = ROUND.fold("batches", client).words(passes * n).reshape(passes, n)
    every = [order[first : first + size] for order in np.argsort(words, kind="stable") for first in range(0, n, size)]
    return every[: local.steps or None], in_pass


def gradient_by_hand(kernel, bias, x, y):
    """∇ of the mean cross-entropy: (p - onehot)ᵀ x / n for the kernel and the mean of p - onehot for the bias."""
    logits = x @ kernel.T + bias
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    off = p - np.eye(3)[y]
    return off.T @ x / len(y), off.mean(0), -np.log(p[np.arange(len(y)), y])


def sgd_by_hand(local, client, l2=0.0):
    """The update of the module docstring in float64: kernel, bias, mean loss over the last pass, steps."""
    x, y = DATA.examples(client)
    weights = [START["dense0"]["kernel"].astype(float), START["dense0"]["bias"].astype(float)]
    begin, speed = [w.copy() for w in weights], [0.0, 0.0]
    order, in_pass = batches(len(y), local, client)
    losses = []
    for mine in order:
        *grads, loss = gradient_by_hand(*weights, x[mine].astype(float), y[mine])
        grads[0] = grads[0] + 2 * l2 * weights[0]
        for i, w in enumerate(weights):
            g = grads[i] + local.weight_decay * w + local.mu * (w - begin[i])
            speed[i] = local.momentum * speed[i] + g
            weights[i] = w - local.learning_rate * speed[i]
        losses.append(loss)
    return *weights, np.concatenate(losses[-in_pass:]).mean(), len(order)


@pytest.mark.parametrize(
    ("client", "settings"),
    [
        pytest.param("few", {"epochs": 3, "batch_size": 3}, id="epochs with a smaller last batch"),
        pytest.param("few", {"steps": 5, "batch_size": 3}, id="steps that end within a pass"),
        pytest.param(
            "few", {"steps": 2, "batch_size": 3}, id="steps of less than a pass", marks=pytest.mark.exhaustive
        ),
        pytest.param(
            "few",
            {"steps": 5, "batch_size": 3, "epochs": 9},
            id="steps instead of epochs",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param("few", {"epochs": 2, "batch_size": 10}, id="a batch larger than the client"),
        pytest.param("few", {"epochs": 2, "batch_size": 0}, id="all examples in a batch"),
        pytest.param(
            "many", {"epochs": 2, "batch_size": 0}, id="all of many examples in a batch", marks=pytest.mark.exhaustive
        ),
        pytest.param("many", {"epochs": 2, "batch_size": 600}, id="batches beyond 512 and a smaller last one"),
        pytest.param(
            "many", {"steps": 4, "batch_size": 600}, id="steps of batches beyond 512", marks=pytest.mark.exhaustive
        ),
        pytest.param("many", {"epochs": 2, "batch_size": 512}, id="batches of 512", marks=pytest.mark.exhaustive),
        pytest.param(
            "few", {"epochs": 3, "batch_size": 3, "momentum": 0.5}, id="momentum", marks=pytest.mark.exhaustive
        ),
        pytest.param(
            "few", {"epochs": 3, "batch_size": 3, "weight_decay": 0.25}, id="weight decay", marks=pytest.mark.exhaustive
        ),
        pytest.param(
            "few", {"epochs": 3, "batch_size": 3, "mu": 0.5}, id="proximal term", marks=pytest.mark.exhaustive
        ),
        pytest.param(
            "few", {"epochs": 3, "batch_size": 3, "momentum": 0.5, "weight_decay": 0.25, "mu": 0.5}, id="all terms"
        ),
        pytest.param(
            "many",
            {"steps": 4, "batch_size": 600, "momentum": 0.5, "mu": 0.5},
            id="terms with batches beyond 512",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_local_training_equals_sgd_in_numpy(client, settings):
    local = LocalSGD(learning_rate=RATE, **settings)
    kernel, bias, loss, steps = sgd_by_hand(local, client)
    params, reported, taken = trained(local, client)
    assert params["dense0"]["kernel"] == pytest.approx(kernel, abs=CLOSE)
    assert params["dense0"]["bias"] == pytest.approx(bias, abs=CLOSE)
    assert reported == pytest.approx(loss, abs=CLOSE)
    assert taken == steps


def test_the_reference_batches_have_the_expected_sizes():
    # 7 examples in batches of 3: 3 + 3 + 1, three steps per pass; 1,300 in batches of 600: 600 + 600 + 100.
    assert [len(batch) for batch in batches(7, LocalSGD(epochs=2, batch_size=3), "few")[0]] == [3, 3, 1, 3, 3, 1]
    assert [len(batch) for batch in batches(7, LocalSGD(steps=4, batch_size=3), "few")[0]] == [3, 3, 1, 3]
    assert [len(batch) for batch in batches(1300, LocalSGD(epochs=1, batch_size=600), "many")[0]] == [600, 600, 100]
    assert trained(LocalSGD(epochs=2, batch_size=3))[2] == 6
    assert trained(LocalSGD(epochs=1, batch_size=600), "many")[2] == 3


def test_the_l2_penalty_of_the_task_applies_to_kernels_and_not_to_biases():
    local = LocalSGD(epochs=2, batch_size=3, learning_rate=RATE)
    kernel, bias, loss, _ = sgd_by_hand(local, "few", l2=0.5)
    params, reported, _ = trained(local, fed=sequential(DATA, mclr((2,), 3, l2=0.5)))
    assert params["dense0"]["kernel"] == pytest.approx(kernel, abs=CLOSE)
    assert params["dense0"]["bias"] == pytest.approx(bias, abs=CLOSE)
    assert reported == pytest.approx(loss, abs=CLOSE)  # the data loss alone


def test_momentum_adds_the_gradient_to_the_decayed_velocity():
    # c = 3, w = 0, rate ½, momentum ½:  v = -3,                      w = 1.5
    #                                    v = -1.5 - 1.5 = -3,         w = 3
    #                                    v = -1.5 + 0 = -1.5,         w = 3.75
    #                                    v = -0.75 + 0.75 = 0,        w = 3.75
    #                                    v = 0 + 0.75,                w = 3.375
    assert [point(LocalSGD(steps=s, batch_size=0, learning_rate=0.5, momentum=0.5)) for s in (3, 4, 5)] == [
        3.75,
        3.75,
        3.375,
    ]


def test_weight_decay_pulls_toward_zero():
    # g = (w - 3) + ½ w; from w = 2 with rate ½: g = -1 + 1 = 0. From w = 4: g = 1 + 2 = 3, w = 2.5.
    assert point(LocalSGD(steps=1, batch_size=0, learning_rate=0.5, weight_decay=0.5), start=2) == 2
    assert point(LocalSGD(steps=1, batch_size=0, learning_rate=0.5, weight_decay=0.5), start=4) == 2.5


@pytest.mark.parametrize("mu", [0.5, 1.0, 4.0])
def test_proximal_training_ends_between_the_local_optimum_and_the_initial_model(mu):
    # (w - c) + μ (w - w0) = 0 at (c + μ w0)/(1 + μ). A step of rate r shrinks the distance by 1 - r (1 + μ); with
    # r = 1/(2 (1 + μ)) 60 steps shrink it by 2^-60.
    end = point(LocalSGD(steps=60, batch_size=0, learning_rate=0.5 / (1 + mu), mu=mu), start=1)
    assert end == pytest.approx((3 + mu * 1) / (1 + mu), rel=1e-6)  # a few roundings of float32


def test_the_first_step_does_not_depend_on_mu():
    ends = [point(LocalSGD(steps=1, batch_size=0, learning_rate=0.5, mu=mu), start=1) for mu in (0.0, 0.5, 100.0)]
    assert ends == [2, 2, 2]  # 1 - ½ (1 - 3)


def test_one_full_batch_step_with_learning_rate_one_averages_to_the_mean_of_the_optima():
    # Each client ends at its c. Weighted by 4 and 2 examples: (4·3 - 2·1)/6 = 5/3.
    local, start = LocalSGD(steps=1, batch_size=0, learning_rate=1.0), {"w": np.zeros(1, np.float32)}
    mean, weight = POINTS.ask(POINTS.clients, fit, ROUND, reduce=Mean(), start=start, local=local).means()
    assert mean["w"][0, 0] == np.float32(5 / 3)
    assert weight.tolist() == [6]


def test_the_learning_rate_decays_per_round():
    local = LocalSGD(steps=1, batch_size=0, learning_rate=0.5, lr_decay=0.5)
    assert [local.at(t).learning_rate for t in (0, 1, 3)] == [0.5, 0.25, 0.0625]
    assert [point(local.at(t)) for t in (0, 1, 3)] == [1.5, 0.75, 0.1875]  # rate · 3
    assert LocalSGD(learning_rate=0.5).at(9) == LocalSGD(learning_rate=0.5)


def test_an_optax_optimizer_gives_the_same_steps_as_optax():
    # The proximal gradient is added before the optimizer, so it enters the moments.
    local = LocalSGD(steps=5, batch_size=0, learning_rate=0.125, mu=0.5, optimizer="adam")
    x, y = DATA.examples("few")
    made = optax.adam(0.125)
    params, state = START, made.init(START)

    def objective(at):
        pull = sum(jnp.sum(jnp.square(a - b)) for a, b in zip(tree.leaves(at), tree.leaves(START), strict=True))
        return jnp.mean(TASK.losses(at, x, y)) + 0.5 / 2 * pull

    @jax.jit
    def step(params, state):
        moves, state = made.update(jax.grad(objective)(params), state, params)
        return optax.apply_updates(params, moves), state

    for _ in range(5):
        params, state = step(params, state)
    end, _, steps = trained(local)
    assert steps == 5
    assert tree.flatten(end) == pytest.approx(tree.flatten(params), abs=CLOSE)


def test_layers_that_are_not_trainable_stay_exactly_the_same():
    task = mlp((2,), 3, widths=(4,))
    fed, start = sequential(DATA, task), task.init(Seed(3))
    for settings in ({"momentum": 0.5, "weight_decay": 0.25, "mu": 0.5}, {"optimizer": "adam"}):
        local = LocalSGD(epochs=2, batch_size=3, learning_rate=RATE, trainable_layers=("dense1",), **settings)
        end, _, _ = trained(local, fed=fed, start=start)
        assert tree.same(end["dense0"], start["dense0"])
        assert not np.isclose(end["dense1"]["kernel"], start["dense1"]["kernel"]).any()
    # With all layers named, nothing is frozen.
    whole = [
        trained(LocalSGD(learning_rate=RATE, trainable_layers=layers), fed=fed, start=start)[0]
        for layers in ((), ("dense0", "dense1"))
    ]
    assert tree.same(*whole)


def test_an_unknown_layer_is_rejected():
    with pytest.raises(SpecError, match=r"No layer 'dense1'. Did you mean 'dense0'\? Known: dense0"):
        trained(LocalSGD(trainable_layers=("dense1",)))


def test_a_client_without_examples_returns_the_model_with_weight_zero():
    for local in (LocalSGD(epochs=3), LocalSGD(steps=4, batch_size=0, momentum=0.5)):
        got = FED.ask(["none"], fit, ROUND, start=START, local=local)
        assert tree.same(tree.row(got["params"], 0), START)
        assert (got.samples.tolist(), got["loss"].tolist(), got["steps"].tolist()) == ([0], [0], [0])
    both = FED.ask(["few", "none"], fit, ROUND, reduce=Mean(), start=START, local=LocalSGD())
    assert both.weight.tolist() == [7]
    # (7 w + 0 w0)/7: a product and a quotient in float64, rounded to float32 once.
    assert tree.same(tree.row(both.mean, 0), trained(LocalSGD())[0])


def test_the_result_of_a_client_does_not_depend_on_the_cohort():
    together = FED.ask(FED.clients, fit, ROUND, start=START, local=LocalSGD(learning_rate=RATE))
    assert tree.same(
        tree.row(together["params"], together.clients.index("few")), trained(LocalSGD(learning_rate=RATE))[0]
    )


def test_another_seed_gives_another_order():
    local = LocalSGD(batch_size=2, learning_rate=RATE)
    assert not tree.same(trained(local)[0], trained(local, seed=Seed(3))[0])


def test_a_straggler_trains_like_a_client_with_fewer_epochs():
    # E = 5, u = ½: 1 + floor(½·4) = 3 epochs.
    cohort = Cohort(0, ("few",), ROUND, DATA.clients, efforts={"few": 0.5})
    local = LocalSGD(epochs=5, batch_size=3, learning_rate=RATE)
    got = FED.ask(cohort, fit, ROUND, start=START, local=local)
    params, loss, steps = trained(dataclasses.replace(local, epochs=3))
    assert tree.same(tree.row(got["params"], 0), params)
    assert (got["loss"][0], got["steps"][0]) == (np.float32(loss), steps)
    assert steps == 9


def test_an_infinite_loss_in_an_early_pass_does_not_affect_the_reported_loss():
    # ½ (0 - 3e19)² is beyond the range of float32 \(3.4e38\); one step with learning rate 1 ends at the target.
    fed = sequential(from_arrays({"far": (np.zeros((4, 1)), np.full(4, 3e19))}, test={}), POINT)
    for batch in (0, 4):
        local = LocalSGD(epochs=2, batch_size=batch, learning_rate=1.0)
        assert trained(local, "far", fed=fed, start={"w": np.zeros(1, np.float32)})[1] == 0


@pytest.mark.exhaustive
def test_dropout_depends_on_the_client():
    class Dropping(flax.linen.Module):
        @flax.linen.compact
        def __call__(self, x, train: bool):
            return flax.linen.Dense(3)(flax.linen.Dropout(0.5, deterministic=not train)(x))

    task = from_flax(Dropping(), (2,), 3)
    x, y = drawn("few", 7)
    fed = sequential(from_arrays({"a": (x, y), "b": (x, y)}, test={}), task)
    local = LocalSGD(steps=2, batch_size=0, learning_rate=RATE)  # full batches: only the dropped inputs are random
    one, again = (fed.ask(fed.clients, fit, ROUND, start=task.init(Seed(0)), local=local) for _ in range(2))
    assert tree.same(one["params"], again["params"])
    assert not tree.same(tree.row(one["params"], 0), tree.row(one["params"], 1))


# ----------------------------------------------------------------------------------------------------------------- plan

SETTINGS = st.builds(
    LocalSGD,
    epochs=st.integers(1, 4),
    steps=st.integers(0, 12),
    batch_size=st.sampled_from([0, 1, 2, 3, 10, 128, 511, 512, 513, 600, 2000]),
)
SIZES = st.integers(0, 20) | st.sampled_from([127, 128, 129, 512, 513, 600, 1199, 1200, 1201])


def gathered(steps):
    """The batches of a plan; rows of one batch are joined."""
    ends = np.ones(len(steps.index), bool) if steps.last is None else steps.last
    starts = [0, *(np.flatnonzero(ends) + 1)]
    return [steps.index[a:b].reshape(-1) for a, b in itertools.pairwise(starts)], bool(len(ends) and ends[-1])


@given(SIZES, SETTINGS)
def test_a_plan_has_each_example_once_per_pass_and_padding_only_at_the_end_of_a_batch(n, local):
    steps = plan(n, Seed(4), 1.0, local=local)["local"]
    assert steps.index.dtype == np.int32
    assert steps.index.shape[1] <= 512
    if n == 0:
        assert len(steps.index) == 0
        return
    planned, closed = gathered(steps)
    assert closed
    size = min(local.batch_size or n, n)
    in_pass = math.ceil(n / size)
    assert len(planned) == (local.steps or local.epochs * in_pass)
    for i, batch in enumerate(planned):
        held = (
            n - (in_pass - 1) * size if i % in_pass == in_pass - 1 else size
        )  # the last batch of a pass may be smaller
        assert (batch[:held] >= 0).all()
        assert (batch[held:] == -1).all()
    for first in range(0, len(planned), in_pass):
        seen = [int(place) for batch in planned[first : first + in_pass] for place in batch if place >= 0]
        assert len(set(seen)) == len(seen)
        assert set(seen) <= set(range(n))
        if first + in_pass <= len(planned):
            assert len(seen) == n


@given(SIZES, SETTINGS)
def test_lengths_are_the_numbers_of_rows_of_the_plan(n, local):
    steps = plan(n, Seed(0), 1.0, local=local)["local"]
    assert lengths(n, local=local) == {"local": len(steps.index)}
    assert steps.last is None or len(steps.last) == len(steps.index)


@given(SIZES, SETTINGS, st.floats(0, 1, exclude_max=True))
def test_the_plan_of_a_straggler_is_a_prefix_of_the_full_plan(n, local, effort):
    whole, part = (plan(n, Seed(1), share, local=local)["local"] for share in (1.0, effort))
    assert np.array_equal(part.index, whole.index[: len(part.index)])
    asked = local.steps or local.epochs
    rows = len(whole.index) // asked if n else 0  # of one epoch, or of one step
    assert len(part.index) == rows * (1 + math.floor(effort * (asked - 1)))


@pytest.mark.parametrize(
    ("epochs", "effort", "done"),
    # 1 + floor(u (E - 1)): from one epoch to all but one
    [(20, 0.0, 1), (20, 0.5, 10), (20, 0.999, 19), (2, 0.999, 1), (1, 0.0, 1), (1, 0.999, 1), (20, 1.0, 20)],
)
def test_a_straggler_does_at_least_one_epoch_and_never_all(epochs, effort, done):
    steps = plan(5, Seed(0), effort, local=LocalSGD(epochs=epochs, batch_size=0))["local"]
    assert len(steps.index) == done


def test_every_pass_has_a_different_order():
    index = plan(50, Seed(0), 1.0, local=LocalSGD(epochs=3, batch_size=50))["local"].index
    assert len({tuple(order) for order in index.tolist()}) == 3


def test_batches_of_up_to_512_are_one_row_and_larger_ones_span_rows_of_128():
    assert plan(3, Seed(0), 1.0, local=LocalSGD(epochs=1, batch_size=512))["local"].index.shape == (1, 512)
    steps = plan(1300, Seed(0), 1.0, local=LocalSGD(epochs=1, batch_size=600))["local"]
    # 600 = 4·128 + 88: five rows per batch, also for the smaller one of 100
    assert steps.index.shape == (15, 128)
    assert steps.last.tolist() == 3 * [False, False, False, False, True]


# ------------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"epochs": 0}, "local.epochs must be at least 1, got 0"),
        ({"epochs": 1.5}, "local.epochs must be a whole number of at least 1, got 1.5"),
        ({"epochs": True}, "local.epochs must be a whole number of at least 1, got True"),
        ({"steps": -1}, "local.steps must be at least 0, got -1"),
        ({"batch_size": -1}, "local.batch_size must be at least 0, got -1"),
        ({"batch_size": "10"}, "local.batch_size must be a whole number of at least 0, got '10'"),
        ({"learning_rate": -0.1}, "local.learning_rate must be at least 0, got -0.1"),
        ({"learning_rate": math.nan}, "local.learning_rate must be at least 0, got nan"),
        ({"learning_rate": math.inf}, "local.learning_rate must be a finite number of at least 0, got inf"),
        ({"learning_rate": None}, "local.learning_rate must be a number of at least 0, got None"),
        ({"learning_rate": True}, "local.learning_rate must be a number of at least 0, got True"),
        ({"lr_decay": -1}, "local.lr_decay must be at least 0, got -1"),
        ({"weight_decay": -1}, "local.weight_decay must be at least 0, got -1"),
        ({"mu": "1"}, "local.mu must be a number of at least 0, got '1'"),
        ({"momentum": 1}, "local.momentum must be at least 0 and below 1, got 1"),
        ({"momentum": 0.5, "optimizer": "adam"}, "local.momentum belongs to optimizer 'sgd'; leave it at 0 for others"),
        ({"trainable_layers": "dense0"}, "local.trainable_layers must be a list, each item a string, got 'dense0'"),
        ({"trainable_layers": (1,)}, "local.trainable_layers must be a list, each item a string, got (1,)"),
    ],
)
def test_invalid_settings_raise_an_error_that_names_the_allowed_values(settings, text):
    with pytest.raises(SpecError) as caught:
        LocalSGD(**settings)
    assert str(caught.value) == text


def test_integers_become_floats_and_lists_become_tuples():
    local = LocalSGD(learning_rate=1, mu=0, trainable_layers=["dense0"])
    assert (type(local.learning_rate), type(local.mu), local.trainable_layers) == (float, float, ("dense0",))
    assert local == LocalSGD(learning_rate=1.0, trainable_layers=("dense0",))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("adma", "No optimizer 'adma'; use 'sgd' or the name of an optax optimizer, such as 'adam'"),
        ("_src", "No optimizer '_src'; use 'sgd' or the name of an optax optimizer, such as 'adam'"),
        ("chain", "optax.chain cannot be created from a learning rate alone: "),
        ("GradientTransformation", "optax.GradientTransformation cannot be created from a learning rate alone: "),
    ],
)
def test_an_invalid_optimizer_is_rejected(name, text):
    with pytest.raises(SpecError) as caught:
        optax_optimizer(name, 0.1)
    assert str(caught.value).startswith(text)


def _anchored(task, client, *, start, anchor, pull, local):
    return train(task, start, client, local, anchor=anchor, pull=pull)


anchored = Work(
    "test.anchored",
    takes={"start": Model(), "anchor": Model(), "pull": Values("float32"), "local": Settings(LocalSGD)},
    gives=TRAINED,
    plan=plan,
    lengths=lengths,
    body=_anchored,
    trains=True,
)


def test_the_proximal_term_may_have_another_anchor_and_a_factor_per_client():
    # F = ½ (w - 3)² from 0, pulled to -1 with μ·pull = ½·4 = 2: g = -3 + 2·1 = -1, and a step of ¼ goes to ¼.
    # Without pull it goes to ¾; the second step from there: g = (¼ - 3) + 2·(¼ + 1) = -¼, to 5/16.
    at = {name: {"w": np.array([value], np.float32)} for name, value in (("start", 0), ("anchor", -1))}
    for mu, pull, steps, expected in ((0.5, 4, 1, 0.25), (0.5, 0, 1, 0.75), (0.0, 4, 1, 0.75), (0.5, 4, 2, 0.3125)):
        local = LocalSGD(steps=steps, batch_size=0, learning_rate=0.25, mu=mu)
        got = POINTS.ask(["three"], anchored, ROUND, **at, pull=np.float32(pull), local=local)
        assert got["params"]["w"][0].tolist() == [expected]
