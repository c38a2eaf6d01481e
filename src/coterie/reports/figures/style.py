"""How figures look: sizes of columns in papers, fonts, and colors, lines and markers that differ in gray print.

Figures are `matplotlib.figure.Figure` objects; pyplot, which keeps global state, is not used. Settings of matplotlib
apply only while a figure is created or written, so that those of the user stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from coterie.errors import SpecError, unknown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Width of a figure in inches: one or two columns of a paper (IEEE; the text of NeurIPS and ICML is slightly narrower).
WIDTHS = {"one": 3.5, "two": 7.16}

#: Colors that people with color blindness tell apart (Okabe and Ito), without the yellow, which is too light for lines.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#000000", "#cc79a7", "#56b4e9", "#e69f00")
#: Line styles and markers; their numbers have no common divisor with that of the colors, so that the first 308
#: combinations differ.
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1.2, 1, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "*")
#: Looks of bars: face, edge and pattern. Dark, light and patterned ones alternate.
BARS = (
    ("#0072b2", "#0072b2", ""),
    ("white", "#d55e00", "/////"),
    ("#c8c8c8", "#767676", ""),
    ("white", "#000000", "xxxxx"),
    ("white", "#cc79a7", "....."),
    ("#000000", "#000000", ""),
    ("white", "#009e73", "-----"),
)
#: Color of help lines and of what has no cluster.
GRAY = "#767676"

#: Labels that come last in a legend.
NO_CLUSTER, MISCLUSTERED = "no cluster", "misclustered"
_LAST = (NO_CLUSTER, MISCLUSTERED)

#: Name of a font → settings. All of them are part of matplotlib: files are the same on every machine.
FONTS: dict[str, dict[str, Any]] = {
    "sans": {"font.family": "DejaVu Sans", "mathtext.fontset": "dejavusans"},
    "serif": {"font.family": "STIXGeneral", "mathtext.fontset": "stix"},
}
_SIZES = {"sans": 7.0, "serif": 8.5}  # DejaVu Sans is large for its size

Font = Literal["sans", "serif"]


@dataclass(frozen=True)
class Look:
    """How one method is drawn in all panels of a figure."""

    color: str
    line: Any
    marker: str


def look(position: int) -> Look:
    """The look of the method at a position."""
    return Look(
        COLORS[position % len(COLORS)],
        LINES[position % len(LINES)],
        MARKERS[position % len(MARKERS)],
    )


def load_matplotlib() -> Any:
    """Import matplotlib; the error names the extra."""
    try:
        import matplotlib
    except ImportError as fault:
        raise SpecError("Figures need matplotlib: pip install 'coterie[figures]'") from fault
    return matplotlib


def settings(font: str = "sans") -> dict[str, Any]:
    """The settings of matplotlib for figures in papers, for `matplotlib.rc_context`."""
    if font not in FONTS:
        raise SpecError(unknown("font", font, FONTS))
    size = _SIZES[font]
    return {
        **FONTS[font],
        "font.size": size,
        "axes.labelsize": size,
        "axes.titlesize": size,
        "xtick.labelsize": size - 0.5,
        "ytick.labelsize": size - 0.5,
        "legend.fontsize": size - 0.5,
        "legend.frameon": False,
        "legend.handlelength": 2.4,
        "legend.columnspacing": 1.2,
        "legend.borderaxespad": 0.3,
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": False,
        "axes.axisbelow": True,
        "grid.linewidth": 0.4,
        "grid.color": "#d9d9d9",
        "lines.linewidth": 1.1,
        "lines.markersize": 3.2,
        "hatch.linewidth": 0.5,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "figure.dpi": 150,
        "figure.constrained_layout.use": True,
        "figure.constrained_layout.w_pad": 0.03,
        "figure.constrained_layout.h_pad": 0.03,
    }


#: Settings with which files are written. Fonts are embedded as TrueType, which publishers ask for; Type 3 is what they
#: refuse. Ids in SVG files are made from the salt, so that the same figure is the same file.
FILES: dict[str, Any] = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.hashsalt": "coterie"}


@contextmanager
def styled(font: str = "sans", **more: Any) -> Iterator[None]:
    """Apply the settings for figures in papers; afterwards those of the user apply again."""
    with load_matplotlib().rc_context({**settings(font), **more}):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches. Call it within `styled`."""
    load_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


@contextmanager
def axes_of(ax: Axes | None) -> Iterator[Axes]:
    """The given axes, in the style of their figure; or those of a new figure of one column, in the style of papers."""
    if ax is not None:
        yield ax
        return
    with styled():
        figure = new_figure(WIDTHS["one"], 2.3)
        yield figure.add_subplot()
        keep_style(figure)


def keep_style(figure: Figure) -> None:
    """Make ticks keep the present settings, although matplotlib creates some when the figure is written."""
    rc = load_matplotlib().rcParams
    for axes in figure.axes:
        names: tuple[Literal["x", "y"], ...] = ("x", "y")
        for name in names:
            axis = getattr(axes, f"{name}axis")
            given = axis.get_tick_params()
            tick = {key: rc[f"{name}tick.major.{key}"] for key in ("width",)}
            tick["length"] = given.get("length", rc[f"{name}tick.major.size"])
            font = rc["font.family"][0]
            axes.tick_params(axis=name, labelsize=rc[f"{name}tick.labelsize"], labelfontfamily=font, **tick)


def few_ticks(axes: Axes, *, integers: bool = False) -> None:
    """As many numbers on each axis as fit, whole ones on the horizontal axis if asked for, with light help lines."""
    from matplotlib.ticker import MaxNLocator

    inches = axes.bbox.width / axes.figure.dpi
    axes.xaxis.set_major_locator(
        MaxNLocator(4 if inches < 1.6 else 5 if inches < 4 else 9, integer=integers, steps=[1, 2, 2.5, 5, 10])
    )
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(axis="y", linewidth=0.4, color="#d9d9d9")


def add_legend(axes: Axes, *, outside: bool) -> None:
    """A legend of the axes: above them where the figure is ours, otherwise where matplotlib finds room."""
    if outside:
        figure: Any = axes.figure
        legend_above(figure, figure.axes)
    else:
        axes.legend()


def legend_above(figure: Figure, panels: Sequence[Axes], *, always: bool = True, below: bool = False) -> None:
    """One legend for several axes above (or below) them, with as many columns as fit; a label appears once.

    Args:
        figure: The figure.
        panels: Its axes.
        always: Whether to draw it for a single label, too.
        below: Whether to draw it below the axes instead.
    """
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    handles = {label: handles[label] for label in sorted(handles, key=lambda label: label in _LAST)}
    if len(handles) < (1 if always else 2):
        return
    columns = -(-len(handles) // legend_rows(list(handles), figure.get_figwidth()))  # rows of equal length
    figure.legend(
        handles.values(), handles.keys(), loc=f"outside {'lower' if below else 'upper'} center", ncols=columns
    )


def legend_rows(labels: Sequence[str], inches: float) -> int:
    """The number of rows of a legend with these labels in a figure of this width. Call it within `styled`."""
    # The width of a letter is about 0.55 of the size of the font; a handle and the space beside it take 8 letters.
    points = (max(map(len, labels)) + 8) * 0.55 * float(load_matplotlib().rcParams["legend.fontsize"])
    columns = max(1, min(len(labels), int(72 * inches / points)))
    return -(-len(labels) // columns)
