"""The runs of a comparison: which there are, which of them a folder of records already has, and how to do one."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie import data as datasets
from coterie.data.federated import FederatedData
from coterie.errors import FederationError, RecordError, SpecError
from coterie.runs.loop import OnRound, resume, run
from coterie.runs.objects import NONE, Objects
from coterie.runs.record import RunRecord
from coterie.runs.resolve import fill_defaults, resolve
from coterie.runs.spec import Spec, read_toml


@dataclass(frozen=True, eq=False)
class Job:
    """One run of a comparison.

    Attributes:
        label: Label of the spec, usually the name of the method.
        spec: What to run.
        folder: Folder of the record; None: nothing is written.
        validation: Whether to train without the validation examples and to evaluate on these instead of the test
            examples.
        objects: Objects that replace parts of the spec.
    """

    label: str
    spec: Spec
    folder: Path | None = None
    validation: bool = False
    objects: Objects = NONE

    @property
    def seed(self) -> int:
        """Random seed of the run."""
        return self.spec.run.seed

    @property
    def begun(self) -> bool:
        """Whether the folder has a record, finished or not."""
        return self.folder is not None and (self.folder / "spec.toml").is_file()


def plan(
    labeled: Mapping[str, Spec],
    seeds: int | Sequence[int],
    out: str | os.PathLike[str] | None = None,
    objects: Objects = NONE,
) -> list[Job]:
    """The runs of a comparison, ordered by label and seed. An error in any spec is reported here, before the first run.

    Args:
        labeled: Label → spec.
        seeds: Number of seeds, counted up from the seed of each spec, or a list of seeds.
        out: Folder for the records of all runs, `LABEL-SEED`. Records that it has must be of the same specs.
        objects: Objects that replace parts of all specs.
    """
    jobs: list[Job] = []
    for label, spec in labeled.items():
        spec = objects.named(spec)
        fill_defaults(spec, given=objects.sections)
        first = spec.run.seed
        for seed in range(first, first + seeds) if isinstance(seeds, int) else seeds:
            folder = None if out is None else Path(out) / f"{_folder_name(label)}-{seed}"
            jobs.append(Job(label, spec.with_values({"run.seed": seed}), folder, objects=objects))
    if not jobs:
        raise SpecError("There is nothing to compare: give at least one method and one seed")
    folders = [job.folder for job in jobs if job.folder is not None]
    if twice := [folder for folder in folders if folders.count(folder) > 1]:
        raise SpecError(f"Two runs would be recorded in {twice[0]}; give labels and seeds that differ")
    for job in jobs:
        if job.begun:
            _check_same_spec(job)
    return jobs


def recorded(job: Job) -> RunRecord | None:
    """The record of a run that has finished; None if it has not."""
    if not job.begun or job.folder is None or not (job.folder / "summary.json").is_file():
        return None
    record = RunRecord.read(job.folder)
    return record if record.summary.get("status") == "done" else None


def carry_out(job: Job, on_round: OnRound | None = None) -> RunRecord:
    """Do a run, or continue it from its last checkpoint if its folder has a record."""
    try:
        if job.begun and job.folder is not None:
            return resume(job.folder, on_round=on_round, **job.objects.arguments())
        given = job.objects.arguments()
        if job.validation:
            given["data"] = _validation_data(job)
        return run(job.spec, out=job.folder, on_round=on_round, **given)
    except FederationError as fault:
        raise type(fault)(f"{job.label}: {fault}") from fault


def _validation_data(job: Job) -> FederatedData:
    if job.objects.data is not None:
        return job.objects.data.for_validation()
    part = fill_defaults(job.spec, given=job.objects.sections).data
    return datasets.load(part.name, **part.options).for_validation()


def _check_same_spec(job: Job) -> None:
    assert job.folder is not None
    there = read_toml(job.folder / "spec.toml")
    here = tomllib.loads(resolve(job.spec, task=job.objects.task, data=job.objects.data).spec.to_toml())
    own = job.objects.metrics or {}
    here["run"]["metrics"] = list(dict.fromkeys([*here["run"]["metrics"], *own]))  # a run records their names
    if found := _first_difference(there, here):
        name, old, new = found
        raise RecordError(
            f"{job.folder} has the record of another run: there {name} is {old}, in this comparison {new}. "
            "Repeat the settings of the record to continue it, choose another folder (--out; out= in Python), "
            f"or remove {job.folder}"
        )


def _first_difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """The first setting that differs between two specs: `section.key` and both values."""
    for section in dict.fromkeys([*here, *there]):
        if section == "ray":  # where clients run; results do not depend on it
            continue
        old, new = there.get(section, {}), here.get(section, {})
        if old == new:
            continue
        if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
            return section, _shown(old), _shown(new)
        for key in dict.fromkeys([*new, *old]):
            if old.get(key) != new.get(key):
                return f"{section}.{key}", _shown(old.get(key)), _shown(new.get(key))
    return None


def _shown(value: object) -> str:
    return "not set" if value is None else repr(value)[:80]


def _folder_name(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9._=-]+", "_", label)
