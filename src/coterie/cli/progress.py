"""Progress on stderr: live on a terminal, and a line per minute elsewhere, for the log files of long runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from coterie.cli.output import duration, line, percent, plural, size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID, TimeRemainingColumn


#: Seconds between two lines where stderr is not a terminal.
_LOG_EVERY = 60.0


class ProgressDisplay:
    """A progress line for one or several runs, and a second one for downloads."""

    def __init__(self, *, silent: bool, waiting: str = "loading data, compiling") -> None:
        """Create the display; entering its context shows it.

        Args:
            silent: Show nothing.
            waiting: Text before the first step.
        """
        self._total: int | None = None
        self._waiting = waiting
        self._shown = not silent and sys.stderr.isatty()
        self._log = None if silent or self._shown else _Log(waiting)
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._download: TaskID | None = None
        self._stack = ExitStack()
        self._bytes = self._rounds = 0

    def __enter__(self) -> ProgressDisplay:
        if not self._shown:
            return self
        from rich import progress
        from rich.console import Console

        self._progress = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=20),
            progress.TextColumn("{task.fields[note]}", markup=False),
            _remaining_column(),
            console=Console(stderr=True, emoji=False),
            transient=True,
        )
        self._progress.start()
        self._task = self._progress.add_task(self._waiting, total=None, note="")
        from coterie.data.cache_writing import report_progress_to

        self._stack.enter_context(report_progress_to(self.download))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if self._progress is not None:
            self._progress.stop()

    def expect(self, rounds: int) -> None:
        """Set the number of rounds of all runs together."""
        self._total = rounds

    def describe(self, text: str) -> None:
        """Replace the text of the progress line."""
        if self._log is not None:
            self._log.text = text
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=text)

    def done(self, count: int, note: str) -> None:
        """Show that `count` of the expected steps are done."""
        if self._log is not None:
            self._log.show(count, self._total, note)
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=count, total=self._total, note=note)

    def download(self, what: str, done: int, total: int | None) -> None:
        """Show the bytes of a download or of data generation; the line disappears when it is complete."""
        if self._progress is None:
            return
        if self._download is None:
            self._download = self._progress.add_task("", total=None, note="")
        note = size(done) if total is None else f"{size(done)} of {size(total)}"
        self._progress.update(self._download, description=what, completed=done, total=total, note=note)
        if done == total:
            self._progress.remove_task(self._download)
            self._download = None

    def step(self, row: Mapping[str, Any]) -> None:
        """Show a step of the run, given its line of `rounds.jsonl`."""
        if self._log is None and self._progress is None:
            return
        self._bytes += traffic(row)
        if row["stage"] == "prepare":
            self.describe("preparation")
            return
        self._rounds += 1
        self.describe("training")
        self.done(self._rounds, f"round {row['t'] + 1} · {figures(row, self._bytes)}")

    def add_line(self, text: str, total: int) -> TaskID | None:
        """Add a line below the first one; None if nothing is shown."""
        return None if self._progress is None else self._progress.add_task(text, total=total, note="")

    def update_line(self, line: TaskID | None, **changes: Any) -> None:
        """Change a line: `description`, `completed`, `total`, `note`."""
        if self._progress is not None and line is not None:
            self._progress.update(line, **changes)

    def remove_line(self, line: TaskID | None) -> None:
        """Remove a line."""
        if self._progress is not None and line is not None:
            self._progress.remove_task(line)


class _Log:
    """Lines of a log: what is done, for how long, and roughly how long the rest takes; the first after a minute.

    Attributes:
        text: What is being done.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._started = self._last = time.monotonic()

    def show(self, done: int, total: int | None, note: str) -> None:
        """Print a line if the last one is long enough ago."""
        now = time.monotonic()
        if now - self._last < _LOG_EVERY:
            return
        self._last, passed = now, now - self._started
        parts = [self.text, note, f"after {duration(passed)}"]
        if total is not None and 0 < done < total:
            parts.append(f"about {duration(passed / done * (total - done))} left")
        line(" · ".join(part for part in parts if part))


def _remaining_column() -> TimeRemainingColumn:
    """The remaining time, labeled; empty while it is not known how much there is to do."""
    from rich.progress import Task, TimeRemainingColumn
    from rich.text import Text

    class Remaining(TimeRemainingColumn):
        def render(self, task: Task) -> Text:
            shown = super().render(task)
            return shown.append(" left") if shown.plain else shown

    return Remaining()


def traffic(row: Mapping[str, Any]) -> int:
    """Bytes of a step, without evaluation."""
    counted = [ways for purpose, ways in (row.get("traffic") or {}).items() if purpose != "evaluate"]
    return sum(sum(ways.values()) for ways in counted)


def figures(row: Mapping[str, Any], sent: int) -> str:
    """The results of a step: accuracy or test loss, number of clusters, Ray workers and their load, bytes so far."""
    parts = []
    if row.get("accuracy"):
        parts.append(f"accuracy {percent(row['accuracy']['weighted'])} %")
    elif row.get("test_loss") is not None:
        parts.append(f"test loss {row['test_loss']:.4g}")
    if row.get("coverage") not in (None, 1.0):
        parts.append(f"coverage {percent(row['coverage'])} %")
    if row.get("clusters"):
        count = row["clusters"]["count"]
        parts.append(f"{count} cluster{'' if count == 1 else 's'}")
    if workers := row.get("ray"):
        lost = f", {workers['lost_workers']} lost" if workers["lost_workers"] else ""
        parts.append(f"{plural(workers['workers'], 'worker')} {100 * workers['busy']:.0f} % busy{lost}")
    return " · ".join([*parts, size(sent)])
