"""The page about reliability shows the stored results of a full campaign."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from coterie.methods import METHODS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def reliability():
    spec = importlib.util.spec_from_file_location("docs_reliability", DOCS / "reliability.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def results():
    return json.loads((DOCS / "reliability.json").read_text(encoding="utf-8"))


def test_the_page_has_the_table_of_the_stored_results(reliability, results):
    text = (DOCS / "reliability.md").read_text(encoding="utf-8")
    assert reliability.page(text, results) == text, "run: python docs/reliability.py"


@pytest.mark.parametrize(("part", "least"), [("specs", 10_000), ("data files", 900), ("damage", 1_000)])
def test_the_stored_results_are_those_of_a_full_campaign(reliability, results, part, least):
    assert reliability.tried(result for result in results if result["part"] == part) >= least


@pytest.mark.parametrize(("part", "least"), [("kills", 10), ("faults", 10)])
def test_the_stored_results_cover_every_method(reliability, results, part, least):
    counts = {result["case"]: reliability.tried([result]) for result in results if result["part"] == part}
    assert counts.keys() == set(METHODS)
    assert min(counts.values()) >= least


def test_a_table_adds_up_the_cases_of_a_part(reliability):
    results = [
        {"part": "kills", "case": "a", "outcomes": {"resumed": 1200, "killed twice": 3}},
        {"part": "kills", "case": "b", "outcomes": {"resumed": 5, "started again": 1}},
        {"part": "endurance", "case": "rounds", "outcomes": {"finished": 9}, "bytes_each": 1500},
    ]
    assert reliability.table(results).splitlines()[2:] == [
        "| SIGKILL at a file operation, then resume; 2 methods | 1,206 "
        "| 1,205 resumed; 1 started again; 3 of these killed twice |",
        "| Flat memory: rounds | 9 | 9 finished; 1,500 bytes more each |",
    ]
