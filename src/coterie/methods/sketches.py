"""What clients tell of themselves once, and how near they are by it: FLAG's proximity, of founders and of newcomers.

A = β V̂ + (1-β) Ĝ is found for all founders at once. A newcomer gets its row of A later, with the bounds that were found
then: w_min and w_max of (5), and the least and the largest of V and G. Beyond them it is as near or far as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.clustering import flag_data_angles, flag_proximity, update_angles
from coterie.clustering.proximity import Log, Scaling, Span, data_angles, ratio_span
from coterie.codec import state
from coterie.types import Array, ClientId


@state
@dataclass(frozen=True)
class Sketches:
    """What clients tell of themselves.

    Attributes:
        clients: Who.
        bases: U_c^i: client → class → directions as rows; None where data do not count.
        counts: n_ic, (clients, classes); None where all classes weigh alike.
        updates: Δ^i, (clients, parameters), without running statistics; None where updates do not count.
    """

    clients: tuple[ClientId, ...] = ()
    bases: tuple[list[Array], ...] | None = None
    counts: Array | None = None
    updates: Array | None = None

    @property
    def columns(self) -> list[list[Array]]:
        """U_c^i as columns."""
        return [[rows.T for rows in client] for client in self.bases or ()]


@state
@dataclass(frozen=True)
class Bounds:
    """Between what founders lie: w_min and w_max, the least and the largest of V and of G; None for what is unused."""

    ratios: Span | None = None
    data: Span | None = None
    updates: Span | None = None


@dataclass(frozen=True)
class Nearness:
    """How sketches are compared.

    Attributes:
        beta: β.
        delta: δ.
        log: Of the sizes of classes.
        scale: Which entries of V and G give the bounds.
    """

    beta: float
    delta: float
    log: Log
    scale: Scaling

    def among(self, told: Sketches) -> tuple[Array, Bounds, dict[str, Array]]:
        """A of all pairs, the bounds for those who come later, and the angles it is made of."""
        data = updates = None
        if told.bases is not None:
            data = flag_data_angles(told.columns, told.counts, delta=self.delta, log=self.log)
        if told.updates is not None:
            updates = update_angles(told.updates)
        bounds = Bounds(
            None if told.counts is None else ratio_span(told.counts, self.log),
            None if data is None else Span.of(data, self.scale),
            None if updates is None else Span.of(updates, self.scale),
        )
        angles: dict[str, Any] = {"data_angles": data, "update_angles": updates}
        shown = {name: matrix for name, matrix in angles.items() if matrix is not None}
        return flag_proximity(data, updates, self.beta, self.scale), bounds, shown

    def towards(self, told: Sketches, founders: Sketches, bounds: Bounds) -> Array:
        """The rows of A of newcomers, (newcomers, founders)."""
        near = np.zeros((len(told.clients), len(founders.clients)))
        if bounds.data is not None:
            weights = (told.counts, founders.counts, bounds.ratios)
            angles = data_angles(told.columns, founders.columns, *weights, self.delta, self.log)
            near += self.beta * bounds.data.share(angles)
        if bounds.updates is not None and told.updates is not None:
            near += (1 - self.beta) * bounds.updates.share(update_angles(told.updates, founders.updates))
        return near
