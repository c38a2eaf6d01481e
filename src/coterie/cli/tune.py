"""coterie tune: search for good settings, chosen on validation examples."""

from __future__ import annotations

import logging
import re
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import flags, signals
from coterie.cli.output import document, number, percent, plural, result, table
from coterie.cli.progress import ProgressDisplay

if TYPE_CHECKING:
    from rich.progress import TaskID
    from rich.table import Table

    from coterie.runs.jobs import Job
    from coterie.runs.spec import Spec
    from coterie.runs.tuning import Study

#: Number of complete trials in the table, and of others.
_SHOWN = 10


def tune(
    spec: flags.SpecFile = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SECTION.KEY=VALUES",
            show_default=False,
            help="Setting to search and its values: 1e-3..1e-1:log, 2..8 or mclr,mlp; repeatable, or several after it.",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(metavar="N", help="Number of trials that the study has in the end.")] = 50,
    jobs: Annotated[int, typer.Option(metavar="N", help="Number of trials at a time, each in its own process.")] = 1,
    jobs_on: flags.JobsOn = "processes",
    data: flags.Data = None,
    method: flags.Method = None,
    model: flags.Model = None,
    clusters: flags.Clusters = None,
    rounds: flags.Rounds = None,
    clients_per_round: flags.ClientsPerRound = None,
    epochs: flags.Epochs = None,
    batch_size: flags.BatchSize = None,
    learning_rate: flags.LearningRate = None,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed of all trials, below 100; the test has the seed 100 + N.")
    ] = 0,
    settings: flags.Settings = None,
    test: Annotated[bool, typer.Option("--test/--no-test", help="Run the best settings once on test examples.")] = True,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            show_default=False,
            rich_help_panel="Output",
            help="Folder for the study, best.toml and the test; again: continues. Default: runs/tune-DATA-METHOD.",
        ),
    ] = None,
    study: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            rich_help_panel="Output",
            help="File of the study: SQLite for .db, otherwise a journal; default: study.jsonl in --out.",
        ),
    ] = None,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Search for good settings with Optuna: choose on validation examples, then test once.

    Trials never see a test example. The best settings are run once more on all
    training examples with another seed, and scored on the test examples.
    """
    with ProgressDisplay(silent=quiet) as progress:
        from coterie.runs.spread import checked_jobs_on
        from coterie.runs.tuning import tune as search

        given = flags.values(
            data=data,
            method=method,
            model=model,
            rounds=rounds,
            clients_per_round=clients_per_round,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
        )
        made = flags.make_spec(spec, given, settings, clusters)
        folder = out or _folder(made)
        _quiet_optuna()
        shown = _TrialsProgress(progress, trials)
        try:
            with signals.during("run"):
                found = search(
                    made,
                    over or (),
                    trials=trials,
                    jobs=jobs,
                    jobs_on=checked_jobs_on(jobs_on),
                    seed=seed,
                    out=folder,
                    study=study,
                    test=test,
                    on_trial=shown.event,
                )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_interrupted(study or folder)) from None
    if as_json:
        document({**found.to_dict(), "best_file": str(folder / "best.toml")})
        return
    result(_trials_table(found), *_sentences(found, folder))


def _folder(spec: Spec) -> Path:
    data = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(spec.data.name).stem) or "data"
    return Path("runs") / f"tune-{data}-{spec.method.name}"


def _quiet_optuna() -> None:
    """Optuna reports each event to stderr, which would disturb the progress display."""
    with suppress(ImportError):  # the search says what to install
        import optuna

        optuna.logging.set_verbosity(logging.WARNING)


class _TrialsProgress:
    """A line for all trials, and one for each that is running."""

    def __init__(self, display: ProgressDisplay, trials: int) -> None:
        self._display, self._trials = display, trials
        self._done = 0
        self._lines: dict[Job, TaskID | None] = {}
        display.expect(trials)

    def event(self, job: Job, what: str | dict[str, Any]) -> None:
        """A trial has started, done a step or ended."""
        if isinstance(what, dict):
            if what["stage"] == "train":
                note = (
                    f"round {what['t'] + 1} of {job.spec.run.rounds} · {_validation(what, job.spec.run.primary_metric)}"
                )
                self._display.update_line(self._lines[job], completed=what["t"] + 1, note=note)
        elif what == "started":
            self._lines[job] = self._display.add_line(f"  {job.label}", job.spec.run.rounds)
        else:
            self._display.remove_line(self._lines.pop(job))
            self._done += 1
        # The study may have trials already; the last number says how many.
        self._display.describe(f"trials ({self._done} done now, {self._trials} in all)")
        self._display.done(self._done, "")


def _validation(row: dict[str, Any], metric: str) -> str:
    from coterie.runs.early_stopping import primary_value

    if metric == "auto":
        metric = "accuracy" if row.get("accuracy") else "loss"
    return f"validation {metric} {_score(metric, primary_value(row, metric))}"


def _interrupted(where: Path) -> str:
    if not where.exists():
        return "The search had not started; nothing was saved."
    return f"Finished trials are in {where}. Continue with: {shlex.join(['coterie', *sys.argv[1:]])}"


def _score(metric: str, value: float | None) -> str:
    return f"{percent(value)} %" if metric == "accuracy" and value is not None else number(value, "4g")


def _trials_table(found: Study) -> Table:
    """The best trials first, then the last of those that were pruned or failed; the others are only counted."""
    names = list(found.best_values)
    shown = table("trial", "state", *names, f"validation {found.metric}", "rounds", "seconds", left=2)
    best = sorted(_scored(found), key=lambda row: float(row["score"]), reverse=found.higher_is_better)
    rest = [row for row in found.rows if row["score"] is None]
    for row in [*best[:_SHOWN], *rest[-_SHOWN:]]:
        values = [f"{row[name]:.4g}" if isinstance(row[name], float) else str(row[name]) for name in names]
        cells = [_score(found.metric, row["score"]), number(row["rounds"], "0f"), number(row["seconds"], "1f")]
        shown.add_row(str(row["number"]), row["state"], *values, *cells)
    return shown


def _scored(found: Study) -> list[dict[str, Any]]:
    """The complete trials."""
    return [row for row in found.rows if row["score"] is not None]


def _sentences(found: Study, folder: Path) -> list[str]:
    states = [row["state"] for row in found.rows]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("complete", "pruned", "failed"))
    complete = len(_scored(found))
    left_out = sum(max(0, count - _SHOWN) for count in (complete, len(states) - complete))
    hidden = f" {left_out} of them are not shown; --json has all." if left_out else ""
    lines = [f"{plural(len(states), 'trial')}: {counts}.{hidden}"]
    reasons = [row["reason"] for row in found.rows if row["reason"]]
    lines += [f"Reason for the last pruned or failed trial: {reasons[-1]}"] if reasons else []
    if found.importance:
        shares = ", ".join(f"{name} {percent(share)} %" for name, share in found.importance.items())
        lines.append(f"Importance: {shares}.")
    lines += ["", f"Best {found.metric} on validation examples: {_score(found.metric, found.best_score)}"]
    if found.test is not None:
        seed = found.test.summary["seed"]
        lines.append(f"Test {found.metric}, from one run with seed {seed}: {_score(found.metric, found.test_score)}")
    return [*lines, f"Best settings: {folder / 'best.toml'}"]
