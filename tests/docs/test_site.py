"""The built site in a browser: search, no request to another host, no console error. Needs `make docs` first."""

from __future__ import annotations

import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from sitebuilder import links
from sitebuilder.paths import DOCS, SITE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="the site is not built: make docs"),
]
PAGES = ["index.html", "methods/fedgroup.html", "tutorials/first-run.html", "reference/settings.html"]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Nothing on stderr."""


@pytest.fixture(scope="module")
def server():
    """Address of the site on the loopback interface."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(SITE))) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


@pytest.fixture
def page(browser):
    """A page of the browser, with what went wrong in it under `problems`."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.problems = []
    opened.on("console", lambda line: opened.problems.append(line.text) if line.type == "error" else None)
    opened.on("pageerror", lambda error: opened.problems.append(str(error)))
    yield opened
    opened.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opened_from_disk_loads_nothing_else_and_has_no_error(page, name):
    page.on("request", lambda request: page.problems.append(request.url) if request.url[:5] != "file:" else None)
    page.goto((SITE / name).as_uri())
    page.wait_for_load_state("load")
    assert page.problems == []


def test_the_pytorch_tutorial_has_its_output(page):
    page.goto((SITE / "tutorials" / "pytorch.html").as_uri())
    if page.get_by_text("Not run").count():
        pytest.skip("the site was built without PyTorch (make docs DOCS_TORCH=)")
    shown = "".join(page.locator(".output").all_inner_texts())
    assert "accuracy 0." in shown
    assert "largest difference between probabilities: " in shown


@pytest.mark.parametrize("place", ["disk", "server"])
def test_search_finds_newcomer(page, server, place):
    page.goto((SITE / "index.html").as_uri() if place == "disk" else f"{server}/index.html")
    assert page.get_by_role("option").count() == 0
    page.keyboard.press("Control+k")
    page.get_by_placeholder("Search").wait_for()
    page.keyboard.type("newcomer", delay=30)
    page.get_by_role("option", name=re.compile("newcomer", re.IGNORECASE)).first.wait_for(timeout=10_000)
    assert page.problems == []


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_a_phone(browser, name):
    opened = browser.new_page(viewport={"width": 390, "height": 844})
    opened.goto((SITE / name).as_uri())
    width = opened.evaluate("document.documentElement.scrollWidth")
    opened.close()
    assert width <= 390


def test_equations_are_typeset(page):
    page.goto((SITE / "methods" / "fedgroup.html").as_uri())
    if page.locator(".arithmatex").count():
        pytest.skip("the site was built without KaTeX (npm is missing)")
    source = (DOCS / "methods" / "fedgroup.md").read_text(encoding="utf-8")
    assert page.locator(".katex-display").count() == source.count("$$") // 2 > 0
    assert page.locator(".katex-error").count() == 0


def test_no_link_of_the_site_is_broken():
    assert links.broken_in_site(SITE) == []
