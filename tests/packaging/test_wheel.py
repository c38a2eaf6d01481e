"""The wheel installs into a fresh environment and runs the demonstration there, outside the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command without the repository in its environment and return its standard output."""
    kept = ("PATH", "HOME", "PIP_INDEX_URL", "PIP_CACHE_DIR", "PIP_CONFIG_FILE", "TMPDIR", "LANG", "PYENV_VERSION")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def interpreter(version: str) -> str:
    """The command of an installed interpreter of this version; skips the test if there is none."""
    found = (
        sys.executable
        if version == f"{sys.version_info[0]}.{sys.version_info[1]}"
        else shutil.which(f"python{version}")
    )
    if found is None or subprocess.run([found, "--version"], capture_output=True).returncode:
        candidates = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        if not candidates:
            pytest.skip(f"Python {version} is not installed")
        found = str(candidates[-1])
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_wheel_runs_the_demonstration_in_a_fresh_environment(version: str, wheel: Path, tmp_path: Path):
    run(interpreter(version), "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    recorded = ("--out", "records", "--report")
    printed = run(tmp_path / "venv/bin/coterie", "compare", "--rounds", "5", *recorded, "--json", cwd=tmp_path)
    found = json.loads(printed)
    assert {row["method"] for row in found["table"]} >= {"fedavg", "ifca", "fedgroup", "flexcfl", "oracle"}
    assert found["runs"][0]["versions"]["python"].startswith(version)
    assert (tmp_path / found["page"]).read_text(encoding="utf-8").startswith("<!doctype html>")  # the assets are there
    page = json.loads(run(tmp_path / "venv/bin/coterie", "methods", "ifca", "--json", cwd=tmp_path))
    assert page["card"]["round"] == {"train": [4.0, 1.0]}
    (cards,) = (tmp_path / "venv").glob("lib/python*/site-packages/coterie/methods/cards.json")
    assert "ifca" in json.loads(cards.read_text(encoding="utf-8"))
