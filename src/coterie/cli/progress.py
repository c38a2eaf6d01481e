"""Live progress on stderr while one waits; nothing where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from coterie.cli.screen import percent, size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Ticker:
    """A line that says how far a run, or several, are."""

    def __init__(self, *, silent: bool, waiting: str = "loading data, compiling") -> None:
        """Before the first step.

        Args:
            silent: Show nothing.
            waiting: What is done before the first step.
        """
        self._total: int | None = None
        self._waiting = waiting
        self._shown = not silent and sys.stderr.isatty()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._watched: TaskID | None = None
        self._until_end = ExitStack()
        self._bytes = 0

    def __enter__(self) -> Ticker:
        if not self._shown:
            return self
        from rich import progress
        from rich.console import Console

        self._progress = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=20),
            progress.TextColumn("{task.fields[note]}", markup=False),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._progress.start()
        self._task = self._progress.add_task(self._waiting, total=None, note="")
        from coterie.data.progress import watched

        self._until_end.enter_context(watched(self.watch))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._until_end.close()
        if self._progress is not None:
            self._progress.stop()

    def expect(self, rounds: int) -> None:
        """So many rounds are to come, of all runs together."""
        self._total = rounds

    def say(self, text: str) -> None:
        """Show another text while one waits."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=text)

    def done(self, count: int, note: str) -> None:
        """So many of what is expected are done."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=count, total=self._total, note=note)

    def watch(self, what: str, done: int, total: int | None) -> None:
        """So many bytes of a download or a drawing are there; the line about it goes when it is whole."""
        if self._progress is None:
            return
        if self._watched is None:
            self._watched = self._progress.add_task("", total=None, note="")
        note = size(done) if total is None else f"{size(done)} of {size(total)}"
        self._progress.update(self._watched, description=what, completed=done, total=total, note=note)
        if done == total:
            self._progress.remove_task(self._watched)
            self._watched = None

    def step(self, row: Mapping[str, Any]) -> None:
        """A step is done."""
        self.step_of("training", row)

    def step_of(self, label: str, row: Mapping[str, Any]) -> None:
        """A step of one of several runs is done."""
        if self._progress is None or self._task is None:
            return
        if row["t"] == 0:
            self._bytes = 0
        sent = [way for purpose, way in (row.get("traffic") or {}).items() if purpose != "evaluate"]
        self._bytes += sum(sum(way.values()) for way in sent)
        if row["stage"] == "prepare":
            self._progress.update(self._task, description=f"{label}: preparing")
            return
        note = _note(row, self._bytes)
        self._progress.update(self._task, description=label, total=self._total, advance=1, note=note)


def _note(row: Mapping[str, Any], sent: int) -> str:
    parts = [f"round {row['t'] + 1}"]
    if row.get("accuracy"):
        parts.append(f"accuracy {percent(row['accuracy']['weighted'])} %")
    elif row.get("test_loss") is not None:
        parts.append(f"test loss {row['test_loss']:.4g}")
    if row.get("clusters"):
        parts.append(f"clusters {row['clusters']['count']}")
    parts.append(size(sent))
    return " · ".join(parts)
