"""Options and fixtures for all tests."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest

# An example that takes long on a loaded machine is not a failure.
hypothesis.settings.register_profile("coterie", deadline=None)
hypothesis.settings.load_profile("coterie")

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-sync",
]

#: Count of the campaign (`tests/campaign`) → its share in `make test`, all of it in `make test-all`, meaning.
CAMPAIGN = {
    "specs": (300, 10_000, "fuzzed specs and command lines"),
    "files": (100, 1_000, "malformed data files"),
    "damages": (40, 1_000, "damaged records"),
    "kills": (2, 10, "kills per method; all file operations of two methods with --campaign-full"),
    "examples": (1, 4, "runs with faults per method and attack"),
    "rounds": (60, 1_000, "rounds of one run with flat memory"),
    "runs": (10, 200, "runs in one process with flat memory"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=3, help="number of seeds in tests that repeat over seeds")
    group = parser.getgroup("campaign", "crash, fuzz and fault campaign (tests/campaign)")
    group.addoption("--campaign-full", action="store_true", help="all of the campaign instead of a small share")
    group.addoption("--campaign-seed", type=int, default=0, help="seed of everything the campaign draws")
    group.addoption("--campaign-results", metavar="DIR", help="folder for the results, as JSON")
    for name, (small, full, what) in CAMPAIGN.items():
        group.addoption(f"--campaign-{name}", type=int, help=f"number of {what}; default: {small}, in full {full}")


@pytest.fixture(scope="session")
def seeds(request: pytest.FixtureRequest) -> range:
    """Seeds for tests that repeat a run: three per commit, ten in `make test-all`."""
    return range(request.config.getoption("--seeds"))


@pytest.fixture(scope="session", autouse=True)
def commands_are_built_once() -> Iterator[None]:
    """Typer builds all commands again at every call, for 0.1 s; the tests call thousands. Commands have no state."""
    import typer.main
    import typer.testing

    built = functools.cache(typer.main.get_command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", built)
        patch.setattr(typer.testing, "_get_command", built)
        yield


@pytest.fixture(scope="session")
def campaign(request: pytest.FixtureRequest) -> SimpleNamespace:
    """Counts and seed of the campaign."""
    option = request.config.getoption
    full = option("--campaign-full")
    counts = {name: option(f"--campaign-{name}") for name in CAMPAIGN}
    usual = {name: row[full] for name, row in CAMPAIGN.items()}
    chosen = {name: usual[name] if count is None else count for name, count in counts.items()}
    return SimpleNamespace(full=full, seed=option("--campaign-seed"), **chosen)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium. There is one per process: playwright cannot be started twice."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install 'coterie[dev]'")
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("COTERIE_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("Chromium is missing: install it (apt-get install chromium) or set COTERIE_CHROMIUM")
    with api.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=found, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()
