"""Named seeds: every random draw of a run has its own seed, such as `seed.fold("round", t).fold("client", id)`.

A seed has 128 bits. Folding in a name gives another, independent seed. A draw therefore depends on its name and not on
earlier draws: simulated, networked and resumed runs draw the same numbers, and a new draw does not change the others.
Draws are made from the raw words of the Philox counter generator, which are fixed by its definition; NumPy may change
the streams of `Generator` between versions.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from coterie.errors import SpecError

T = TypeVar("T")

_MASK = (1 << 128) - 1
_ZEROS = np.zeros(4, np.uint64)


class _PerThread(threading.local):
    """One generator per thread, reset for each draw: creating a new one takes five times as long."""

    def __init__(self) -> None:
        self.philox = np.random.Philox(key=0)


_PER_THREAD = _PerThread()


@dataclass(frozen=True)
class Seed:
    """A named source of randomness; `Seed(0)` is the root of a run."""

    value: int

    def __post_init__(self) -> None:
        """Validate the value: a whole number from 0 to 2¹²⁸ - 1."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | np.integer):
            raise TypeError(f"A seed must be a whole number, got {self.value!r}")
        if not 0 <= self.value <= _MASK:
            raise SpecError(f"A seed must be between 0 and 2**128 - 1, got {self.value}")

    def fold(self, *names: str | int) -> Seed:
        """Derive an independent seed by name."""
        digest = hashlib.blake2b(int(self.value).to_bytes(16, "little"), digest_size=16)
        for name in names:
            # Type and length are included: ("a", "b") differs from ("ab",), and "1" from 1.
            text = str(name).encode()
            digest.update(f"{'s' if isinstance(name, str) else 'i'}{len(text)}:".encode() + text)
        return Seed(int.from_bytes(digest.digest(), "little"))

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """The first `count` raw 64-bit words of this seed's stream."""
        philox = _PER_THREAD.philox
        key = np.frombuffer(int(self.value).to_bytes(16, "little"), "<u8")
        philox.state = {
            "bit_generator": "Philox",
            "state": {"counter": _ZEROS, "key": key},
            "buffer": _ZEROS,
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }
        return philox.random_raw(count)

    def uniform(self, count: int) -> npt.NDArray[np.float64]:
        """Uniform random numbers in [0, 1), with 53 bits each."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def integer(self, n: int) -> int:
        """A uniform random integer in 0..n-1."""
        if n < 1:
            raise ValueError(f"Cannot draw an integer below {n}; the limit must be at least 1")
        return _scaled(self.words(1)[0], n)

    def permutation(self, n: int) -> npt.NDArray[np.int64]:
        """A random order of 0..n-1: the stable argsort of raw words."""
        return np.argsort(self.words(n), kind="stable")

    def permutations(self, times: int, n: int) -> npt.NDArray[np.int64]:
        """Independent random orders of 0..n-1: (times, n)."""
        return np.argsort(self.words(times * n).reshape(times, n), axis=1, kind="stable")

    def sample(self, n: int, size: int) -> list[int]:
        """`size` distinct integers in 0..n-1, in the order drawn; the cost does not depend on n."""
        if not 0 <= size <= n:
            raise ValueError(f"Cannot draw {size} of {n} without replacement")
        moved: dict[int, int] = {}  # a Fisher-Yates shuffle that stores only the changed positions
        drawn = []
        for position, word in enumerate(self.words(size)):
            other = position + _scaled(word, n - position)
            drawn.append(moved.get(other, other))
            moved[other] = moved.get(position, position)
        return drawn

    def weighted_sample(self, weights: Sequence[float] | npt.NDArray[Any], size: int) -> list[int]:
        """`size` distinct positions, drawn one after another with probability proportional to their weights.

        Positions of weight 0 are never drawn. If fewer than `size` positions have a positive weight, all of these are
        returned.
        """
        weight = np.asarray(weights, dtype=np.float64)
        if not np.isfinite(weight).all() or (weight < 0).any():
            raise ValueError("Weights of a draw must be finite and at least 0")
        if size < 0:
            raise ValueError(f"Cannot draw {size} of {len(weight)} without replacement")
        eligible = np.flatnonzero(weight)
        # Efraimidis and Spirakis: the largest values of u^(1/w), that is, the smallest values of -log(u)/w.
        with np.errstate(over="ignore"):  # the key of a tiny weight is infinite and is sorted last
            keys = -np.log1p(-self.uniform(len(weight))[eligible]) / weight[eligible]
        return [int(i) for i in eligible[np.argsort(keys, kind="stable")[:size]]]

    def generator(self) -> np.random.Generator:
        """A NumPy generator, for the normal and other distributions of synthetic data."""
        return np.random.Generator(np.random.Philox(key=int(self.value)))

    def key(self) -> npt.NDArray[np.uint32]:
        """A key for `jax.random`: the two words of a threefry key."""
        return self.words(1).view(np.uint32)


def _scaled(word: np.uint64, n: int) -> int:
    """Scale a 64-bit word to an integer in 0..n-1."""
    return int(word) * n >> 64
