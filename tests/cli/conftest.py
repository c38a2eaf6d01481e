"""The command line in this process, and in processes of its own."""

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

#: A run of a second: 8 clients with 16 training examples each.
TINY = [
    "--data",
    "blobs",
    "--set",
    "data.clients=8",
    "--set",
    "data.samples=20",
    "--rounds",
    "3",
    "--clients-per-round",
    "4",
]


@pytest.fixture(autouse=True)
def plain_screen(monkeypatch, tmp_path):
    """A screen of 100 columns without colors, and a folder of one's own to be in."""
    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TERMINAL_WIDTH", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COTERIE_DATA", os.devnull)  # what is at hand must not depend on the machine,
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "data")  # nor on what was downloaded before
    import typer.rich_utils

    monkeypatch.setattr(typer.rich_utils, "FORCE_TERMINAL", False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def coterie():
    """Call a command: `coterie("run", "--rounds", 3)` → what click's runner gives."""
    from coterie.cli.app import app

    def call(*args):
        return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="coterie")

    return call


@pytest.fixture
def tiny():
    return list(TINY)


@pytest.fixture
def process():
    """Start a command in a process of its own; it is killed if it is left over."""
    started = []

    def start(*args):
        # Whoever starts the tests in the background of a shell hands down that Ctrl-C is ignored.
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
    """Without what differs from run to run, or whenever a method or data set is added."""
    text = re.sub(r"\d+(\.\d+)? (ms|s|min|h)\b", "TIME", text.replace(os.getcwd(), "HERE"))
    text = re.sub(r"Known: (.*?)(\. Or|$)", r"Known: …\2", text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


@pytest.fixture
def golden():
    """Compare a text with the one that is kept, or keep it: COTERIE_GOLDEN=write."""

    def check(name: str, text: str) -> None:
        file, text = GOLDEN / f"{name}.txt", scrubbed(text)
        if os.environ.get("COTERIE_GOLDEN") == "write":
            GOLDEN.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8"), "if this is meant: make golden, and look at the difference"

    return check
