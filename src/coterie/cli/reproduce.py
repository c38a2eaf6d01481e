"""coterie reproduce: run the tables and figures of papers again, and put measured beside published values."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import flags, signals
from coterie.cli.jobs_progress import JobsProgress
from coterie.cli.output import document, duration, plural, result, table
from coterie.cli.progress import ProgressDisplay
from coterie.errors import DataError, SpecError

if TYPE_CHECKING:
    from rich.table import Table

    from coterie.reproduce.planning import Plan
    from coterie.reproduce.reproduction import Reproduction


def _entry_names(incomplete: str) -> list[str]:
    from coterie.reproduce import names

    return [name for name in names() if name.startswith(incomplete)]


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            show_default=False,
            autocompletion=_entry_names,
            help="Tables and figures, such as fedsim-table7; without a name, they are listed.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Scaled-down versions, each in less than two minutes on two cores.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(metavar="N", show_default=False, help="Number of seeds, counted up from 100. Default: 3 or more."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            show_default=False,
            help="Only cells whose row, column or variant has this name, or a word in it that begins so; several are "
            "separated by |; repeatable: all must match.",
        ),
    ] = None,
    max_rounds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default=False,
            help="Maximum number of rounds of a run, where a table takes days. Default: as in the paper.",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default=False,
            help="Number of runs at a time, each in its own process. Default: as many as cores and memory allow.",
        ),
    ] = None,
    jobs_on: flags.JobsOn = "processes",
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            show_default=False,
            help="The Ray cluster of --jobs-on ray: local, auto or HOST:PORT. Default: local.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            show_default=False,
            rich_help_panel="Output",
            help="Folder for tables, pages and records. Default: runs/reproduce.",
        ),
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", rich_help_panel="Output", help="List the tables and figures; run nothing.")
    ] = False,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Run tables and figures of papers again, and put measured beside published values.

    Cells whose data are not on disk are named, with what to download; the
    others run in parallel processes. Finished runs are stored by the hash of
    their settings and of Coterie's sources: the same command again reads them
    and continues what was interrupted. Tables of --only and of another number
    of seeds have folders of their own.
    """
    from coterie.reproduce import entry, run
    from coterie.reproduce import names as known

    chosen = [entry(name).name for name in names or ()]  # an unknown name is reported before anything is run
    flags.check_counts(seeds=seeds, jobs=jobs, max_rounds=max_rounds)
    if listed or not chosen:
        options: dict[str, Any] = {"quick": quick, "seeds": seeds, "only": only or (), "max_rounds": max_rounds}
        _list(chosen or list(known()), options, jobs, as_json=as_json, hint=not listed)
        return
    from coterie.reproduce.reproduction import FOLDER

    folder = FOLDER if out is None else out
    if folder.exists() and not folder.is_dir():
        raise SpecError(f"--out {folder} is a file; it must be a folder, or not exist")
    if ray_address is not None and jobs_on != "ray":
        raise SpecError("--ray-address needs --jobs-on ray")
    with ProgressDisplay(silent=quiet) as progress:
        shown = _Progress(progress)
        try:
            with signals.during("run"):
                found = run(
                    chosen,
                    quick=quick,
                    seeds=seeds,
                    only=only or (),
                    max_rounds=max_rounds,
                    jobs=jobs,
                    jobs_on=jobs_on,
                    ray_address=ray_address or "local",
                    out=folder,
                    on_plan=shown.plan,
                    on_step=shown.step,
                    on_job=shown.job,
                )
        except KeyboardInterrupt:
            again = shlex.join(["coterie", *sys.argv[1:]])
            raise KeyboardInterrupt(f"Finished runs and checkpoints are in {folder}. Continue with: {again}") from None
    if as_json:
        from coterie.reproduce.table import to_dict

        document({"entries": [{**to_dict(each.result), "path": str(each.folder)} for each in found]})
    else:
        for each in found:
            _show(each)
    if code := _exit_code(found):
        raise typer.Exit(code)


def _exit_code(found: Sequence[Reproduction]) -> int:
    """That of the first run that failed; if nothing could be run because data are missing, that of missing data."""
    failures = [code for each in found for code in each.result.exit_codes]
    if failures:
        return failures[0]
    return 0 if any(each.result.measured for each in found) else DataError.exit_code


class _Progress:
    """Progress of all runs together: expected seconds instead of rounds, because rounds of runs differ in cost."""

    def __init__(self, display: ProgressDisplay) -> None:
        self._display = display
        self._jobs: JobsProgress | None = None

    def plan(self, plans: Sequence[Plan]) -> None:
        from coterie.reproduce.cost import milliseconds_per_round

        runs = {key: each for plan in plans for key, each in plan.runs.items()}
        total = sum(each.spec.run.rounds * milliseconds_per_round(each.spec) for each in runs.values())
        self._jobs = JobsProgress(self._display, len(runs), total, cost=lambda job: milliseconds_per_round(job.spec))

    def step(self, job: Any, row: Any) -> None:
        if self._jobs is not None:
            self._jobs.step(job, row)

    def job(self, job: Any, what: Any) -> None:
        if self._jobs is not None:
            self._jobs.job(job, what)


def _show(found: Reproduction) -> None:
    """Print the table of an entry."""
    from coterie.reproduce.table import how_measured, missing_of, notes_of, result_cells, scaled_down, verdict_text

    entry, made = found.result.plan.entry, found.result
    lines: list[Any] = [f"{entry.name}: {entry.title}", f"{entry.paper}, {entry.source}"]
    if small := scaled_down(made.plan):
        lines.append(" ".join(small))
    lines.append(f"Compared: {entry.compares}.")
    if made.measured:
        lines.append(_rich(*result_cells(made)))
        lines.append(f"{how_measured(made.plan)} Runs took {duration(made.seconds)} together.")
    lines += [f"Claim: {verdict_text(each)}" for each in made.verdicts]
    if missing := missing_of(made):
        lines += ["", "Not run, because data are missing (not downloaded here):", *(f"  {each}" for each in missing)]
    if notes := [*notes_of(made), *entry.notes, *entry.errors]:
        lines += ["", "Notes:", *(f"  {each}" for each in notes)]
    files = ("table.md", "table.json", "report.html")
    result(*lines, "", *(f"{file}: {found.folder / file}" for file in files), "")


def _rich(header: list[str], lines: list[list[str]]) -> Table:
    shown = table(*header, left=2)
    for line in lines:
        shown.add_row(*line)
    return shown


def _rough(seconds: int) -> str:
    """An estimate with one unit."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"~{round(seconds / size)} {unit}"
    return f"~{seconds} s"


def _list(names: Sequence[str], options: dict[str, Any], jobs: int | None, *, as_json: bool, hint: bool) -> None:
    from coterie.reproduce import entry
    from coterie.reproduce.cost import seconds
    from coterie.reproduce.planning import plan_all
    from coterie.reproduce.running import default_jobs

    plans = plan_all([entry(name) for name in names], **options)
    workers = default_jobs() if jobs is None else jobs
    rows = [
        {
            "name": each.entry.name,
            "title": each.entry.title,
            "paper": each.entry.paper,
            "source": each.entry.source,
            "compares": each.entry.compares,
            "cells": len(each.cells),
            "at_hand": sum(1 for cell in each.cells if not cell.missing),
            "seeds": len(each.seeds),
            "runs": len(each.runs),
            "seconds": round(seconds(each.runs.values()) / workers),
        }
        for each in plans
    ]
    if as_json:
        document({"quick": options["quick"], "jobs": workers, "entries": rows})
        return
    shown = table("name", "paper", "what is compared", "cells", "at hand", "seeds", "estimate", left=3)
    for row in rows:
        paper = f"{str(row['paper']).split(',')[1].strip()}, {row['source']}"
        numbers = [str(row[key]) for key in ("cells", "at_hand", "seeds")]
        estimate = _rough(int(str(row["seconds"]))) if row["at_hand"] else "–"
        shown.add_row(str(row["name"]), paper, str(row["compares"]), *numbers, estimate)
    text = (
        f"At hand: cells whose data are on disk. Estimate: rough, for these cells, {plural(workers, 'run')} at a time."
    )
    more = "Run one: coterie reproduce NAME; in less than two minutes and scaled down: coterie reproduce NAME --quick."
    result(shown, text, *([more] if hint else []))
