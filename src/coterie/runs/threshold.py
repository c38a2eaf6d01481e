"""Suggests a distance threshold for SR-FCA's ONE_SHOT step: clients train alone, then all pairs are compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from coterie.clustering import Gap
from coterie.methods import method_class, settings_of
from coterie.methods.one_shot import OneShot
from coterie.runs.build import build
from coterie.runs.record import JsonObject
from coterie.runs.resolve import fill_defaults
from coterie.runs.spec import Named, Spec
from coterie.runs.summary import cluster_agreement
from coterie.types import Array, ClientId

#: Number of bins of the histogram.
BARS = 20

#: Method for which a threshold is suggested if the method of the spec does not start with ONE_SHOT.
DEFAULT_METHOD = "srfca"


def suggest(spec: Spec, on_step: Callable[[str], None] = lambda text: None) -> JsonObject:
    """Suggest a threshold λ above the noise floor that clients measure.

    Args:
        spec: Data, model and local training. If its method starts with ONE_SHOT, the settings of ONE_SHOT are used,
            except the threshold.
        on_step: Called with a description before each step.

    Returns:
        The threshold, the clusters that it gives, and the histogram of all distances.
    """
    given = fill_defaults(
        spec if starts_with_one_shot(spec) else dataclasses.replace(spec, method=Named(DEFAULT_METHOD))
    )
    names = settings_of(OneShot)
    options = {key: value for key, value in given.method.options.items() if key in names} | {"threshold": "auto"}
    # Only ONE_SHOT is run: other settings of the method do not matter, nor the number of rounds.
    run = dataclasses.replace(given.run, rounds=max(given.run.rounds, 2))
    built = build(dataclasses.replace(given, method=Named(DEFAULT_METHOD, options), run=run))
    text = f"training {len(built.session.clients)} clients alone, comparing all pairs"
    on_step(text)
    for step in built.session.steps(1):  # ONE_SHOT is the first step; it is repeated if too few clients reply
        if step.round is not None:
            break
        on_step(text)
    assert step.round is not None
    shown = step.round.evidence
    distances = np.asarray(shown["distances"])
    gap = Gap(shown["threshold"], shown["gap"]["low"], shown["gap"]["high"])
    clusters = _clusters(shown["clients"], shown["labels"])
    placed = {client: j for j, members in enumerate(clusters) for client in members}
    return {
        "spec": built.spec.to_dict(),
        "method": given.method.name,
        "clients": len(shown["clients"]),
        "distance": options["distance"],
        "threshold": round_within_gap(gap.threshold, gap.low, gap.high),
        "gap": {"low": gap.low, "high": gap.high},
        "noise_floor": shown.get("noise_floor"),
        "clusters": clusters,
        "unassigned": sorted(set(shown["clients"]) - set(placed)),
        "truth": cluster_agreement(placed, built.truth),
        **_spread(distances),
    }


def starts_with_one_shot(spec: Spec) -> bool:
    """Whether the method of a spec starts with ONE_SHOT."""
    return issubclass(method_class(spec.method.name), OneShot)


def round_within_gap(value: float, low: float, high: float) -> float:
    """Round a value to the fewest digits, but at least three, with which it stays in the gap."""
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


def _spread(distances: Array) -> JsonObject:
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
