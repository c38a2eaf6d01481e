"""The page as one file: nothing from a record can leave the element that holds the data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from coterie.reports.page.build import build_page, embedded
from coterie.reports.page_report import report_data
from coterie.runs.client_facts import RecordedFacts

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "<!-- <script>",
    "{{data}}",
    "/*{page.js}*/",
    "a\"b'c\\",
    "\u2028\u2029",
    "مستشفى \U0001f3e5",
    "x" * 500,
)


class Elements(HTMLParser):
    """Collects the elements of a page, and the text in its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.comments: list[str] = []
        self.inside = False

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = attributes, text + data

    def handle_comment(self, data):
        self.comments.append(data)


def parsed(page):
    elements = Elements()
    elements.feed(page)
    return elements


@pytest.fixture
def hostile(write):
    """The data of a run whose clients have hostile names."""
    answers = [{name: (place % 2, place) for place, name in enumerate(HOSTILE)}]
    facts = RecordedFacts(HOSTILE, np.full(len(HOSTILE), 3), None, np.ones((len(HOSTILE), 2), int))
    losses = {"clients": list(HOSTILE), "losses": np.arange(2.0 * len(HOSTILE)).reshape(-1, 2)}
    return report_data(write(answers, facts=facts, evidence={0: losses}, summary={"source": "</script><b>"}))


def test_hostile_texts_come_back_from_the_json_and_nowhere_else(hostile, write):
    plain = parsed(build_page(report_data(write([{"a": (0, 1)}], name="plain"))))
    found = parsed(build_page(hostile))
    assert found.tags == plain.tags
    assert found.comments == plain.comments
    data = json.loads(found.scripts[0][1])
    assert found.scripts[0][0]["id"] == "report-data"
    assert tuple(data["runs"][0]["clients"]["name"]) == HOSTILE
    assert data == json.loads(json.dumps(hostile))


def test_no_character_of_the_embedded_data_is_markup(hostile):
    text = embedded(hostile)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == json.loads(json.dumps(hostile))


def test_the_title_is_escaped(hostile):
    page = build_page({**hostile, "title": "</title><script>alert(1)</script>{{data}}"})
    assert "<title>&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;{{data}}</title>" in page


def test_the_policy_allows_the_one_script_of_the_page_and_no_request(hostile):
    page = build_page(hostile)
    (script,) = (text for attributes, text in parsed(page).scripts if attributes.get("type") is None)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    assert f"script-src 'sha256-{digest}'" in policy
    assert "connect-src 'none'" in policy
    assert "connect-src 'self'" in build_page(hostile, connect="'self'")


def test_the_page_is_self_contained(hostile):
    page = build_page(hostile)
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page)
    assert not re.findall(r"/\*\{[a-z_]+\.(?:js|css)\}\*/", page.replace("/*{page.js}*/", "", page.count(HOSTILE[4])))
    assert "@import" not in page


def test_numbers_that_are_none_are_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded({"title": float("nan")})
