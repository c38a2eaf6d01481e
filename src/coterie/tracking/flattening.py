"""What trackers report: settings, metrics and summaries as flat dicts with names joined by dots."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from coterie.runs.spec import Spec

#: Keys of a line or a summary that are no metrics: settings, positions, and values per client.
_NO_METRICS = frozenset(
    {"t", "stage", "format", "seed", "assignment", "true_clusters", "flagged", "shifted", "checksums", "versions"}
)


def parameters(spec: Spec) -> dict[str, object]:
    """`section.key` → value, for all settings of a spec; lists as text."""
    return {
        f"{section}.{key}": value if isinstance(value, bool | int | float | str) else str(value)
        for section, table in spec.to_dict().items()
        for key, value in table.items()
    }


def tags(spec: Spec) -> dict[str, str]:
    """Method, data, model and seed as text."""
    return {
        "method": spec.method.name,
        "data": spec.data.name,
        "model": spec.model.name,
        "seed": str(spec.run.seed),
    }


def metrics(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a line of the record, such as `accuracy.weighted`; empty for a preparation step."""
    return dict(_numbers(row)) if row.get("stage") == "train" else {}


def final_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a summary, such as `final.accuracy.weighted_last_ten`."""
    return {f"final.{name}": value for name, value in _numbers(summary)}


def _numbers(entry: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in entry.items():
        if not prefix and key in _NO_METRICS:
            continue
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{name}.")
        elif isinstance(value, bool | int | float) and math.isfinite(value):
            yield name, float(value)
