"""FLAG's sketches: what each client sends once about its data and its update; and the proximity computed from them.

    U_c^i, n_ic     the class subspaces of client i, and its class sizes        `bases`, `counts`
    Δ^i             its update from the common initial model                   `updates`
    A = β V̂ + (1-β) Ĝ                                                           `Proximity`, by clustering/proximity.py

A is computed for all initial clients at once. A newcomer gets its row of A later, scaled by the ranges of the initial
clients: w_min and w_max of (5), and the smallest and largest values of V and G. Values outside a range count as its
nearest end.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass

import numpy as np

from coterie import tree
from coterie.clients import LocalSGD
from coterie.clients.class_subspaces import Subspaces, class_subspaces, counted_subspaces
from coterie.clients.directions import update
from coterie.clustering import flag_data_angles, flag_proximity, update_angles
from coterie.clustering.absent_classes import class_shares, lacks_by_chance
from coterie.clustering.proximity import Log, Scaling, Span, data_angles, ratio_span
from coterie.codec import state
from coterie.federation.protocol import Cached, Cohort, Federation
from coterie.methods.cluster_training import Clients, subset
from coterie.models import trainable
from coterie.seeds import Seed
from coterie.types import Array, ClientId, Params

log = logging.getLogger(__name__)

# Share of clients that lack a class which most clients have, above which a warning is shown.
_MANY = 0.1


@state
@dataclass(frozen=True)
class Sketches:
    """The sketches of several clients.

    Attributes:
        clients: The clients.
        bases: U_c^i: client → class → directions as rows; None where data are not compared.
        counts: n_ic, (clients, classes); None where all classes have the same weight.
        updates: Δ^i, (clients, parameters), without running statistics; None where updates are not compared.
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
class Ranges:
    """The ranges among the initial clients: of size ratios (w_min, w_max), of V and of G; and their class shares.

    None for unused ones.
    """

    ratios: Span | None = None
    data: Span | None = None
    updates: Span | None = None
    shares: Array | None = None


@dataclass(frozen=True)
class SketchRequest:
    """What clients are asked for.

    Attributes:
        updates: Local training for Δ^i; None to ask for no updates.
        subspaces: Settings of U_c^i; None to ask for no subspaces.
        counted: Whether class sizes are sent with the subspaces.
    """

    updates: LocalSGD | None
    subspaces: Subspaces | None
    counted: bool

    def ask(
        self, w0: Params, fed: Federation, clients: Clients, seed: Seed, min_replies: int | None = None
    ) -> Sketches:
        """The sketches of the clients that reply to all requests; stragglers do the full work."""
        asked = dataclasses.replace(clients, efforts={}) if isinstance(clients, Cohort) else clients
        updates = bases = counts = None
        # Updates first: evaluation never trains, and a client without an update needs no subspaces either.
        if self.updates is not None:
            got = fed.ask(
                asked, update, seed.fold("updates"), min_replies=min_replies, w0=Cached(w0), local=self.updates
            )
            updates = {client: tree.flatten(trainable(each)) for client, each in got.by_client("update").items()}
            asked = subset(asked, updates)
        complete = tuple(asked)
        if self.subspaces is not None and complete:
            work = counted_subspaces if self.counted else class_subspaces
            got = fed.ask(asked, work, seed.fold("subspaces"), how=self.subspaces, min_replies=min_replies)
            complete, bases = got.clients, tuple(got["bases"])
            counts = got["counts"] if self.counted else None
        moved = None if updates is None or not complete else np.stack([updates[client] for client in complete])
        return Sketches(complete, bases, counts, moved)


@dataclass(frozen=True)
class Proximity:
    """How sketches are compared.

    Attributes:
        beta: β, the share of the data angles.
        delta: δ, the largest difference of a class weight from 1.
        log: Logarithm of class sizes.
        scale: The entries of V and G that give their ranges.
        chance: Whether classes that a client lacks by chance are left out; needs class sizes.
    """

    beta: float
    delta: float
    log: Log
    scale: Scaling
    chance: bool = True

    def all_pairs(self, sketches: Sketches) -> tuple[Array, Ranges, dict[str, Array]]:
        """A of the initial clients, the ranges for newcomers, and the angles for the record."""
        data = updates = shares = None
        if sketches.bases is not None:
            shares = class_shares(sketches.counts) if self.chance and sketches.counts is not None else None
            by_chance = self._by_chance(sketches, shares)
            data = flag_data_angles(
                sketches.columns, sketches.counts, delta=self.delta, log=self.log, by_chance=by_chance
            )
        if sketches.updates is not None:
            updates = update_angles(sketches.updates)
        ranges = Ranges(
            None if sketches.counts is None else ratio_span(sketches.counts, self.log),
            None if data is None else Span.of(data, self.scale),
            None if updates is None else Span.of(updates, self.scale),
            shares,
        )
        angles = {"data_angles": data, "update_angles": updates}
        shown = {name: matrix for name, matrix in angles.items() if matrix is not None}
        return flag_proximity(data, updates, self.beta, self.scale), ranges, shown

    def of_newcomers(self, newcomers: Sketches, initial: Sketches, ranges: Ranges) -> Array:
        """The rows of A of newcomers, (newcomers, initial clients)."""
        proximity = np.zeros((len(newcomers.clients), len(initial.clients)))
        if ranges.data is not None:
            weights = (newcomers.counts, initial.counts, ranges.ratios)
            chances = [self._by_chance(each, ranges.shares) for each in (newcomers, initial)]
            both = None if chances[0] is None or chances[1] is None else (chances[0], chances[1])
            angles = data_angles(newcomers.columns, initial.columns, *weights, self.delta, self.log, both)
            proximity += self.beta * ranges.data.share(angles)
        if ranges.updates is not None and newcomers.updates is not None:
            angles = update_angles(newcomers.updates, initial.updates)
            proximity += (1 - self.beta) * ranges.updates.share(angles)
        return proximity

    def _by_chance(self, sketches: Sketches, shares: Array | None) -> Array | None:
        """Whether each client lacks classes by chance; None if it is not asked for, or class sizes are not known."""
        if shares is None or sketches.counts is None:
            return None
        return lacks_by_chance(sketches.counts, shares)


def warn_about_absent_classes(sketches: Sketches) -> None:
    """Log a warning if many clients lack a class that most clients have: it counts as 180°."""
    if sketches.bases is None or not sketches.clients:
        return
    classes = max(len(client) for client in sketches.bases)
    has = np.array([[c < len(client) and len(client[c]) > 0 for c in range(classes)] for client in sketches.bases])
    share = float((~has[:, has.mean(axis=0) > 0.5]).any(axis=1).mean())
    if share > _MANY:
        log.warning(
            "flag: %.0f%% of the clients lack a class that most clients have. It counts as 180°, which may outweigh "
            "all other differences; with class counts (method.privacy = false, method.delta > 0) and method.absent = "
            "'chance', classes that are missing by chance are left out",
            100 * share,
        )
