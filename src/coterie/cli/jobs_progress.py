"""Progress of a comparison: one line for all runs together, and one for each run that is going on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from coterie.cli.progress import ProgressDisplay, figures, traffic

if TYPE_CHECKING:
    from rich.progress import TaskID

    from coterie.runs.jobs import Job


class JobsProgress:
    """Shows the steps of several runs.

    The remaining time of the first line is that of all rounds that are left. Rounds that were recorded earlier count
    neither as done nor as left, because they take no time.
    """

    def __init__(
        self, display: ProgressDisplay, runs: int, rounds: int, *, cost: Callable[[Job], int] | None = None
    ) -> None:
        """Show that nothing is done yet.

        Args:
            display: The display.
            runs: Number of runs.
            rounds: Number of rounds of all runs together, each multiplied by its cost.
            cost: Cost of a round of a run, if they differ; None: 1.
        """
        self._display = display
        self._runs, self._finished = runs, 0
        self._rounds, self._done = rounds, 0
        self._cost = cost or (lambda job: 1)
        self._lines: dict[Job, _Line] = {}
        self._show()

    def job(self, job: Job, what: str) -> None:
        """A run has `started` or `finished`."""
        if what == "started":
            name = job.label if self._runs == 1 else f"  {job.label}, seed {job.seed}"
            self._lines[job] = _Line(
                self._display.add_line(f"{name}: loading data, compiling", job.spec.run.rounds), name
            )
            return
        self._finished += 1
        line = self._lines.pop(job, None)
        # A method may finish before the last round; a run that was read has no line.
        self._rounds -= self._cost(job) * (job.spec.run.rounds - (0 if line is None else line.reached))
        if line is not None:
            self._display.remove_line(line.task)
        self._show()

    def step(self, job: Job, row: Mapping[str, Any]) -> None:
        """A step of a run is done, given its line of `rounds.jsonl`."""
        line = self._lines[job]
        line.sent += traffic(row)
        if row["stage"] == "prepare":
            self._display.update_line(line.task, description=f"{line.name}: preparation")
            return
        if not line.reached:  # a run that is continued begins with a later round
            self._rounds -= self._cost(job) * row["t"]
        line.reached = row["t"] + 1
        self._done += self._cost(job)
        note = f"round {line.reached} of {job.spec.run.rounds} · {figures(row, line.sent)}"
        self._display.update_line(line.task, description=line.name, completed=line.reached, note=note)
        self._show()

    def _show(self) -> None:
        self._display.expect(self._rounds)
        self._display.describe(f"{self._finished} of {self._runs} runs")
        self._display.done(self._done, "")


class _Line:
    def __init__(self, task: TaskID | None, name: str) -> None:
        self.task, self.name = task, name
        self.reached = self.sent = 0
