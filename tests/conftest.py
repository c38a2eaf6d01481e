"""Options and fixtures for all tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=3, help="number of seeds in tests that repeat over seeds")


@pytest.fixture(scope="session")
def seeds(request: pytest.FixtureRequest) -> range:
    """Seeds for tests that repeat a run: three per commit, ten in `make test-all`."""
    return range(request.config.getoption("--seeds"))
