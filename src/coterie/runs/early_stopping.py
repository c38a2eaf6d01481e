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


def best_rounds(rows: Sequence[JsonObject], places: Mapping[int, int], metric: str, *, higher: bool) -> JsonObject:
    """The best round by validation examples, with its test score; and, for comparison with papers, by test examples.

    Args:
        rows: The lines of the record.
        places: Round → position of its last evaluation.
        metric: The primary metric.
        higher: Whether a higher value is better.

    Returns:
        `best_round`: `t`, `metric`, `validation`, `test`; `best_round_on_test`: `t`, `metric`, `test`. Each is None if
        no round has such a score. Of equal rounds the first is taken.
    """
    test = {t: primary_value(rows[place], metric) for t, place in places.items()}
    validation = {t: primary_value(rows[place].get("validation") or {}, metric) for t, place in places.items()}
    by_validation, by_test = (_best(values, higher=higher) for values in (validation, test))
    return {
        "best_round": None
        if by_validation is None
        else {
            "t": by_validation,
            "metric": metric,
            "validation": validation[by_validation],
            "test": test[by_validation],
        },
        "best_round_on_test": None if by_test is None else {"t": by_test, "metric": metric, "test": test[by_test]},
    }


def _best(values: Mapping[int, float | None], *, higher: bool) -> int | None:
    known = {t: value for t, value in values.items() if value is not None}
    sign = -1 if higher else 1
    return min(known, key=lambda t: (sign * known[t], t), default=None)
