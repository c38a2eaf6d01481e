"""The command line in this process and in subprocesses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coterie.data import files

GOLDEN = Path(__file__).parent / "golden"

#: A run that takes a second: 8 clients with 16 training examples each.
TINY = ["--data", "blobs", "--set", "data.clients=8", "--set", "data.samples=20", "--rounds", "3"]
TINY += ["--clients-per-round", "4"]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch, tmp_path):
    """A terminal of 100 columns without colors, in an empty folder."""
    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TERMINAL_WIDTH", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COTERIE_DATA", os.devnull)  # the output must not depend on local files,
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "data")  # nor on earlier downloads
    import typer.rich_utils

    monkeypatch.setattr(typer.rich_utils, "FORCE_TERMINAL", False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def coterie():
    """Call a command: `coterie("run", "--rounds", 3)` → result of click's runner."""
    from coterie.cli.app import app

    def call(*args):
        return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="coterie")

    return call


@pytest.fixture
def tiny():
    return list(TINY)


@pytest.fixture
def process():
    """Start a command in a subprocess; it is killed at the end of the test."""
    started = []

    def start(*args):
        # Background jobs of a shell inherit that SIGINT is ignored.
        reset = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        code = f"{reset}; from coterie.cli import main; main()"
        command = [sys.executable, "-c", code, *(str(arg) for arg in args)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(command, text=True, **pipes))
        return started[-1]

    yield start
    for each in started:
        if each.poll() is None:
            each.kill()
        each.communicate()


def scrubbed(text: str) -> str:
    """Remove what differs between runs, and lists that grow with every new method or data set."""
    text = re.sub(r"\d+(\.\d+)? (ms|s|min|h)\b", "TIME", text.replace(os.getcwd(), "HERE"))
    text = re.sub(r"Known: (.*?)(\. Or|$)", r"Known: …\2", text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


@pytest.fixture
def golden():
    """Compare a text with the stored one; with COTERIE_GOLDEN=write, store it."""

    def check(name: str, text: str) -> None:
        file, text = GOLDEN / f"{name}.txt", scrubbed(text)
        if os.environ.get("COTERIE_GOLDEN") == "write":
            GOLDEN.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8"), (
            "if the change is intended, run make golden and review the diff"
        )

    return check
