"""Live pages in a browser, beside a real run that is killed and resumed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coterie.reports.live import feeds

server_module = pytest.importorskip("coterie.reports.live.server", reason="needs the extra watch")

pytestmark = [pytest.mark.slow, pytest.mark.network]

RUN = ["--data", "blobs", "--set", "data.clients=8", "--set", "data.samples=20", "--clients-per-round", "4"]
RUN += ["--method", "ifca", "--clusters", "2", "--set", "run.checkpoint_every=1", "--rounds", "20000"]

#: Three rounds of two clients: cluster, and correct answers of ten.
ANSWERS = [{"a": (0, 5), "b": (1, 6)}, {"a": (0, 7), "b": (1, 6)}, {"a": (0, 8), "b": (1, 9)}]

POINTS = "Number(document.querySelector('#figure-score .line')?.dataset.points ?? 0)"
WORDS = "document.querySelector('.live-words').textContent"


@pytest.fixture(autouse=True)
def hardly_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are made more often than for users, so that tests are short."""
    monkeypatch.setattr(feeds, "PAUSE", 0.5)
    monkeypatch.setattr(feeds, "REST", 2.0)


@pytest.fixture
def coterie() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a command in a process, which is killed at the end of the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: str) -> subprocess.Popen[bytes]:
        code = "from coterie.cli import main; main()"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started.append(subprocess.Popen([sys.executable, "-c", code, *args], **quiet))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Address of the pages of the folder `runs`."""
    server = server_module.LiveServer(tmp_path / "runs")
    thread = threading.Thread(target=server.run)
    thread.start()
    yield server.address
    server.stop()
    thread.join(10)


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address; afterwards the page must have written no error."""
    errors: list[str] = []
    contexts = []

    def visit(address: str, width: int = 1280) -> Any:
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(address)
        page.locator("html[data-ready]").wait_for(state="attached")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert errors == []


def until(page: Any, condition: str) -> None:
    """Wait for a condition; the pages do not allow playwright to wait inside them, since they evaluate no text."""
    limit = time.monotonic() + 30
    while not page.evaluate(condition):
        assert time.monotonic() < limit, condition
        page.wait_for_timeout(50)


@pytest.mark.exhaustive  # tests/reports/live and test_live.py follow records without a process that is killed
def test_the_page_gains_rounds_and_follows_a_run_that_is_killed_and_resumed(coterie, address, visit, tmp_path):
    folder = str(tmp_path / "runs" / "one")
    page = visit(address)
    assert "does not exist yet" in page.locator("main").inner_text()
    run = coterie("run", *RUN, "--out", folder)
    page.get_by_role("link", name="one").click(timeout=60_000)
    page.locator(".live-bar[data-status=running]").wait_for(timeout=30_000)
    until(page, f"{POINTS} > 0")
    before = page.evaluate(POINTS)
    until(page, f"{POINTS} > {before}")
    run.kill()
    run.wait()
    page.locator(".live-bar[data-status=interrupted]").wait_for(timeout=30_000)
    assert f"Continue with: coterie resume {folder}" in page.evaluate(WORDS)
    until(page, "document.querySelector('.notice.interrupted') !== null")
    stopped = page.evaluate(POINTS)
    coterie("resume", folder)
    page.locator(".live-bar[data-status=running]").wait_for(timeout=60_000)
    until(page, f"{POINTS} > {stopped}")
    assert "per round" in page.evaluate(WORDS)
    page.get_by_role("link", name="All runs").click()
    page.locator(".status[data-status=running]").wait_for(timeout=30_000)


def test_the_list_fits_a_phone_and_has_no_serious_fault_of_access(write, address, visit, axe):
    write(ANSWERS, name="runs/one/" + "long-name-" * 12)
    page = visit(address, width=390)
    page.locator(".status[data-status=done]").wait_for(timeout=30_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.evaluate(axe)
    found = page.evaluate("axe.run()")["violations"]
    assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []


def test_the_page_stays_when_the_server_ends(write, visit):
    server = server_module.LiveServer(write(ANSWERS))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        page = visit(server.address)
        page.locator(".live-bar[data-status=done]").wait_for(timeout=30_000)
    finally:
        server.stop()
        thread.join(10)
    until(page, f"{WORDS}.includes('The server has ended')")
    assert page.evaluate(POINTS) == 3
    assert page.locator(".live-bar").get_attribute("data-status") == "done"
