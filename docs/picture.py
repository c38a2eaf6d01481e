"""Draws docs/images/demonstration.svg from the results of the demonstration.

coterie compare --json > demonstration.json
python docs/picture.py demonstration.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

WIDTH, LEFT, TOP, BAR, ROW, SCALE = 720, 175, 92, 11, 38, 5.0
COLORS = {"last_ten": "#33658a", "worst_tenth_last_ten": "#f6ae2d"}
LEGEND = {"last_ten": "all 40 clients", "worst_tenth_last_ten": "worst 10 % of clients"}
TITLE = "Test accuracy, mean of rounds 51 to 60"
SUBTITLE = "40 clients, images rotated by 0°, 90°, 180° or 270°"

#: What each method of the demonstration trains.
MODELS = {
    "fedavg": "one model",
    "fedprox": "one model",
    "local": "one model per client",
    "ifca": "one model per cluster",
    "fedgroup": "one model per cluster",
    "flexcfl": "one model per cluster",
    "oracle": "one model per true cluster",
}


def text(x, y, words, **attributes):
    shown = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:g}" y="{y:g}"{shown}>{words}</text>'


def rectangle(x, y, width, height, color):
    return f'<rect x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}" fill="{color}"/>'


def bar(y, value, color):
    width = SCALE * 100 * value
    return rectangle(LEFT, y, width, BAR - 1, color) + text(LEFT + width + 6, y + 9, f"{100 * value:.0f} %")


def picture(table):
    shapes = [text(16, 26, TITLE, font_size=14, font_weight="bold"), text(16, 44, SUBTITLE, font_size=12, fill="#555")]
    for place, (key, color) in enumerate(COLORS.items()):
        x = LEFT + 130 * place
        shapes += [rectangle(x, 60, 12, 12, color), text(x + 18, 70, LEGEND[key])]
    for place, row in enumerate(table):
        y, name = TOP + place * ROW, row["method"]
        shapes.append(text(LEFT - 12, y + 10, name, text_anchor="end", font_weight="bold"))
        shapes.append(text(LEFT - 12, y + 23, MODELS.get(name, ""), text_anchor="end", fill="#555"))
        shapes += [bar(y + BAR * i, row[key], color) for i, (key, color) in enumerate(COLORS.items())]
    height = TOP + len(table) * ROW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="11" role="img" aria-label="{TITLE}: {SUBTITLE}">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(shapes) + "\n</svg>\n"
    )


if __name__ == "__main__":
    table = json.loads(Path(sys.argv[1]).read_text())["table"]
    Path(__file__).with_name("images").joinpath("demonstration.svg").write_text(picture(table))
