"""The lines below a comparison that say what its columns mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.runs.comparison_tables import partly_covered
from coterie.runs.significance import ENOUGH_SEEDS

if TYPE_CHECKING:
    from coterie.runs.comparison import Comparison


def legend(found: Comparison) -> list[str]:
    """What the columns mean: over which rounds, over how many seeds, which test, and why a p-value is missing."""
    seeds = max(row["seeds"] for row in found.table)
    over = f"; mean ± standard deviation over {seeds} seeds" if seeds > 1 else ""
    rounds = "after the last round" if found.headline == "test_loss" else _rounds(found)
    lines = [f"{_name(found.headline)}: {rounds}{over}."]
    if partly_covered(found):
        lines.append("coverage: clients with a model of their own; the others are scored with the fallback model.")
    if seeds < 2 or not found.significance:
        return lines
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


def _rounds(found: Comparison) -> str:
    """Over which rounds the headline is a mean."""
    counts = {record.summary["rounds"] for group in found.records.values() for record in group}
    if min(counts) >= 10:
        return "mean of the last ten rounds"
    if len(counts) > 1:
        return "mean of the last ten rounds, or of all rounds of shorter runs"
    (count,) = counts
    return "after the only round" if count <= 1 else f"mean of all {count} rounds"
