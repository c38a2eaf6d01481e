"""A threshold for ONE_SHOT from the data: everyone trains alone once, and the distances of all pairs are looked at."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from coterie.clustering import widest_gap
from coterie.methods import method_class, settings_of
from coterie.methods.one_shot import OneShot
from coterie.runs.build import build
from coterie.runs.spec import Named, Spec, resolve
from coterie.runs.summary import against
from coterie.types import Array, ClientId

#: Bars of the histogram.
BARS = 20

#: The method that a threshold is for, where a spec names none that begins with ONE_SHOT.
USUAL = "srfca"


def suggest(spec: Spec, on_step: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """λ in the widest gap, the clusters that it gives, and the histogram of all distances.

    Args:
        spec: Data, model and local training; of a method that begins with ONE_SHOT, its settings of that but for the
            threshold.
        on_step: Called with a text before each step.
    """
    given = resolve(spec if begins(spec) else dataclasses.replace(spec, method=Named(USUAL)))
    names = settings_of(OneShot)
    options = {key: value for key, value in given.method.options.items() if key in names} | {"threshold": "gap"}
    # The rest of a method, and whether the run has rounds enough for it, are of no account here.
    run = dataclasses.replace(given.run, rounds=max(given.run.rounds, 2))
    built = build(dataclasses.replace(given, method=Named(USUAL, options), run=run))
    step = None
    while step is None or step.round is None:  # where too few answered, ONE_SHOT is tried again
        on_step(f"training {len(built.session.clients)} clients alone, comparing all pairs")
        step = built.session.step()
    shown = step.round.evidence
    distances = np.asarray(shown["distances"])
    gap = widest_gap(distances, options["min_size"])
    clusters = _clusters(shown["clients"], shown["labels"])
    placed = {client: j for j, members in enumerate(clusters) for client in members}
    return {
        "spec": built.spec.to_dict(),
        "method": given.method.name,
        "clients": len(shown["clients"]),
        "distance": options["distance"],
        "threshold": shorter(gap.threshold, gap.low, gap.high),
        "gap": {"low": gap.low, "high": gap.high},
        "clusters": clusters,
        "unassigned": sorted(set(shown["clients"]) - set(placed)),
        "truth": against(placed, built.truth),
        **_spread(distances),
    }


def begins(spec: Spec) -> bool:
    """Whether the method of a spec begins with ONE_SHOT."""
    return issubclass(method_class(spec.method.name), OneShot)


def shorter(value: float, low: float, high: float) -> float:
    """The number of fewest digits, from three on, that lies in a gap as this one does."""
    for digits in range(3, 17):
        short = float(f"{value:.{digits}g}")
        if low <= short < high:
            return short
    return value


def _clusters(clients: list[ClientId], labels: Array) -> list[list[ClientId]]:
    members: Mapping[int, list[ClientId]] = {j: [] for j in range(int(labels.max()) + 1)}
    for client, label in zip(clients, labels.tolist(), strict=True):
        if label >= 0:
            members[label].append(client)
    return list(members.values())


def _spread(distances: Array) -> dict[str, Any]:
    pairs = distances[np.triu_indices(len(distances), k=1)]
    counts, edges = np.histogram(pairs, BARS)
    bars = [
        {"from": float(low), "to": float(high), "pairs": int(count)}
        for low, high, count in zip(edges, edges[1:], counts, strict=False)
    ]
    spread = {"pairs": len(pairs), "min": pairs.min(), "median": np.median(pairs), "max": pairs.max()}
    return {
        "distances": {key: value if key == "pairs" else float(value) for key, value in spread.items()},
        "histogram": bars,
    }
