"""The lines below a comparison that say what its columns mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.runs.comparison_tables import partly_covered
from coterie.runs.significance import ENOUGH_SEEDS

if TYPE_CHECKING:
    from coterie.runs.comparison import Comparison


#: What the coverage of a method counts.
COVERAGE = "clients to which the method has assigned a model; the others are scored with the fallback model"


def legend(found: Comparison) -> list[str]:
    """What the columns mean: over which rounds, over how many seeds, which test, and why a p-value is missing."""
    return [*column_legend(found), *_test_legend(found)]


def column_legend(found: Comparison) -> list[str]:
    """What the columns of scores mean: over which rounds, and over how many seeds."""
    seeds = max(row["seeds"] for row in found.table)
    over = f"; mean ± standard deviation over {seeds} seeds" if seeds > 1 else ""
    rounds = _when(found) if found.headline == "test_loss" else _rounds(found)
    lines = [f"{_name(found.headline)}: {rounds}{over}."]
    if partly_covered(found):
        lines.append(f"coverage: {COVERAGE}.")
    return lines


def _test_legend(found: Comparison) -> list[str]:
    """Which test the p-values are of, and why one is missing."""
    seeds = max(row["seeds"] for row in found.table)
    if seeds < 2 or not found.significance:
        return []
    lines = []
    tests = [test for test in found.significance.values() if test["t_test"] is not None]
    if tests:
        corrected = f", with Holm's correction for {len(tests)} tests" if len(tests) > 1 else ""
        better = f"{_name(found.headline)} is {'higher' if found.higher_is_better else 'lower'}"
        lines.append(f"p: paired one-sided t-test that this {better} than that of {found.reference}{corrected}.")
        if seeds < ENOUGH_SEEDS:
            lines.append(f"With {seeds} seeds, p means little; use at least {ENOUGH_SEEDS} (--seeds {ENOUGH_SEEDS}).")
    reasons: dict[str, list[str]] = {}
    for label, test in found.significance.items():
        if test["no_p"] is not None:
            reasons.setdefault(test["no_p"], []).append(label)
    return lines + [f"No p for {', '.join(labels)}: {reason}." for reason, labels in reasons.items()]


def _name(headline: str) -> str:
    """The headline in words."""
    return {"last_ten": "accuracy", "test_loss": "test loss"}.get(headline, headline)


def _when(found: Comparison) -> str:
    """Of which models the test loss is."""
    earlier = any(record.served_step is not None for group in found.records.values() for record in group)
    return "of the models that are served" if earlier else "after the last round"


def _rounds(found: Comparison) -> str:
    """Over which rounds the headline is a mean."""
    counts = {record.summary["rounds"] for group in found.records.values() for record in group}
    if min(counts) >= 10:
        return "mean of the last ten rounds"
    if len(counts) > 1:
        return "mean of the last ten rounds, or of all rounds of shorter runs"
    (count,) = counts
    return "after the only round" if count <= 1 else f"mean of all {count} rounds"
