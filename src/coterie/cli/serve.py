"""coterie serve: a run whose clients are on other machines."""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import flags, signals
from coterie.cli.output import line
from coterie.cli.progress import ProgressDisplay
from coterie.cli.run import new_folder, print_result

if TYPE_CHECKING:
    from coterie.federation.network.roster import Roster
    from coterie.runs.spec import Spec


def serve(
    spec: flags.SpecFile = None,
    method: flags.Method = None,
    model: flags.Model = None,
    clusters: flags.Clusters = None,
    rounds: flags.Rounds = None,
    clients_per_round: flags.ClientsPerRound = None,
    epochs: flags.Epochs = None,
    batch_size: flags.BatchSize = None,
    learning_rate: flags.LearningRate = None,
    seed: flags.Seed = None,
    settings: flags.Settings = None,
    clients: Annotated[
        int | None,
        typer.Option(
            "--clients",
            metavar="N",
            show_default=False,
            help="Clients that must have joined before the run begins (network.clients).",
        ),
    ] = None,
    folder: flags.FederationFolder = flags.FEDERATION,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(metavar="PORT", help="Port to listen on; clients connect to it.")] = 9443,
    out: flags.RecordFolder = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", show_default=False, help="Continue the interrupted run in this record."),
    ] = None,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Run one method with clients on other machines, which keep their data.

    Starts Flower's SuperLink on this machine and a gate in front of it, waits for the clients, runs, and sends each
    client its model. Clients connect with `coterie join`; `coterie admit` lets them. The record is that of `coterie
    run`. A checkpoint is saved after every round.
    """
    from coterie.errors import SpecError

    given = flags.values(
        method=method,
        model=model,
        rounds=rounds,
        clients_per_round=clients_per_round,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
    )
    if clients is not None:
        given["network.clients"] = clients
    if resume is not None and (spec or given or settings or clusters or out):
        raise SpecError("--resume continues a run with its own settings; leave out SPEC.toml, other settings and --out")
    with ProgressDisplay(silent=quiet, waiting="starting") as progress:
        from coterie.deployment import Place, serve

        made = _named(flags.make_spec(spec, given, settings, clusters))
        record_folder = resume or out or new_folder(made)
        say = _Status(quiet, progress)
        progress.expect(made.run.rounds)
        with _resume_hint(record_folder, folder, host, port):
            record = serve(
                made if resume is None else None,
                Place(folder, host, port),
                out=record_folder if resume is None else None,
                resume=resume,
                on_round=progress.step,
                on_status=say.status,
                on_clients=say.clients,
            )
    print_result(record, as_json=as_json)


class _Status:
    """Lines on stderr about the server and its clients, each with the time."""

    def __init__(self, quiet: bool, progress: ProgressDisplay) -> None:
        self._quiet, self._progress = quiet, progress
        self._states: dict[str, tuple[str, str]] = {}

    def status(self, text: str) -> None:
        """Say what the server does."""
        self._progress.describe(text)
        self._line(text)

    def clients(self, roster: Roster) -> None:
        """Say who has come or gone."""
        for client, entry in sorted(roster.entries.items()):
            now = (entry.state, "" if entry.state == "present" else entry.problem)
            if now == self._states.get(client, ("admitted", "")):
                continue
            self._states[client] = now
            more = f": {entry.problem}" if now[1] else ""
            if entry.state == "present" and entry.facts is not None:
                more = f" ({entry.facts.fit:,} training and {entry.facts.test:,} test examples)"
            there = len(roster.present)
            self._line(f"{client} is {entry.state}{more} · {there} present")

    def _line(self, text: str) -> None:
        if not self._quiet:
            line(f"{time.strftime('%H:%M:%S')}  {text}")


def _named(spec: Spec) -> Spec:
    """The spec; without a [data] section the data are called `federation`."""
    from coterie.runs.spec import Named, Spec

    return dataclasses.replace(spec, data=Named("federation")) if spec.data == Spec().data else spec


@contextmanager
def _resume_hint(record: Path, folder: Path, host: str, port: int) -> Iterator[None]:
    """On Ctrl-C, add the command that resumes the run to the message."""
    try:
        with signals.during("run"):
            yield
    except KeyboardInterrupt:
        if (record / "checkpoint").is_dir():
            command = ["coterie", "serve", "--resume", str(record), "--folder", str(folder)]
            command += ["--host", host, "--port", str(port)]
            raise KeyboardInterrupt(f"A checkpoint was saved. Continue with: {shlex.join(command)}") from None
        raise KeyboardInterrupt("The run had not started; nothing was saved.") from None
    finally:
        sys.stderr.flush()
