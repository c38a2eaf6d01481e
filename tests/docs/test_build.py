"""The generated pages and cards of the methods are up to date."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from coterie.methods import METHODS
from coterie.runs.method_card import measure_card, shipped_card, to_json

DOCS = Path(__file__).parents[2] / "docs"

#: Compared on every commit; measuring the other cards takes longer.
QUICK = ("fedavg", "fedgroup", "ifca")


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("docs_build", DOCS / "build.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_build"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.exhaustive) for name in METHODS]
)
def test_the_shipped_card_of_a_method_equals_a_measured_one(name):
    assert shipped_card(name) == measure_card(name), "run: make docs"


@pytest.mark.parametrize("name", METHODS)
def test_the_page_of_a_method_is_up_to_date(build, name):
    page = build.page(name, shipped_card(name))
    assert (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8") == page, "run: make docs"


def test_the_index_lists_every_method_and_there_are_no_other_pages(build):
    assert (DOCS / "methods" / "README.md").read_text(encoding="utf-8") == build.index(), "run: make docs"
    assert {path.stem for path in (DOCS / "methods").glob("*.md")} == {"README", *METHODS}


def test_the_stored_cards_are_those_of_all_methods(build):
    cards = {name: shipped_card(name) for name in METHODS}
    assert None not in cards.values()
    assert build.CARDS.read_text(encoding="utf-8") == to_json(cards), "run: make docs"


def test_methods_of_other_packages_have_no_shipped_card():
    assert shipped_card("my-method") is None
