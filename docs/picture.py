"""Draws docs/images/demonstration.svg from a run of the demonstration.

coterie compare --json > demonstration.json
python docs/picture.py demonstration.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

WIDTH, BAR, GAP, LEFT, SCALE = 720, 22, 14, 90, 5.0
COLOURS = {"accuracy": "#33658a", "worst_tenth": "#f6ae2d"}


def bar(x, y, value, color):
    text = f'<text x="{x + SCALE * 100 * value + 6}" y="{y + BAR / 2 - 2}">{100 * value:.0f} %</text>'
    return f'<rect x="{x}" y="{y}" width="{SCALE * 100 * value:.1f}" height="{BAR / 2 - 1}" fill="{color}"/>{text}'


def picture(table):
    rows = []
    for place, row in enumerate(table):
        y = 46 + place * (BAR + GAP)
        rows.append(
            f'<text x="{LEFT - 10}" y="{y + BAR / 2 + 4}" text-anchor="end" font-weight="bold">{row["method"]}</text>'
        )
        rows += [bar(LEFT, y + i * BAR / 2, row[key], color) for i, (key, color) in enumerate(COLOURS.items())]
    height = 56 + len(table) * (BAR + GAP)
    legend = (
        f'<rect x="{LEFT}" y="14" width="12" height="12" fill="{COLOURS["accuracy"]}"/>'
        f'<text x="{LEFT + 18}" y="24">accuracy of all clients</text>'
        f'<rect x="{LEFT + 180}" y="14" width="12" height="12" fill="{COLOURS["worst_tenth"]}"/>'
        f'<text x="{LEFT + 198}" y="24">of the worst tenth of them</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
        f"{legend}{''.join(rows)}</svg>\n"
    )


if __name__ == "__main__":
    table = json.loads(Path(sys.argv[1]).read_text())["table"]
    Path(__file__).with_name("images").joinpath("demonstration.svg").write_text(picture(table))
