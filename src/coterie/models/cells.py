"""Recurrent cells, and the layers made of them.

What the inputs x bring to the gates does not depend on the state h, so it is one product over all time steps before the
loop over time; in the loop there is one product a step, for all gates at once:

    z_t = K x_t + b           (`kernel`, `bias`), all t at once
    r_t = R h_{t-1} + b'      (`recurrent`, `recurrent_bias`; some nets have no b')

    simple    h_t = tanh(z + r)
    LSTM      i, f, o = σ(z + r),  g = tanh(z + r),  c_t = f c_{t-1} + i g,  h_t = o tanh(c_t)
    GRU       q, u = σ(z + r),  n = tanh(z + q r),  h_t = u h_{t-1} + (1 - u) n

The gates lie below each other in K, R, b and b': i, f, g, o and q, u, n, as in PyTorch. The GRU resets after the
product, so that b' is not redundant, as in Keras by default and in PyTorch.

Backwards, too, the loop has one product a step; the gradient of R is a single product after it. By JAX's own
derivative, which adds to a matrix as large as R at each step, a step of `char-lstm` took 1.5 times as long.

Kernels start as the papers' frameworks have it: `glorot` with zero biases, but 1 for the forget gate f (TensorFlow and
Keras both), or PyTorch's, where everything is uniform in ±1/sqrt(units). Keras draws R orthogonal; here it is Glorot's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from coterie.models.layers import Context, Init, Shape, start
from coterie.seeds import Seed
from coterie.types import Params

#: h alone, or h and c.
State = tuple[Any, ...]


@dataclass(frozen=True)
class Cell:
    """A recurrent cell.

    Attributes:
        gates: How many times `units` rows K and R have.
        states: How many arrays it carries from step to step; the first is its output.
        step: (z, r, state) → state.
        adds: Whether z and r occur as their sum only, so that their slopes are the same.
        open: The gate whose bias starts at 1; None for none.
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

    # σ of all gates, of g too where it is not wanted: of slices, a third of the speed.
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
    """(x, K, b, R, b') → h at all time steps: (time, rows, units) from (time, rows, inputs); from the end if backwards.

    b' may be None.
    """
    import jax
    from jax import lax
    from jax import numpy as jnp

    def forward(x: Any, kernel: Any, bias: Any, recurrent: Any, late: Any) -> tuple[Any, Any]:
        z = (_rows(x) @ kernel.T + bias).reshape(*x.shape[:2], -1)
        turned = _laid_out(recurrent.T)

        def step(state: State, now: Any) -> tuple[State, Any]:
            r = state[0] @ turned
            r = r if late is None else r + late
            new = cell.step(now, r, state)
            return new, (new[0], r, state)

        nothing = jnp.zeros((x.shape[1], recurrent.shape[1]), x.dtype)
        _, (out, r, before) = lax.scan(step, (nothing,) * cell.states, z, reverse=backwards)
        return out, (x, kernel, recurrent, late, z, r, before)

    def backward(kept: Any, slope: Any) -> tuple[Any, ...]:
        x, kernel, recurrent, late, z, r, before = kept

        def step(later: State, now: Any) -> tuple[State, Any]:
            out, *at = now
            _, pull = jax.vjp(cell.step, *at)
            dz, dr, state = pull((later[0] + out, *later[1:]))
            return (state[0] + dr @ recurrent, *state[1:]), (dr,) if cell.adds else (dz, dr)

        nothing = jnp.zeros(slope.shape[1:], x.dtype)
        _, slopes = lax.scan(step, (nothing,) * cell.states, (slope, z, r, before), reverse=not backwards)
        dz, dr = _rows(slopes[0]), _rows(slopes[-1])
        turned = _laid_out(dz.T)
        turned_r = turned if cell.adds else _laid_out(dr.T)
        dx = (dz @ kernel).reshape(x.shape)
        late_slope = None if late is None else dr.sum(axis=0)
        return dx, turned @ _rows(x), dz.sum(axis=0), turned_r @ _rows(before[0]), late_slope

    run: Callable[..., Any] = jax.custom_vjp(lambda *given: forward(*given)[0])
    run.defvjp(forward, backward)  # type: ignore[attr-defined]
    return run


def _rows(x: Any) -> Any:
    """All time steps below each other."""
    return x.reshape(-1, x.shape[-1])


def _laid_out(turned: Any) -> Any:
    """The same, laid out anew in memory: a product with it takes a tenth to a third less than with a view."""
    from jax import lax

    return lax.optimization_barrier(turned)


@dataclass(frozen=True)
class Recurrent:
    """A recurrent layer: (time, features) → (time, units), or (units,), its last output.

    Attributes:
        kind: Which cell.
        units: How many.
        sequences: Whether to give the outputs of all time steps.
        biases: 2 with b', 1 without.
        both_ways: Whether another one goes from the end to the beginning; its outputs stand after those of the first.
    """

    kind: Literal["simple", "lstm", "gru"]
    units: int
    sequences: bool = False
    biases: Literal[1, 2] = 1
    both_ways: bool = False

    def init(self, seed: Seed, shape: Shape, how: Init) -> tuple[Params, Shape]:
        """Kernels and biases, for each direction where there are two."""
        time, inputs = shape
        if self.both_ways:
            params = {way: self._one(seed.fold(way), inputs, how) for way in ("forward", "backward")}
        else:
            params = self._one(seed, inputs, how)
        width = self.units * (1 + self.both_ways)
        return params, ((time, width) if self.sequences else (width,))

    def _one(self, seed: Seed, inputs: int, how: Init) -> Params:
        cell, units = CELLS[self.kind], self.units
        rows = cell.gates * units

        def drawn(name: str, shape: Shape, fan_in: int) -> Any:
            return start(seed.fold(name), shape, fan_in if how == "glorot" else units, rows, how)

        biases = ("bias", "recurrent_bias")[: self.biases]
        if how == "torch":
            params = {name: drawn(name, (rows,), units) for name in biases}
        else:
            params = {name: np.zeros(rows, np.float32) for name in biases}
            if cell.open is not None:
                params["bias"][cell.open * units : (cell.open + 1) * units] = 1.0
        params["kernel"] = drawn("kernel", (rows, inputs), inputs)
        params["recurrent"] = drawn("recurrent", (rows, units), units)
        return params

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The outputs."""
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
    """A vector that is learned for each token: (time,) ids → (time, width)."""

    tokens: int
    width: int

    def init(self, seed: Seed, shape: Shape, how: Init) -> tuple[Params, Shape]:
        """Standard normal numbers, as PyTorch has it; Glorot's otherwise."""
        size = (self.tokens, self.width)
        if how == "glorot":
            vectors = start(seed.fold("vectors"), size, self.tokens, self.width, how)
        else:
            u, v = seed.fold("vectors").uniform(2 * math.prod(size)).reshape(2, *size)
            vectors = (np.sqrt(-2.0 * np.log1p(-u)) * np.cos(2.0 * np.pi * v)).astype(np.float32)
        return {"vectors": vectors}, (*shape, self.width)

    def apply(self, params: Any, x: Any, context: Context, name: str, stats: Any) -> Any:
        """The vectors."""
        import jax.numpy as jnp

        # One-hot rows instead of a gather: its gradient is a product, not a scatter. For tokens by the thousand, data
        # hold a table of vectors that nobody learns.
        hot = (x[..., None] == jnp.arange(self.tokens, dtype=x.dtype)).astype(jnp.float32)
        return (_rows(hot) @ params["vectors"]).reshape(*x.shape, self.width)
