"""Measure the cards of all methods and write src/coterie/methods/cards.json: `make cards`.

A card says what a method sends and what the server sees, measured in a short run with default settings. `coterie
methods NAME` and the site show the stored card.

python docs/cards.py            write the cards
python docs/cards.py --check    exit code 1 if they are out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

from coterie.methods import METHODS
from coterie.runs.method_card import measure_card, to_json

CARDS = Path(__file__).parents[1] / "src" / "coterie" / "methods" / "cards.json"


def main() -> int:
    """Write the file, or check it."""
    cards = {}
    for number, name in enumerate(METHODS, start=1):
        print(f"{number} of {len(METHODS)}: {name}", file=sys.stderr)
        cards[name] = measure_card(name)
    text = to_json(cards)
    stale = not CARDS.exists() or CARDS.read_text(encoding="utf-8") != text
    if "--check" in sys.argv[1:]:
        print("cards.json is out of date; run: make cards" if stale else "cards.json is up to date")
        return int(stale)
    CARDS.write_text(text, encoding="utf-8")
    print(f"{len(cards)} cards, {'changed' if stale else 'unchanged'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
