"""The primary metric of an evaluation, early stopping, and the best round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coterie.runs.record import JsonObject


def primary_value(entry: Mapping[str, Any], metric: str) -> float | None:
    """The value of a metric over all clients, in a line, a summary or their entry `validation`; None without one."""
    if metric == "accuracy" and "accuracy" in entry:
        return (entry["accuracy"] or {}).get("weighted")
    if metric == "loss":
        value: float | None = entry.get("test_loss", entry.get("loss"))
        return value
    return ((entry.get("metrics") or {}).get(metric) or {}).get("value")


class EarlyStopping:
    """Decides when a run ends because validation has not improved.

    Attributes:
        stopped: Whether the last `patience` evaluations were all no better than one before them.
    """

    def __init__(self, patience: int, metric: str, *, higher: bool, rows: Iterable[JsonObject] = ()) -> None:
        """Start, or continue after some lines of a record.

        Args:
            patience: Number of evaluations of rounds without improvement after which the run ends; 0: it never does.
            metric: The primary metric.
            higher: Whether a higher value is better.
            rows: Lines of the record so far.
        """
        self._patience, self._metric, self._higher = patience, metric, higher
        self._best: float | None = None
        self._without = 0
        for row in rows:
            self.see(row)

    @property
    def stopped(self) -> bool:
        """Whether the run ends."""
        return 0 < self._patience <= self._without

    def see(self, row: JsonObject) -> None:
        """Take note of a line; only evaluations of rounds count."""
        if row["stage"] != "train" or row.get("validation") is None:
            return
        value = primary_value(row["validation"], self._metric)
        if value is not None and (self._best is None or self._is_better(value, self._best)):
            self._best, self._without = value, 0
        else:
            self._without += 1

    def _is_better(self, one: float, other: float) -> bool:
        return one > other if self._higher else one < other


def best_rounds(
    rows: Sequence[JsonObject], places: Sequence[tuple[int, int]], metric: str, *, higher: bool
) -> JsonObject:
    """The best round by validation examples, with its test score; and, for comparison with papers, by test examples.

    Args:
        rows: The lines of the record.
        places: Round and position of each evaluation.
        metric: The primary metric.
        higher: Whether a higher value is better.

    Returns:
        `best_round`: `t`, `step` (the position), `metric`, `validation`, `test`; `best_round_on_test`: `t`, `metric`,
        `test`. Each is None if no round has such a score. Of equal evaluations the first is taken.
    """
    test = {place: primary_value(rows[place], metric) for _, place in places}
    validation = {place: primary_value(rows[place].get("validation") or {}, metric) for _, place in places}
    rounds = {place: t for t, place in places}
    chosen, paper = (_best(values, higher=higher) for values in (validation, test))
    return {
        "best_round": None
        if chosen is None
        else {
            "t": rounds[chosen],
            "step": chosen,
            "metric": metric,
            "validation": validation[chosen],
            "test": test[chosen],
        },
        "best_round_on_test": None if paper is None else {"t": rounds[paper], "metric": metric, "test": test[paper]},
    }


def _best(values: Mapping[int, float | None], *, higher: bool) -> int | None:
    known = {place: value for place, value in values.items() if value is not None}
    sign = -1 if higher else 1
    return min(known, key=lambda place: (sign * known[place], place), default=None)
