"""The results of an entry: measured values beside published ones, with difference and standard error over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coterie.errors import Error, RecordError
from coterie.reproduce.claims import Verdict, check
from coterie.reproduce.measures import Sample, over_rounds
from coterie.reproduce.planning import Plan, PlannedCell
from coterie.reproduce.running import Outcome, Probe
from coterie.runs.record import JsonObject, RunRecord, read_summary


@dataclass(frozen=True)
class CellResult:
    """A cell with its measured values.

    Attributes:
        cell: The cell.
        values: Measured value of each seed; None for a run that has none.
        coverage: Smallest coverage of these values.
        over_rounds: Standard deviation over rounds, for an improvement; None otherwise.
        failure: Why there are no values; empty if there are.
        exit_code: Exit code of the error that it failed with; 0 if there is none.
        seconds: Seconds of its runs together.
    """

    cell: PlannedCell
    values: tuple[float | None, ...] = ()
    coverage: float = 1.0
    over_rounds: float | None = None
    failure: str = ""
    exit_code: int = 0
    seconds: float = 0.0

    @property
    def known(self) -> list[float]:
        """The values of seeds that have one."""
        return [value for value in self.values if value is not None]

    @property
    def mean(self) -> float | None:
        """Mean over seeds; None if a seed has no value."""
        return statistics.fmean(self.known) if self.values and len(self.known) == len(self.values) else None

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean over seeds; None with fewer than two seeds."""
        if self.mean is None or len(self.known) < 2:
            return None
        return statistics.stdev(self.known) / math.sqrt(len(self.known))

    @property
    def difference(self) -> float | None:
        """Measured mean minus published value; None without one of the two."""
        published = self.cell.published
        return None if self.mean is None or published is None else self.mean - published.value


@dataclass(frozen=True)
class EntryResult:
    """The results of an entry.

    Attributes:
        plan: What was run.
        cells: The results of its cells.
        verdicts: The outcome of each claim.
        versions: Versions of Python and packages that did the runs.
        sources: Data set → where its data come from.
        seconds: Seconds of all runs together, each counted once.
    """

    plan: Plan
    cells: tuple[CellResult, ...]
    verdicts: tuple[Verdict, ...]
    versions: Mapping[str, str]
    sources: Mapping[str, str]
    seconds: float

    @property
    def measured(self) -> list[CellResult]:
        """Cells with values."""
        return [each for each in self.cells if each.values]

    @property
    def exit_codes(self) -> list[int]:
        """The exit codes of the cells that failed."""
        return [each.exit_code for each in self.cells if each.failure]

    @property
    def missing(self) -> dict[str, tuple[str, int]]:
        """Data set → how to get it, and number of cells that need it."""
        found: dict[str, tuple[str, int]] = {}
        for each in self.cells:
            if each.cell.missing:
                advice, count = found.get(each.cell.data, (each.cell.missing, 0))
                found[each.cell.data] = advice, count + 1
        return found


def evaluate(plan: Plan, outcomes: Mapping[str, Outcome]) -> EntryResult:
    """Measure all cells.

    Args:
        plan: The plan.
        outcomes: Key → outcome of each run.
    """
    cells = tuple(_measured(cell, outcomes) for cell in plan.cells)
    verdicts = [check(claim, _means(cells), plan.entry, _errors(cells)) for claim in plan.entry.claims]
    if plan.quick:  # a few rounds with one seed show what a table looks like, not whether a claim holds
        verdicts = [replace(verdict, holds=None) for verdict in verdicts]
    summaries = [_summary(each) for key in plan.runs if not isinstance(each := outcomes[key], Exception)]
    versions: dict[str, set[str]] = {}
    sources: dict[str, dict[str, None]] = {}
    for summary in summaries:
        sources.setdefault(summary["data"], {})[summary["source"]] = None
        for name, version in summary["versions"].items():
            versions.setdefault(name, set()).add(version)
    return EntryResult(
        plan,
        cells,
        tuple(verdicts),
        {name: " and ".join(sorted(found)) for name, found in versions.items()},
        {name: _listed(list(found)) for name, found in sources.items()},
        sum(summary["seconds"]["total"] for summary in summaries),
    )


def _listed(texts: Sequence[str]) -> str:
    """Different texts about one data set; the first few if there are many."""
    more = [f"and {len(texts) - 3} more"] if len(texts) > 4 else []
    return "; ".join([*(texts[:3] if more else texts), *more])


def _summary(outcome: Path | Probe) -> Mapping[str, Any]:
    """Versions, data, source and seconds of a run or a probe."""
    return read_summary(outcome) if isinstance(outcome, Path) else outcome.summary


def _means(cells: Sequence[CellResult]) -> dict[tuple[str, str], float]:
    """(row, column) → mean of the cells as printed."""
    return {
        (each.cell.row, each.cell.column): each.mean
        for each in cells
        if each.cell.variant == "as printed" and each.mean is not None
    }


def _errors(cells: Sequence[CellResult]) -> dict[tuple[str, str], float]:
    """(row, column) → standard error of the cells as printed that have one."""
    return {
        (each.cell.row, each.cell.column): each.standard_error
        for each in cells
        if each.cell.variant == "as printed" and each.standard_error is not None
    }


def _measured(cell: PlannedCell, outcomes: Mapping[str, Outcome]) -> CellResult:
    if cell.missing:
        return CellResult(cell)
    got = [[outcomes[run.key] for run in runs] for runs in (cell.runs, cell.baselines)]
    faults = [each for runs in got for each in runs if isinstance(each, Exception)]
    if faults:
        return _failed(cell, faults)
    options: dict[str, Any] = {} if cell.kind.probes else {k: v for k, v in cell.measure.items() if k != "name"}
    try:
        found = [[_content(each) for each in runs] for runs in got]
        seeds = zip(*found, strict=True) if cell.kind.compares else ((each,) for each in found[0])
        samples: list[Sample] = [cell.kind.of(*each, **options) for each in seeds]
    except RecordError as fault:
        return _failed(cell, [fault])
    records, baselines = ([each for each in runs if isinstance(each, RunRecord)] for runs in found)
    return CellResult(
        cell,
        tuple(sample.value for sample in samples),
        min(sample.coverage for sample in samples),
        over_rounds(records, baselines) if cell.measure["name"] == "improvement" else None,
        seconds=sum(_summary(each)["seconds"]["total"] for each in got[0] if not isinstance(each, Exception)),
    )


def _content(outcome: Outcome) -> RunRecord | JsonObject:
    assert not isinstance(outcome, Exception)
    return RunRecord.read(outcome) if isinstance(outcome, Path) else outcome.found


def _failed(cell: PlannedCell, faults: Sequence[Exception]) -> CellResult:
    """A cell of which one or more runs failed; each reason is named once."""
    first = faults[0]
    code = first.exit_code if isinstance(first, Error) else Error.exit_code
    return CellResult(cell, failure="; ".join(dict.fromkeys(map(str, faults))), exit_code=code)
