"""Recurrent cells and layers.

The contribution of the inputs x to the gates does not depend on the state h, so it is one product over all time steps
before the loop over time. The loop has one product per step, for all gates at once:

    z_t = K x_t + b           (`kernel`, `bias`), all t at once
    r_t = R h_{t-1} + b'      (`recurrent`, `recurrent_bias`; some networks have no b')

    simple    h_t = tanh(z + r)
    LSTM      i, f, o = σ(z + r),  g = tanh(z + r),  c_t = f c_{t-1} + i g,  h_t = o tanh(c_t)
    GRU       q, u = σ(z + r),  n = tanh(z + q r),  h_t = u h_{t-1} + (1 - u) n

The gates are stacked in K, R, b and b' in the order i, f, g, o or q, u, n, as in PyTorch. The GRU applies its reset
gate after the product, so that b' is not redundant, as in PyTorch and by default in Keras.

The backward loop also has one product per step; the gradient of R is a single product after it. With JAX's automatic
derivative, which adds to a matrix of the size of R at each step, a training step of `char-lstm` took 1.5 times as long.

Kernels are initialized as in the papers' frameworks: `glorot` with zero biases, but 1 for the forget gate f (TensorFlow
and Keras), or `torch`, where everything is uniform in ±1/sqrt(units). Keras draws R orthogonal; here it is Glorot.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from coterie.models.layers import Context, Init, Shape, initial_kernel
from coterie.models.task import check_size
from coterie.seeds import Seed
from coterie.types import Params

#: (h,) or (h, c).
State = tuple[Any, ...]


@dataclass(frozen=True)
class Cell:
    """A recurrent cell.

    Attributes:
        gates: Number of gates; K and R have gates·units rows.
        states: Number of arrays in the state; the first is the output.
        step: (z, r, state) → state.
        adds: Whether z and r occur only as their sum, so that their gradients are equal.
        open: Gate whose bias is initialized to 1; None: no gate.
    """

    gates: int
    states: int
    step: Callable[[Any, Any, State], State]
    adds: bool
    open: int | None = None


def _simple(z: Any, r: Any, state: State) -> State:
    import jax.numpy as jnp

    return (jnp.tanh(z + r),)


def _lstm(z: Any, r: Any, state: State) -> State:
    import jax.numpy as jnp
    from jax.nn import sigmoid

    # σ of all gates, including g, where it is not used: taking σ of slices was three times slower.
    i, f, _, o = jnp.split(sigmoid(z + r), 4, axis=-1)
    c = f * state[1] + i * jnp.tanh(jnp.split(z + r, 4, axis=-1)[2])
    return o * jnp.tanh(c), c


def _gru(z: Any, r: Any, state: State) -> State:
    import jax.numpy as jnp
    from jax.nn import sigmoid

    q, u, _ = jnp.split(sigmoid(z + r), 3, axis=-1)
    n = jnp.tanh(jnp.split(z, 3, axis=-1)[2] + q * jnp.split(r, 3, axis=-1)[2])
    return (u * state[0] + (1 - u) * n,)


CELLS = {
    "simple": Cell(1, 1, _simple, adds=True),
    "lstm": Cell(4, 2, _lstm, adds=True, open=1),
    "gru": Cell(3, 1, _gru, adds=False),
}


@lru_cache
def _layer(cell: Cell, backwards: bool) -> Callable[..., Any]:
    """A function (x, K, b, R, b') → h at all time steps.

    x is (time, rows, inputs), h is (time, rows, units); b' may be None. With `backwards`, the loop runs from the last
    time step to the first.
    """
    import jax
    from jax import lax
    from jax import numpy as jnp

    def forward(x: Any, kernel: Any, bias: Any, recurrent: Any, recurrent_bias: Any) -> tuple[Any, Any]:
        z = (_rows(x) @ kernel.T + bias).reshape(*x.shape[:2], -1)
        transposed = _contiguous(recurrent.T)

        def step(state: State, now: Any) -> tuple[State, Any]:
            r = state[0] @ transposed
            r = r if recurrent_bias is None else r + recurrent_bias
            new = cell.step(now, r, state)
            return new, (new[0], r, state)

        zeros = jnp.zeros((x.shape[1], recurrent.shape[1]), x.dtype)
        _, (out, r, before) = lax.scan(step, (zeros,) * cell.states, z, reverse=backwards)
        return out, (x, kernel, recurrent, recurrent_bias, z, r, before)

    def backward(residuals: Any, grad: Any) -> tuple[Any, ...]:
        x, kernel, recurrent, recurrent_bias, z, r, before = residuals

        def step(later: State, now: Any) -> tuple[State, Any]:
            out, *at = now
            _, pull = jax.vjp(cell.step, *at)
            dz, dr, state = pull((later[0] + out, *later[1:]))
            return (state[0] + dr @ recurrent, *state[1:]), (dr,) if cell.adds else (dz, dr)

        zeros = jnp.zeros(grad.shape[1:], x.dtype)
        _, grads = lax.scan(step, (zeros,) * cell.states, (grad, z, r, before), reverse=not backwards)
        dz, dr = _rows(grads[0]), _rows(grads[-1])
        transposed = _contiguous(dz.T)
        transposed_r = transposed if cell.adds else _contiguous(dr.T)
        dx = (dz @ kernel).reshape(x.shape)
        recurrent_bias_grad = None if recurrent_bias is None else dr.sum(axis=0)
        return dx, transposed @ _rows(x), dz.sum(axis=0), transposed_r @ _rows(before[0]), recurrent_bias_grad

    run: Callable[..., Any] = jax.custom_vjp(lambda *given: forward(*given)[0])
    run.defvjp(forward, backward)  # type: ignore[attr-defined]
    return run


def _rows(x: Any) -> Any:
    """(time, rows, features) → (time·rows, features)."""
    return x.reshape(-1, x.shape[-1])


def _contiguous(transposed: Any) -> Any:
    """The same array copied to its own memory, because products with a transposed view are 10 to 30 % slower."""
    from jax import lax

    return lax.optimization_barrier(transposed)


@dataclass(frozen=True)
class Recurrent:
    """A recurrent layer: (time, features) → (time, units), or (units,) for the last output only.

    Attributes:
        kind: Type of the cell.
        units: Number of units.
        sequences: Whether to return the outputs of all time steps.
        biases: 2 with b', 1 without.
        both_ways: Whether the layer is bidirectional; outputs of the backward direction follow those of the forward
            one.
    """

    kind: Literal["simple", "lstm", "gru"]
    units: int
    sequences: bool = False
    biases: Literal[1, 2] = 1
    both_ways: bool = False

    def init(self, seed: Seed, shape: Shape, scheme: Init) -> tuple[Params, Shape]:
        """Kernels and biases, for each direction."""
        time, inputs = shape
        if self.both_ways:
            params = {way: self._one(seed.fold(way), inputs, scheme) for way in ("forward", "backward")}
        else:
            params = self._one(seed, inputs, scheme)
        width = self.units * (1 + self.both_ways)
        return params, ((time, width) if self.sequences else (width,))

    def _one(self, seed: Seed, inputs: int, scheme: Init) -> Params:
        cell, units = CELLS[self.kind], self.units
        rows = cell.gates * units

        def drawn(name: str, shape: Shape, fan_in: int) -> Any:
            return initial_kernel(seed.fold(name), shape, fan_in if scheme == "glorot" else units, rows, scheme)

        biases = ("bias", "recurrent_bias")[: self.biases]
        if scheme == "torch":
            params = {name: drawn(name, (rows,), units) for name in biases}
        else:
            params = {name: np.zeros(rows, np.float32) for name in biases}
            if cell.open is not None:
                params["bias"][cell.open * units : (cell.open + 1) * units] = 1.0
        params["kernel"] = drawn("kernel", (rows, inputs), inputs)
        params["recurrent"] = drawn("recurrent", (rows, units), units)
        return params

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The outputs of the layer."""
        import jax.numpy as jnp

        x = jnp.swapaxes(x, 0, 1)  # time first
        ways = [params["forward"], params["backward"]] if self.both_ways else [params]
        outs = [self._way(own, x, backwards=bool(way)) for way, own in enumerate(ways)]
        if self.sequences:
            return jnp.swapaxes(jnp.concatenate(outs, axis=-1), 0, 1)
        return jnp.concatenate([out[0 if way else -1] for way, out in enumerate(outs)], axis=-1)

    def _way(self, params: Any, x: Any, *, backwards: bool) -> Any:
        run = _layer(CELLS[self.kind], backwards)
        return run(x, params["kernel"], params["bias"], params["recurrent"], params.get("recurrent_bias"))


@dataclass(frozen=True)
class Embedding:
    """A learned embedding: (time,) ids → (time, width)."""

    tokens: int
    width: int

    def init(self, seed: Seed, shape: Shape, scheme: Init) -> tuple[Params, Shape]:
        """Standard normal vectors with `torch`, Glorot otherwise."""
        size = (self.tokens, self.width)
        check_size(f"An embedding of shape {size}", math.prod(size))
        if scheme == "glorot":
            vectors = initial_kernel(seed.fold("vectors"), size, self.tokens, self.width, scheme)
        else:
            u, v = seed.fold("vectors").uniform(2 * math.prod(size)).reshape(2, *size)
            vectors = (np.sqrt(-2.0 * np.log1p(-u)) * np.cos(2.0 * np.pi * v)).astype(np.float32)
        return {"vectors": vectors}, (*shape, self.width)

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The vectors of the ids."""
        import jax.numpy as jnp

        # One-hot rows instead of a gather: the gradient is a product, not a scatter. Data with thousands of tokens have
        # a fixed table of vectors instead.
        hot = (x[..., None] == jnp.arange(self.tokens, dtype=x.dtype)).astype(jnp.float32)
        return (_rows(hot) @ params["vectors"]).reshape(*x.shape, self.width)
