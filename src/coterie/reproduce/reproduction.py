"""`run` reproduces entries: plan, do the runs, measure, write tables and pages."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coterie.errors import SpecError
from coterie.federation.ray.settings import RaySettings
from coterie.reproduce.files import write
from coterie.reproduce.loading import entry
from coterie.reproduce.planning import Plan, plan_all
from coterie.reproduce.results import EntryResult, evaluate
from coterie.reproduce.running import Outcome, Where, carry_out_all, default_jobs
from coterie.reproduce.schema import Entry
from coterie.runs.compare import OnJob, OnStep
from coterie.runs.record_files import explained, locked
from coterie.runs.spread import checked_jobs_on

#: Folder for tables and runs.
FOLDER = Path("runs") / "reproduce"

#: Folder of the stored runs, below the folder for tables.
STORE = "records"


@dataclass(frozen=True)
class Reproduction:
    """A reproduced entry.

    Attributes:
        result: The results.
        folder: Folder with `table.md`, `table.json` and `report.html`.
    """

    result: EntryResult
    folder: Path


def run(
    names: str | Entry | Sequence[str | Entry],
    *,
    quick: bool = False,
    seeds: int | None = None,
    only: Sequence[str] = (),
    max_rounds: int | None = None,
    jobs: int | None = None,
    jobs_on: str = "processes",
    ray_address: str = "local",
    out: str | os.PathLike[str] = FOLDER,
    on_plan: Callable[[Sequence[Plan]], None] | None = None,
    on_step: OnStep | None = None,
    on_job: OnJob | None = None,
) -> list[Reproduction]:
    """Reproduce tables and figures of papers: run their cells, and put measured beside published values.

    Cells whose data are not at hand are left out; the result says what to download. Finished runs in `out` are read,
    interrupted ones are continued. Only one process at a time writes to `out`.

    Args:
        names: Name of an entry, or an entry of your own (`loading.parse`); or several of them.
        quick: Run the scaled-down versions, each in less than two minutes on two cores.
        seeds: Number of seeds, counted up from 100; None: as in the entry.
        only: Patterns; only cells whose row, column or variant matches each of them. Entries without any are left out.
        max_rounds: Maximum number of rounds of a run; None: as many as the paper.
        jobs: Number of runs at a time, each in its own process; None: as many as this machine has cores and memory for.
        jobs_on: Where these processes are: `processes` on this machine, or on those of a `ray` cluster.
        ray_address: The Ray cluster, as in `ray.address`.
        out: Folder for tables and records.
        on_plan: Called with the plans before the first run.
        on_step: Called after each step of each run.
        on_job: Called when a run starts and when it has finished.
    """
    names = [names] if isinstance(names, str | Entry) else names
    for name, count in {"seeds": seeds, "jobs": jobs, "max_rounds": max_rounds}.items():
        if count is not None and count < 1:
            raise SpecError(f"{name} must be at least 1, got {count}")
    entries = {each.name: each for each in (entry(name) if isinstance(name, str) else name for name in names)}
    plans = plan_all(list(entries.values()), quick=quick, seeds=seeds, only=only, max_rounds=max_rounds)
    where = Where(
        Path(out) / STORE, default_jobs() if jobs is None else jobs, checked_jobs_on(jobs_on), RaySettings(ray_address)
    )
    if on_plan is not None:
        on_plan(plans)
    runs = {key: each for planned in plans for key, each in planned.runs.items()}
    with explained(where.folder):
        where.folder.mkdir(parents=True, exist_ok=True)
    with locked(where.folder):
        outcomes = carry_out_all(runs.values(), where, on_step=on_step, on_job=on_job)
        return [_written(planned, outcomes, Path(out) / planned.name) for planned in plans]


def _written(planned: Plan, outcomes: Mapping[str, Outcome], folder: Path) -> Reproduction:
    result = evaluate(planned, outcomes)
    with explained(folder):
        write(result, outcomes, folder)
    return Reproduction(result, folder)
