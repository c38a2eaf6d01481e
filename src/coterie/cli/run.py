"""coterie run: one run of one spec."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import flags
from coterie.cli.finished import finished, interrupted
from coterie.cli.progress import Ticker

if TYPE_CHECKING:
    from coterie.runs.spec import Spec


def run(
    spec: flags.SpecFile = None,
    data: flags.Data = None,
    method: flags.Method = None,
    model: flags.Model = None,
    rounds: flags.Rounds = None,
    clients_per_round: flags.ClientsPerRound = None,
    seed: flags.Seed = None,
    settings: flags.Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", show_default=False, help="The folder of the record; otherwise one in runs/."),
    ] = None,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Run one method, and write down what happens."""
    with Ticker(silent=quiet) as ticker:
        from coterie.runs import loop

        made = flags.spec_of(
            spec,
            data=data,
            method=method,
            model=model,
            rounds=rounds,
            clients_per_round=clients_per_round,
            seed=seed,
            settings=settings,
        )
        folder = out or _free(made)
        ticker.expect(made.run.rounds)
        with interrupted(folder):
            record = loop.run(made, out=folder, on_round=ticker.step)
    finished(record, as_json=as_json)


def _free(spec: Spec) -> Path:
    """runs/<data>-<method>-<seed>, with a number behind it where that exists."""
    data = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(spec.data.name).stem) or "data"
    first = Path("runs") / f"{data}-{spec.method.name}-{spec.run.seed}"
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return first if not first.exists() else next(folder for folder in others if not folder.exists())
