"""The style of figures, and one file each for light and dark pages."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

mpl.use("Agg")

#: Colors of clusters; they can be told apart with color blindness and on light and dark pages.
CLUSTERS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#8a6fdf")

#: Drawn for text and lines, and for quiet lines; replaced by colors of the page when a figure is saved.
INK, QUIET = "#010203", "#040506"
_LIGHT = {INK: "#24292f", QUIET: "#8c959f"}
_DARK = {INK: "#e2e4e9", QUIET: "#7d8590"}

STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.prop_cycle": mpl.cycler(color=list(CLUSTERS)),
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "savefig.transparent": True,
    "savefig.bbox": "tight",
    "svg.fonttype": "none",  # text stays text: small files, searchable
    "svg.hashsalt": "coterie",
}
mpl.rcParams.update(STYLE)


def variants(figure: Figure) -> dict[str, str]:
    """The figure as SVG, for `light` and for `dark` pages."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    text = drawn.getvalue()
    found = {}
    for name, colors in {"light": _LIGHT, "dark": _DARK}.items():
        found[name] = text
        for placeholder, color in colors.items():
            found[name] = found[name].replace(placeholder, color)
    return found


def save(figure: Figure, stem: Path) -> None:
    """Write STEM-light.svg and STEM-dark.svg."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    for name, text in variants(figure).items():
        stem.with_name(f"{stem.name}-{name}.svg").write_text(text, encoding="utf-8")


def shown(stem: str, text: str) -> str:
    """Markdown that shows both files of a figure, each on its pages."""
    return f"![{text}]({stem}-light.svg#only-light)\n![{text}]({stem}-dark.svg#only-dark)"
