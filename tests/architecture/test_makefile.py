"""The lists of tests in the Makefile are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Packages that only the environment of the extras has.
NEEDS = re.compile(r"importorskip\(\s*\"(torch|onnx|onnxruntime|polars|mlflow|wandb)\"")


def variable(name: str) -> list[str]:
    """The words of a variable of the Makefile."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    return re.search(rf"^{name} := (.*)$", text, re.MULTILINE)[1].split()


def needing() -> list[str]:
    """The test files that are skipped, in part or as a whole, without one of these packages."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(file.relative_to(ROOT)) for file in files if NEEDS.search(file.read_text(encoding="utf-8"))]


def test_files_that_need_an_extra_are_found():
    assert "tests/torch/test_modules.py" in needing()


@pytest.mark.parametrize("file", needing())
def test_a_file_that_needs_an_extra_runs_in_the_environment_that_has_it(file):
    assert any(file == listed or file.startswith(f"{listed}/") for listed in variable("EXTRAS_TESTS"))


@pytest.mark.parametrize("name", ["EXTRAS_TESTS", "OPTIMIZED", "DEPLOYMENT", "RAY_TESTS", "WORDING"])
def test_the_listed_files_and_folders_exist(name):
    assert [listed for listed in variable(name) if not (ROOT / listed).exists()] == []
