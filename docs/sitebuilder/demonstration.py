"""Recorded runs of every method on the demonstration: 40 clients with digits, in four rotations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from coterie.methods import METHODS
from sitebuilder.paths import WORK, fingerprint

#: Methods that react to drift; their figures show a run in which clients exchange their data.
DRIFT = ("flexcfl", "ifca-mig", "fesem-mig")
ROUNDS = 60
_DRIFT_SETTINGS = ("shift.name=swap_all", "shift.rounds=[20,40]", "shift.probability=0.5")


def records() -> dict[str, Path]:
    """Method → folder of its record. Runs are made once for each state of the sources."""
    folder = WORK / f"records-{fingerprint(Path(__file__))}"
    plain = [name for name in METHODS if name not in DRIFT]
    _compare(folder / "plain", plain, ())
    _compare(folder / "drift", DRIFT, _DRIFT_SETTINGS)
    return {name: folder / ("drift" if name in DRIFT else "plain") / f"{name}-0" for name in METHODS}


def _compare(folder: Path, methods: tuple[str, ...] | list[str], settings: tuple[str, ...]) -> None:
    """`coterie compare`, which shows progress and continues where an interrupted build stopped."""
    if all((folder / f"{name}-0" / "summary.json").exists() for name in methods):
        return
    command = [sys.executable, "-c", "from coterie.cli import main; main()", "compare", "--methods", ",".join(methods)]
    command += ["--rounds", str(ROUNDS), "--jobs", "2", "--out", str(folder)]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
