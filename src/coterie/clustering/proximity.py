"""FLAG's proximity of clients: class angles weighted by class sizes, combined with the angles of updates.

"FLAG: Clustered Federated Learning Combining Data and Gradient Information in Heterogeneous Settings", submitted to
ICLR 2025, openreview.net/forum?id=8OrXrdPbef. From V' of (3) and G of (2), which are in `angles`:

    (4)  W_ijc = max(ℓ_i, ℓ_j) / min(ℓ_i, ℓ_j),  ℓ_i = ln(n_ic + e)      n_ic: number of examples of class c of client i
    (5)  W'_ijc = (1-δ) + 2δ (W_ijc - w_min) / (w_max - w_min)
    (6)  V_ij = 1/C Σ_c V'_ijc W'_ijc
         absent by chance: V'_ijc W'_ijc ← mean of V'_ijd over the classes d that both have
         A_ij = β V̂_ij + (1-β) Ĝ_ij,   M̂ = (M - min M) / (max M - min M)

n is `counts`, δ `delta`, β `beta`, C the number of all classes, including those that neither client has.

Departures. The paper has ℓ = ln(n + ε), which is 0 for one example and negative for none, so that W would be infinite
or negative. ln(n + e) is at least 1 and approaches ln n; `log="clamped"` is ln(max(n, 2)). w_min and w_max are the
bounds over pairs i < j and classes that at least one of the two clients has; if they are equal, W' is 1. The diagonals
of V and A are 0. M̂ of a constant matrix is 0. `scale="offdiag"` takes the bounds of M̂ over i ≠ j, without the zeros
of the diagonal. V' is 180° for a class that only one of two clients has. If chance explains what a client lacks
(clustering/absent_classes.py), its absent classes say nothing, and count like the mean of the others; `by_chance` says
which clients these are, and None keeps 180° for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from coterie.clustering import array_checks
from coterie.clustering.angles import ClassBases, by_class, classes_of
from coterie.codec import state
from coterie.errors import SpecError, unknown
from coterie.types import Array

__all__ = ["Log", "Scaling", "Span", "data_angles", "flag_data_angles", "flag_proximity", "ratio_span", "size_ratios"]

Matrix = npt.NDArray[np.float64]

#: Logarithm of a class size: ln(n + e) or ln(max(n, 2)).
Log = Literal["shifted", "clamped"]

#: Entries that determine the bounds of min-max scaling: all, or those off the diagonal.
Scaling = Literal["whole", "offdiag"]

# Bounds that are mathematically equal may differ by a few bits.
_ROUNDING = 1e-12


@state
@dataclass(frozen=True)
class Span:
    """Bounds of min-max scaling, stored so that later values are scaled in the same way.

    Attributes:
        low: Lower bound.
        high: Upper bound.
    """

    low: float
    high: float

    @classmethod
    def of(cls, M: Array, scale: Scaling = "whole") -> Span:
        """The bounds of the entries of a square matrix."""
        if scale not in get_args(Scaling):
            raise SpecError(unknown("scale", scale, get_args(Scaling)))
        entries = M[~np.eye(len(M), dtype=bool)] if scale == "offdiag" and len(M) > 1 else M
        return cls(float(entries.min()), float(entries.max()))

    @property
    def flat(self) -> bool:
        """Whether the bounds are equal."""
        return self.high - self.low <= _ROUNDING * max(abs(self.low), abs(self.high))

    def share(self, values: Array) -> Matrix:
        """The values scaled to [0, 1] and clipped; zeros if the bounds are equal."""
        if self.flat:
            return np.zeros(np.shape(values))
        return np.clip((values - self.low) / (self.high - self.low), 0.0, 1.0)


def flag_data_angles(
    bases: ClassBases,
    counts: npt.ArrayLike | None = None,
    *,
    delta: float = 0.5,
    log: Log = "shifted",
    by_chance: Array | None = None,
) -> Matrix:
    """V of FLAG: weighted class angles between all pairs of clients, (clients, clients), in degrees.

    Args:
        bases: Client → class → columns that span its examples of that class, (inputs, vectors); None or a matrix
            without columns if it has none.
        counts: Number of examples of each class, (clients, classes); None: equal weights.
        delta: δ: weights are between 1 - δ and 1 + δ; 0: equal weights.
        log: Logarithm of the class sizes.
        by_chance: Whether each client lacks classes by chance, (clients,); None: none does.

    Raises:
        SpecError: If the bases or counts are invalid or do not match, or δ is not within [0, 1].
    """
    sizes = None if counts is None else _counts(counts, bases)
    span = None if sizes is None else ratio_span(sizes, log)
    chance = None if by_chance is None else (by_chance, by_chance)
    angles = data_angles(bases, bases, sizes, sizes, span, delta, log, chance)
    np.fill_diagonal(angles, 0.0)
    return angles


def flag_proximity(
    V: npt.ArrayLike | None, G: npt.ArrayLike | None, beta: float = 0.5, scale: Scaling = "whole"
) -> Matrix:
    """A of FLAG: data angles and update angles, each scaled to [0, 1] and combined, (clients, clients).

    Args:
        V: Data angles, (clients, clients); may be None if β is 0.
        G: Update angles, (clients, clients); may be None if β is 1.
        beta: β, the weight of the data angles.
        scale: Entries that determine the bounds of the scaling.

    Raises:
        SpecError: If β is not within [0, 1], or a matrix is missing, invalid or of another size.
    """
    if not 0 <= beta <= 1:
        raise SpecError(f"beta must be between 0 and 1, got {beta}")
    parts = []
    for name, values, part in (("V", V, beta), ("G", G, 1 - beta)):
        if values is None and part:
            raise SpecError(f"{name} is required if beta is {beta}")
        if part:
            matrix = array_checks.distances(values, name)  # type: ignore[arg-type]
            parts.append(part * Span.of(matrix, scale).share(matrix))
    if len({len(part) for part in parts}) > 1:
        raise SpecError(f"V and G must have the same clients, got {len(parts[0])} and {len(parts[1])}")
    mixed: Any = sum(parts)
    mixed = (mixed + mixed.T) / 2
    np.fill_diagonal(mixed, 0.0)
    result: Matrix = mixed
    return result


def data_angles(
    first: ClassBases,
    second: ClassBases,
    sizes: Array | None,
    other_sizes: Array | None,
    span: Span | None,
    delta: float,
    log: Log = "shifted",
    by_chance: tuple[Array, Array] | None = None,
) -> Matrix:
    """(6) between two sets of clients, (first, second), in degrees.

    Args:
        first: Client → class → columns, of the first set.
        second: The same for the second set.
        sizes: Class sizes of the first set, (first, classes); None: equal weights.
        other_sizes: Class sizes of the second set, (second, classes).
        span: w_min and w_max; None: equal weights. Ratios outside of them are clipped.
        delta: δ.
        log: Logarithm of the class sizes.
        by_chance: Whether the clients of each set lack classes by chance; None: none does.

    Raises:
        SpecError: If the bases are invalid or do not match, or δ is not within [0, 1].
    """
    if not 0 <= delta <= 1:
        raise SpecError(f"delta must be between 0 and 1, got {delta}")
    shape = (len(first), len(second))
    total, left, shared, n_shared, n_left = (np.zeros(shape) for _ in range(5))
    for c, angles in enumerate(by_class(first, second)):
        has, other_has = _present(first, c), _present(second, c)
        both = has[:, None] & other_has[None]
        left_out = np.zeros(shape, bool) if by_chance is None else _left_out(has, other_has, by_chance)
        shared += np.where(both, angles, 0.0)
        n_shared += both
        n_left += left_out
        weights: Array | float = 1.0
        if not (sizes is None or other_sizes is None or span is None or span.flat):
            weights = (1 - delta) + 2 * delta * span.share(size_ratios(sizes[:, c], other_sizes[:, c], log))
        weighted = angles * weights
        total += np.where(left_out, 0.0, weighted)
        left += np.where(left_out, weighted, 0.0)
    # Without a class that both have, an absent class counts in full.
    total += np.where(n_shared > 0, n_left * shared / np.maximum(n_shared, 1), left)
    return total / max(1, classes_of(first, second))


def _present(bases: ClassBases, c: int) -> npt.NDArray[np.bool_]:
    """Whether each client has directions of class c."""
    columns = (client[c] if c < len(client) else None for client in bases)
    return np.array([each is not None and np.size(each) > 0 for each in columns], np.bool_)


def _left_out(has: Array, other_has: Array, by_chance: tuple[Array, Array]) -> Array:
    """Pairs of which only one client has the class, and the other lacks it by chance."""
    lacks, other_lacks = ~has & by_chance[0], ~other_has & by_chance[1]
    found: Array = (lacks[:, None] & other_has[None]) | (has[:, None] & other_lacks[None])
    return found


def size_ratios(sizes: npt.ArrayLike, others: npt.ArrayLike, log: Log = "shifted") -> Matrix:
    """(4) for one class: the larger logarithm of two class sizes divided by the smaller, (sizes, others)."""
    if log not in get_args(Log):
        raise SpecError(unknown("log", log, get_args(Log)))
    one, two = np.asarray(sizes, np.float64)[:, None], np.asarray(others, np.float64)[None]
    one, two = (np.log(n + np.e) if log == "shifted" else np.log(np.maximum(n, 2.0)) for n in (one, two))
    ratios: Matrix = np.maximum(one, two) / np.minimum(one, two)
    return ratios


def ratio_span(counts: Array, log: Log = "shifted") -> Span:
    """The bounds w_min and w_max over all pairs i < j and the classes that at least one of the two clients has."""
    low, high = np.inf, -np.inf
    pairs = np.triu_indices(len(counts), k=1)
    for sizes in np.asarray(counts).T:
        ratios = size_ratios(sizes, sizes, log)[pairs][((sizes[:, None] > 0) | (sizes[None] > 0))[pairs]]
        if len(ratios):
            low, high = min(low, float(ratios.min())), max(high, float(ratios.max()))
    return Span(low, high) if low <= high else Span(1.0, 1.0)


def _counts(counts: npt.ArrayLike, bases: ClassBases) -> Array:
    """Validate class sizes against the bases."""
    array = np.asarray(counts)
    wanted = (len(bases), classes_of(bases))
    if array.shape != wanted:
        raise SpecError(f"counts must be (clients, classes) = {wanted}, like the bases, got shape {array.shape}")
    if array.dtype.kind not in "iuf" or not np.isfinite(array).all() or array.min(initial=0) < 0:
        raise SpecError("counts must be finite, non-negative numbers of examples")
    return array
