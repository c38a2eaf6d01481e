"""`run_spread` does several runs at a time, in processes on this machine or on the machines of a Ray cluster."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from typing import Literal, get_args

from coterie.errors import SpecError, unknown
from coterie.federation.ray.cluster import check_installed
from coterie.federation.ray.settings import RaySettings
from coterie.runs.jobs import Job
from coterie.runs.worker_pool import Event, run_in_processes

#: Where the processes of runs are.
JobsOn = Literal["processes", "ray"]


def checked_jobs_on(where: str) -> JobsOn:
    """The place, if runs can be spread there; raises SpecError if not."""
    if where == "processes":
        return "processes"
    if where == "ray":
        check_installed()
        return "ray"
    raise SpecError(unknown("place for jobs", where, get_args(JobsOn)))


def run_spread(
    jobs: Iterable[Job],
    workers: int,
    where: JobsOn,
    settings: RaySettings,
    *,
    stop: Collection[Job] = (),
    catch: tuple[type[Exception], ...] = (),
) -> Generator[Event, None, None]:
    """Do all runs, and yield what happens to them as it happens; see `run_in_processes`.

    Args:
        jobs: The runs.
        workers: Number of runs at a time.
        where: Where their processes are.
        settings: The Ray cluster.
        stop: Runs to end after their current step.
        catch: Errors that end only their run.
    """
    if where == "processes":
        return run_in_processes(jobs, workers, stop=stop, catch=catch)
    from coterie.runs.ray_jobs import run_on_ray

    return run_on_ray(jobs, workers, settings, stop=stop, catch=catch)
