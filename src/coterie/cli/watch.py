"""coterie watch: the page of a run while it goes on, or the list of the runs in a folder; and `coterie run --watch`."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli import flags
from coterie.cli.output import document, line, note, result

#: Seconds that the server of `coterie run --watch` has for sending the end of the run to browsers.
_LAST = 12.0


def watch(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|DIR", help="Folder of a record, or folder with records; subfolders are searched, too."
        ),
    ] = Path("runs"),
    port: Annotated[int, typer.Option(metavar="PORT", help="Port on this machine; 0: a free one.")] = 0,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the folder, if it does not exist yet.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the address as one JSON document; then serve until Ctrl-C.")
    ] = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Watch a run, or all runs in a folder, in a browser: a page that is updated as runs progress.

    It reads records of `coterie run` and `coterie serve`, and also follows runs
    that are killed and resumed. The server listens on this machine only, and the
    printed address has a secret token. Ctrl-C ends the server, not the run.
    """
    _check(path, wait=wait)
    require()
    from coterie.reports.live.server import LiveServer

    server = LiveServer(path, port)
    if as_json:
        document({"address": server.address, "path": str(path)})
    else:
        result(server.address)
    sys.stdout.flush()
    if not quiet and not as_json:
        line(f"Watching {path}. Ctrl-C ends the server, not the run.")
    if show:
        _open(server.address)
    with contextlib.suppress(AttributeError, OSError):
        os.nice(5)  # runs on this machine come first
    with contextlib.suppress(KeyboardInterrupt):
        server.run()


def require() -> None:
    """Raise SpecError if the extra is not installed."""
    from coterie.errors import SpecError

    try:
        importlib.import_module("coterie.reports.live.server")
    except ImportError as fault:
        raise SpecError(f"Live pages need an extra: pip install 'coterie[watch]' ({fault})") from fault


@contextlib.contextmanager
def beside(folder: Path, *, quiet: bool) -> Iterator[None]:
    """Serve the page of a run, in a process of its own, while the run goes on.

    Nothing that happens to the server reaches the run; a server that fails is reported once.

    Args:
        folder: Folder of the record; it need not exist yet.
        quiet: Print nothing.
    """
    command = [sys.executable, "-m", "coterie.reports.live", str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        # In a session of its own, since Ctrl-C is for the run; the server ends when its input does.
        server = subprocess.Popen(command, **pipes, start_new_session=True)  # type: ignore[call-overload]
    except OSError as fault:
        note(f"The live page cannot be served ({fault}); the run goes on.")
        yield
        return
    ending = threading.Event()
    reader = threading.Thread(target=_report, args=(server, folder, ending, quiet), daemon=True)
    reader.start()
    try:
        yield
    finally:
        ending.set()
        with contextlib.suppress(OSError):
            server.stdin.close()
        try:
            server.wait(_LAST)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        reader.join(1.0)


def _report(server: subprocess.Popen[bytes], folder: Path, ending: threading.Event, quiet: bool) -> None:
    """Print the address of the server; if the server fails, print that once."""
    said = "no message"
    with server.stdout or contextlib.nullcontext(()) as lines:
        for each in lines:
            text = each.decode(errors="replace").strip()
            try:
                address = json.loads(text)["address"]
            except (ValueError, KeyError, TypeError):
                said = text or said
                continue
            if not quiet:
                line(f"Live page: {address}")
    if not ending.is_set():
        again = shlex.join(["coterie", "watch", str(folder)])
        note(f"The live page has ended ({said}); the run goes on. To start it again: {again}")


def _check(path: Path, *, wait: bool) -> None:
    from coterie.errors import RecordError

    if path.is_file():
        raise RecordError(f"{path} is a file; give the folder of a record, or a folder with records")
    if not path.exists() and not wait:
        raise RecordError(
            f"The folder {path} does not exist; `coterie run` writes records to runs. "
            "To wait for a run that has not started: --wait"
        )


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        note("No browser was found; open the address yourself.")
