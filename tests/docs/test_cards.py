"""The stored cards of the methods are up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.methods import METHODS
from coterie.runs.method_card import measure_card, shipped_card, to_json

CARDS = Path(__file__).parents[2] / "src" / "coterie" / "methods" / "cards.json"

#: Compared on every commit; measuring the other cards takes longer.
QUICK = ("fedavg", "fedgroup", "ifca")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.exhaustive) for name in METHODS]
)
def test_the_shipped_card_of_a_method_equals_a_measured_one(name):
    assert shipped_card(name) == measure_card(name), "run: make cards"


def test_the_stored_cards_are_those_of_all_methods():
    cards = {name: shipped_card(name) for name in METHODS}
    assert None not in cards.values()
    assert CARDS.read_text(encoding="utf-8") == to_json(cards), "run: make cards"


def test_methods_of_other_packages_have_no_shipped_card():
    assert shipped_card("my-method") is None
