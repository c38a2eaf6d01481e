"""Report pages in headless Chromium, driven by playwright.

Chromium is the one of the system (`COTERIE_CHROMIUM`, or `chromium`, `chromium-browser`, `google-chrome` in the path);
nothing is downloaded. Without Chromium or playwright the tests are skipped.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from coterie.reports.page.build import build_page

AXE = Path(__file__).parents[3] / "build" / "browser" / "node_modules" / "axe-core" / "axe.min.js"


@dataclass
class Opened:
    """A page, and what it wrote to the console and asked of the network."""

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def draw_all(self) -> None:
        """Draw the charts that are far below, too."""
        self.page.evaluate("coterieReport.drawAll()")

    def download(self, name: str) -> Path:
        """The file that a button gives, named by its accessible name.

        On a busy machine Chromium now and then starts no download at a click, so a second click is allowed.
        """
        from playwright.sync_api import TimeoutError as TooLate

        try:
            return self._downloaded(name, seconds=10)
        except TooLate:
            return self._downloaded(name, seconds=30)

    def _downloaded(self, name: str, seconds: int) -> Path:
        with self.page.expect_download(timeout=1000 * seconds) as caught:
            self.page.get_by_role("button", name=name, exact=True).click()
        return Path(caught.value.path())


@pytest.fixture(scope="session")
def samples() -> ModuleType:
    """The module `samples`, which is no package that could be imported by name."""
    spec = importlib.util.spec_from_file_location("page_samples", Path(__file__).with_name("samples.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, which checks accessibility."""
    if not AXE.exists():
        pytest.skip("axe-core is missing: `make setup` installs it with npm into build/browser")
    return AXE.read_text(encoding="utf-8")


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Open data as a page from disk; afterwards the page must have made no request and written no error."""
    opened: list[tuple[Opened, Any]] = []

    def open_it(data: dict[str, Any], *, width: int = 1280, scheme: str = "light", **options: Any) -> Opened:
        file = tmp_path / f"page{len(opened)}.html"
        file.write_text(build_page(data), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        found = Opened(context.new_page())
        opened.append((found, context))
        found.page.on("console", lambda message: found.errors.append(message.text))
        found.page.on("pageerror", lambda error: found.errors.append(str(error)))
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.goto(file.as_uri())
        found.page.locator("html[data-ready]").wait_for(state="attached")
        return found

    yield open_it
    for found, context in opened:
        context.close()
        assert found.errors == []
        own = ("file://", "data:", "blob:")
        assert [url for url in found.requests if not url.startswith(own)] == []
        assert len([url for url in found.requests if url.startswith("file://")]) == 1
