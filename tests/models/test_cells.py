"""Recurrent cells, compared with their equations and with PyTorch, and their derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.models.cells import CELLS, Embedding, Recurrent, _layer
from coterie.models.layers import Context
from coterie.seeds import Seed

TIME, ROWS, INPUTS, UNITS = 4, 3, 2, 5


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def drawn(kind, **more):
    """A layer, its parameters with nonzero biases, and inputs."""
    layer = Recurrent(kind, UNITS, **more)
    params, _ = layer.init(Seed(0), (TIME, INPUTS), "torch")
    return layer, params, np.random.default_rng(0).normal(size=(ROWS, TIME, INPUTS)).astype(np.float32)


def called(layer, params, x):
    return np.asarray(jax.jit(lambda params, x: layer.apply(params, x, Context(), "layer", None))(params, x))


def by_equations(kind, params, x):
    """h at all time steps, one row and one gate at a time, in float64."""
    k, r, b = (params[name].astype(np.float64) for name in ("kernel", "recurrent", "bias"))
    late = params.get("recurrent_bias", np.zeros(len(b)))
    gate = {
        name: slice(place * UNITS, (place + 1) * UNITS)
        for place, name in enumerate("ifgo" if kind == "lstm" else "qun")
    }
    out = np.zeros((len(x), TIME, UNITS))
    for row in range(len(x)):
        h, c = np.zeros(UNITS), np.zeros(UNITS)
        for t in range(TIME):
            own = {name: k[at] @ x[row, t] + b[at] for name, at in gate.items()}
            from_h = {name: r[at] @ h + late[at] for name, at in gate.items()}
            if kind == "lstm":
                i, f, o = (sigmoid(own[name] + from_h[name]) for name in "ifo")
                c = f * c + i * np.tanh(own["g"] + from_h["g"])
                h = o * np.tanh(c)
            else:
                q, u = (sigmoid(own[name] + from_h[name]) for name in "qu")
                h = u * h + (1 - u) * np.tanh(own["n"] + q * from_h["n"])
            out[row, t] = h
    return out


@pytest.mark.parametrize("biases", [1, 2])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_cell_follows_its_equations(kind, biases):
    layer, params, x = drawn(kind, sequences=True, biases=biases)
    assert ("recurrent_bias" in params) == (biases == 2)
    np.testing.assert_allclose(called(layer, params, x), by_equations(kind, params, x), rtol=1e-5, atol=1e-6)


def test_a_simple_cell_by_hand():
    layer = Recurrent("simple", 1, sequences=True)
    params = {name: np.array(value, np.float32) for name, value in (("kernel", [[2.0]]), ("recurrent", [[0.5]]))}
    params["bias"] = np.array([-1.0], np.float32)
    # h_1 = tanh(2·1 - 1) = tanh 1, h_2 = tanh(2·0 - 1 + h_1/2)
    first = np.tanh(1)
    out = called(layer, params, np.array([[[1.0], [0.0]]], np.float32))
    np.testing.assert_allclose(out.ravel(), [first, np.tanh(first / 2 - 1)], rtol=1e-6)


def test_an_lstm_with_zero_kernels_by_hand():
    layer, params, x = drawn("lstm", sequences=True)
    params = {name: np.zeros_like(leaf) for name, leaf in params.items()}
    params["bias"][2 * UNITS : 3 * UNITS] = 20.0
    # All gates are σ(0) = 1/2 and g = tanh 20 = 1, so c_t = c_{t-1}/2 + 1/2 = 1 - 2^-t and h_t = tanh(c_t)/2.
    c = 1 - 0.5 ** np.arange(1, TIME + 1)
    np.testing.assert_allclose(called(layer, params, x)[0, :, 0], np.tanh(c) / 2, rtol=1e-6)


def test_without_sequences_the_output_is_that_of_the_last_time_step():
    layer, params, x = drawn("lstm", sequences=True)
    last = Recurrent("lstm", UNITS)
    np.testing.assert_array_equal(called(last, params, x), called(layer, params, x)[:, -1])


def test_a_bidirectional_layer_is_one_forward_layer_and_one_on_the_reversed_sequence():
    layer, params, x = drawn("gru", sequences=True, both_ways=True)
    one = Recurrent("gru", UNITS, sequences=True)
    forward, back = called(one, params["forward"], x), called(one, params["backward"], x[:, ::-1])
    np.testing.assert_allclose(called(layer, params, x), np.concatenate([forward, back[:, ::-1]], axis=2), rtol=1e-6)
    last = called(Recurrent("gru", UNITS, both_ways=True), params, x)
    # The last output of the backward direction is at the first time step.
    np.testing.assert_allclose(last, np.concatenate([forward[:, -1], back[:, -1]], axis=1), rtol=1e-6)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_values_and_gradients_equal_those_of_pytorch(kind):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: no comparison with its nn.LSTM and nn.GRU")
    layer, params, x = drawn(kind, sequences=True, biases=2, both_ways=True)
    ways = {"": params["forward"], "_reverse": params["backward"]}
    maker = torch.nn.LSTM if kind == "lstm" else torch.nn.GRU
    theirs = maker(INPUTS, UNITS, batch_first=True, bidirectional=True)
    names = {"kernel": "weight_ih", "recurrent": "weight_hh", "bias": "bias_ih", "recurrent_bias": "bias_hh"}
    leaves = {f"{names[name]}_l0{way}": leaf for way, own in ways.items() for name, leaf in own.items()}
    theirs.load_state_dict({name: torch.from_numpy(leaf.copy()) for name, leaf in leaves.items()})
    inputs = torch.from_numpy(x).requires_grad_()
    expected, _ = theirs(inputs)
    weight = np.random.default_rng(1).normal(size=expected.shape).astype(np.float32)
    (expected * torch.from_numpy(weight)).sum().backward()

    def summed(params, x):
        out = layer.apply(params, x, Context(), "", None)
        return jnp.sum(out * weight), out

    (grads, grad), out = jax.jit(jax.grad(summed, argnums=(0, 1), has_aux=True))(params, x)
    np.testing.assert_allclose(out, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(grad, inputs.grad.numpy(), rtol=1e-4, atol=1e-5)
    for way, own in {"": grads["forward"], "_reverse": grads["backward"]}.items():
        for name, leaf in own.items():
            there = getattr(theirs, f"{names[name]}_l0{way}").grad.numpy()
            np.testing.assert_allclose(leaf, there, rtol=1e-4, atol=1e-5, err_msg=f"{name}{way}")


def plainly(kind, backwards):
    """The same layer with JAX's own derivative."""

    def run(x, kernel, bias, recurrent, late):
        def step(state, now):
            new = CELLS[kind].step(now, state[0] @ recurrent.T + late, state)
            return new, new[0]

        nothing = jnp.zeros((x.shape[1], recurrent.shape[1]))
        return jax.lax.scan(step, (nothing,) * CELLS[kind].states, x @ kernel.T + bias, reverse=backwards)[1]

    return run


@pytest.mark.parametrize(
    ("kind", "backwards"), [("simple", True), ("lstm", False), pytest.param("gru", True, marks=pytest.mark.exhaustive)]
)
def test_the_custom_gradient_equals_jaxs_own(kind, backwards):
    draw = np.random.default_rng(2)
    rows = CELLS[kind].gates * UNITS
    shapes = ((TIME, ROWS, INPUTS), (rows, INPUTS), (rows,), (rows, UNITS), (rows,))
    given = [draw.normal(size=shape).astype(np.float32) for shape in shapes]
    weight = draw.normal(size=(TIME, ROWS, UNITS)).astype(np.float32)

    def grads(run):
        return jax.jit(jax.grad(lambda *given: jnp.sum(run(*given) * weight), argnums=range(5)))(*given)

    for ours, theirs in zip(grads(_layer(CELLS[kind], backwards)), grads(plainly(kind, backwards)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
def test_second_derivatives_exist_and_layers_can_be_vmapped_over_models():
    layer, params, x = drawn("simple")

    def loss(params):
        return jnp.sum(jnp.square(layer.apply(params, x, Context(), "", None)))

    def plain(params):
        leaves = (params["kernel"], params["bias"], params["recurrent"], 0.0)
        return jnp.sum(jnp.square(plainly("simple", False)(jnp.swapaxes(x, 0, 1), *leaves)[-1]))

    def curved(loss):
        """The gradient of |∇ loss|², which needs the second derivative of the loss."""

        def squared(at):
            return sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(jax.grad(loss)(at)))

        return jax.tree.leaves(jax.jit(jax.grad(squared))(params))

    for ours, theirs in zip(curved(loss), curved(plain), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    two = jax.tree.map(lambda leaf: np.stack([leaf, 2 * leaf]), params)
    each = [loss(params), loss(jax.tree.map(lambda leaf: 2 * leaf, params))]
    np.testing.assert_allclose(jax.jit(jax.vmap(loss))(two), each, rtol=1e-5)


def test_kernels_are_initialized_as_in_the_papers_frameworks():
    layer = Recurrent("lstm", 100, biases=2)
    keras, _ = layer.init(Seed(0), (5, 300), "glorot")
    assert np.unique(keras["bias"][100:200]).tolist() == [1]  # the forget gate
    assert not np.delete(keras["bias"], np.s_[100:200]).any()
    assert not keras["recurrent_bias"].any()
    # Glorot: ±sqrt(6/(300 + 400)) and ±sqrt(6/(100 + 400)), both reached to within a hundredth
    for name, inputs in (("kernel", 300), ("recurrent", 100)):
        bound = np.sqrt(6 / (inputs + 400))
        assert 0.99 * bound < np.abs(keras[name]).max() <= bound
    torch, _ = layer.init(Seed(0), (5, 300), "torch")
    for leaf in torch.values():  # PyTorch: ±1/sqrt(100) for everything
        assert 0.09 < np.abs(leaf).max() <= 0.1


def test_an_embedding_returns_the_vector_of_each_id():
    layer = Embedding(7, 3)
    params, shape = layer.init(Seed(0), (2,), "torch")
    ids = np.array([[0, 6], [3, 3]], np.int32)
    assert shape == (2, 3)
    np.testing.assert_array_equal(called(layer, params, ids), params["vectors"][ids])
    # Id 3 occurs twice, ids 1, 2, 4 and 5 do not occur.
    grad = jax.grad(lambda params: layer.apply(params, ids, Context(), "", None).sum())(params)["vectors"]
    assert np.asarray(grad)[:, 0].tolist() == [1, 0, 0, 2, 0, 0, 1]


def test_embedding_vectors_are_standard_normal():
    vectors = Embedding(400, 50).init(Seed(0), (2,), "torch")[0]["vectors"]
    # Of 20,000 draws the mean deviates by 1/sqrt(20000), the variance by sqrt(2/20000); tolerance: six deviations.
    assert abs(vectors.mean()) < 6 / np.sqrt(20_000)
    assert abs(vectors.var() - 1) < 6 * np.sqrt(2 / 20_000)
