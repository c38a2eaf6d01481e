"""`Study`: the trials of a search, the best settings, and the result of the test."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.errors import RecordError
from coterie.notebooks import html_table
from coterie.runs.record import JsonObject, RunRecord
from coterie.runs.significance import paths
from coterie.runs.spec import Spec
from coterie.runs.summary import number_at

if TYPE_CHECKING:
    import pandas

#: Primary metric → headline of a comparison; other metrics have the same name.
_HEADLINES = {"accuracy": "last_ten", "loss": "test_loss"}


@dataclass(frozen=True, repr=False)
class Study:
    """The result of `tune`.

    Attributes:
        rows: One dict per trial: `number`, `state` (`complete`, `pruned`, `failed`), `score` on validation examples,
            `rounds`, `seconds`, `reason`, and each searched setting by its name.
        best_spec: The spec with the best settings.
        best_values: Searched setting → its best value.
        best_score: Score of the best trial on validation examples.
        metric: The primary metric, which is the score: accuracy and other metrics as the mean of the last ten rounds,
            `loss` after the last round.
        higher_is_better: Whether a higher score is better.
        importance: Searched setting → share of the variation of the scores that it explains; empty if it is not known.
        test: Record of one run of `best_spec` with another seed on the test examples; None if it was not run.
        path: File of the study; None: it is not stored.
        optuna_study: The study of Optuna, for its own plots and analyses.
    """

    rows: list[JsonObject]
    best_spec: Spec
    best_values: Mapping[str, object]
    best_score: float
    metric: str
    higher_is_better: bool
    importance: Mapping[str, float] = field(default_factory=dict)
    test: RunRecord | None = None
    path: Path | None = None
    optuna_study: Any = None

    @property
    def trials(self) -> pandas.DataFrame:
        """The trials as a pandas DataFrame."""
        try:
            import pandas
        except ImportError as fault:
            raise RecordError("Study.trials needs pandas: pip install 'coterie[table]'; Study.rows does not") from fault
        return pandas.DataFrame(self.rows).set_index("number")

    @property
    def test_score(self) -> float | None:
        """Score of the test on test examples, by the same rule; None if it was not run."""
        return None if self.test is None else score_of(self.test.summary, self.metric)

    def to_dict(self) -> JsonObject:
        """Return the JSON object that `coterie tune --json` prints."""
        return {
            "trials": self.rows,
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "best": {"values": dict(self.best_values), "score": self.best_score, "spec": self.best_spec.to_dict()},
            "importance": dict(self.importance),
            "test": None if self.test is None else {"score": self.test_score, **self.test.summary},
            "study": None if self.path is None else str(self.path),
        }

    def __repr__(self) -> str:
        """Short: the number of trials, the best score and its settings."""
        values = ", ".join(f"{name}={value}" for name, value in self.best_values.items())
        return f"Study({len(self.rows)} trials, best {self.metric} {self.best_score:.4g} with {values})"

    def _repr_html_(self) -> str:
        """The trials, for notebooks."""
        columns = list(self.rows[0]) if self.rows else []
        return html_table(columns, [[row[column] for column in columns] for row in self.rows])


def score_of(summary: JsonObject, metric: str) -> float | None:
    """The score of a run, as `compare` takes it: the mean of the last ten rounds, or the loss after the last round.

    Args:
        summary: Summary of the run.
        metric: The primary metric.

    Returns:
        The score; None if the metric is not defined, or not finite.
    """
    path, _ = paths(_HEADLINES.get(metric, metric))
    return finite(number_at(summary, path))


def finite(value: float | None) -> float | None:
    """A number as a score; None for infinity and NaN, which Optuna refuses."""
    return float(value) if value is not None and math.isfinite(value) else None
