"""`BestModel` keeps the models of the round that is best on validation examples (`run.final_model = "best"`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from coterie.runs.client_results import ClientResults
from coterie.runs.early_stopping import primary_value
from coterie.runs.record import JsonObject


class BestModel:
    """What a run serves if it ends with its best round.

    Attributes:
        kept: Of the best evaluation so far: `step`, its position in `rounds.jsonl`; `served`, the models and who is
            served which; `session`, the method's `state` and the number of rounds `t`, with which newcomers are placed.
            None before the first round was evaluated, and for methods whose clients adapt the model: what they made of
            it later cannot be taken back.
        results: Test results of each client in that evaluation; None if the record has them.
    """

    def __init__(
        self,
        metric: str,
        *,
        higher: bool,
        rows: Iterable[JsonObject] = (),
        kept: Mapping[str, Any] | None = None,
    ) -> None:
        """Start, or continue after some lines of a record.

        Args:
            metric: The primary metric.
            higher: Whether a higher value is better.
            rows: Lines of the record so far.
            kept: What was kept of the best of them.
        """
        self._metric, self._higher = metric, higher
        self._best: float | None = None
        self._begun = False
        self.kept = kept
        self.results: ClientResults | None = None
        for row in rows:
            self.improves(row)

    def improves(self, row: JsonObject) -> bool:
        """Take note of a line; returns whether its evaluation is the best so far.

        Evaluations before the first round do not count; those of preparation steps after a round do.
        """
        self._begun = self._begun or row.get("stage") == "train"
        value = primary_value(row.get("validation") or {}, self._metric)
        if not self._begun or value is None:
            return False
        if self._best is not None and not (value > self._best if self._higher else value < self._best):
            return False
        self._best = value
        return True

    def keep(
        self, step: int, served: Mapping[str, Any], session: Mapping[str, Any], results: ClientResults | None
    ) -> None:
        """Keep the models of an evaluation; see the attributes."""
        adapted = bool(served["adapted"])
        self.kept = None if adapted else {"step": step, "served": dict(served), "session": dict(session)}
        self.results = None if adapted else results
