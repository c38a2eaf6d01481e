"""`figure`: a whole figure of one kind, with a panel per data set, model or run, and one legend."""

from __future__ import annotations

import dataclasses
import math
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coterie.errors import SpecError, unknown
from coterie.reports.figures.client_map import client_map
from coterie.reports.figures.communication import communication
from coterie.reports.figures.curves import curves
from coterie.reports.figures.discrepancy import discrepancy
from coterie.reports.figures.drift import drift, drift_outcomes, reacts
from coterie.reports.figures.fairness import fairness
from coterie.reports.figures.groups import Group, Runs, groups_of, plain, renamed
from coterie.reports.figures.matrix import matrix
from coterie.reports.figures.relation import distance_relation
from coterie.reports.figures.search import cluster_search, explained_variance
from coterie.reports.figures.style import WIDTHS, keep_style, legend_above, legend_rows, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Draws the groups of a panel on axes.
_Draw = Callable[[Sequence[Group], "Axes"], object]


@dataclass(frozen=True)
class Kind:
    """A kind of figure.

    Attributes:
        help: What it shows, for people who choose one.
        panels: What gets a panel of its own: `data` (runs on other data, model or drift), `run`, or `none`.
        aspect: Height of a panel as a fraction of its width.
        columns: Largest number of panels side by side in a figure of one column, and of two.
    """

    help: str
    panels: str = "data"
    aspect: float = 0.62
    columns: tuple[int, int] = (2, 4)


#: Name of a kind → what it is.
KINDS: dict[str, Kind] = {
    "curves": Kind("scores over rounds, one line per method"),
    "discrepancy": Kind("distance of local models to the model that they started from, over rounds"),
    "drift": Kind("scores while data change, and what methods noticed of it", columns=(1, 3)),
    "fairness": Kind("distribution of the scores of clients"),
    "communication": Kind("traffic of each method, with its score", columns=(1, 2)),
    "map": Kind("clients in two dimensions, by what they were clustered on", "run", 0.8),
    "matrix": Kind("distances between clients, ordered by cluster", "run", 0.95, (2, 3)),
    "search": Kind("scores of numbers of clusters or thresholds that a method compared", "run"),
    "variance": Kind("variance of gradients in the first principal components (fedsim)", "none"),
    "relation": Kind("distances between clients in one run against another", "none", 0.8),
}


def figure(
    runs: Runs,
    kind: str = "curves",
    *,
    quantities: Sequence[str] = ("primary",),
    against: str = "round",
    width: str = "one",
    height: float | None = None,
    columns: int | None = None,
    font: str = "sans",
    labels: Mapping[str, str] | None = None,
) -> Figure:
    """Draw a figure for a paper: one or two columns wide, with a panel per data set or run.

    Args:
        runs: Views, records, folders of records, or label → any of these.
        kind: A name of `KINDS`.
        quantities: For curves: one row of panels each, see `curves`. Drift draws the first.
        against: For curves: `round` or `megabytes`.
        width: `one` (3.5 inches) or `two` columns (7.16 inches).
        height: Height in inches; None: chosen.
        columns: Number of panels side by side; None: chosen.
        font: `sans` or `serif`.
        labels: Label of a method → what the figure says instead; text between dollar signs is a formula.

    Returns:
        The figure; `save` writes it. Its axes are in `figure.axes`.
    """
    if kind not in KINDS:
        raise SpecError(unknown("kind", kind, KINDS))
    if width not in WIDTHS:
        raise SpecError(unknown("width", width, WIDTHS))
    if height is not None and not 0.5 <= height <= 20:
        raise SpecError(f"The height of a figure must be between 0.5 and 20 inches, got {height:g}")
    if columns is not None and columns < 1:
        raise SpecError(f"A figure has at least 1 column of panels, got {columns}")
    groups = renamed(groups_of(runs), labels or {})
    panels = _panels(groups, KINDS[kind].panels)
    rows = _rows(kind, groups, quantities, against)
    most = columns or KINDS[kind].columns[list(WIDTHS).index(width)]
    across = min(len(panels), most)
    down = math.ceil(len(panels) / across) * len(rows)
    inches = WIDTHS[width]
    with styled(font):
        tall = _height(kind, inches, across, down, groups) if height is None else height
        made = new_figure(inches, tall)
        grid = made.subplots(down, across, squeeze=False)
        _draw_panels(grid, panels, rows)
        if kind == "discrepancy":
            _same_limits(made.axes)
        _tidy(grid, len(rows))
        if kind not in ("matrix", "relation"):
            # Lines are explained above the panels; bars of another row below them.
            shown = made.axes if len(rows) == 1 or kind == "curves" else list(grid[:: len(rows)].flat)
            legend_above(made, shown, always=kind in ("discrepancy", "search", "map", "communication"))
            if kind == "drift" and len(rows) > 1:
                legend_above(made, [grid[-1][0]], below=True)
        keep_style(made)
    return made


def _draw_panels(grid: Any, panels: Sequence[tuple[str, list[Group]]], rows: Sequence[_Draw]) -> None:
    """Draw the panels from left to right and from top to bottom, `rows` axes each, with their names below."""
    across, height = len(grid[0]), len(rows)
    for number in range(across * len(grid) // height):
        block, column = divmod(number, across)
        own = [grid[block * height + line][column] for line in range(height)]
        if number >= len(panels):
            for axes in own:
                axes.set_visible(False)
            continue
        name, members = panels[number]
        for axes, draw in zip(own, rows, strict=True):
            draw(members, axes)
        if len(panels) > 1:
            own[-1].set_xlabel(f"{own[-1].get_xlabel()}\n({_letter(number)}) {name}")


def _rows(kind: str, groups: Sequence[Group], quantities: Sequence[str], against: str) -> list[_Draw]:
    """What is drawn in each row of panels."""
    if kind == "curves":
        return [_curve(quantity, against) for quantity in quantities]
    if kind == "drift":
        first: list[_Draw] = [lambda members, ax: drift(members, ax, quantity=quantities[0], legend=False)]
        reacting = any(reacts(group) for group in groups)
        return [*first, lambda members, ax: drift_outcomes(members, ax, legend=False)] if reacting else first
    simple: dict[str, _Draw] = {
        "discrepancy": lambda members, ax: discrepancy(members, ax, legend=False),
        "fairness": lambda members, ax: fairness(members, ax, legend=False),
        "communication": lambda members, ax: communication(members, ax, legend=False),
        "map": lambda members, ax: client_map(members, ax, legend=False),
        "matrix": lambda members, ax: matrix(members, ax),
        "search": lambda members, ax: cluster_search(members, ax, legend=False),
        "variance": lambda members, ax: explained_variance(members, ax, legend=False),
        "relation": lambda members, ax: distance_relation(members, ax),
    }
    return [simple[kind]]


def _curve(quantity: str, against: str) -> _Draw:
    return lambda members, ax: curves(members, ax, quantity=quantity, against=against, legend=False)


def _panels(groups: Sequence[Group], by: str) -> list[tuple[str, list[Group]]]:
    """Name and groups of each panel."""
    if by == "none":
        return [("", list(groups))]
    if by == "data":
        names = dict.fromkeys(group.panel for group in groups)
        return [(name, [group for group in groups if group.panel == name]) for name in names]
    several = len({group.label for group in groups}) > 1
    found = []
    for group in groups:
        for view in group.views:
            seed = f"seed {view.spec['run']['seed']}" if len(group.views) > 1 else ""
            parts = [group.panel, group.label if several else "", seed]
            found.append((", ".join(filter(None, parts)) or plain(view.path.name), [_only(group, view)]))
    return found


def _only(group: Group, view: Any) -> Group:
    return dataclasses.replace(group, views=(view,))


def _height(kind: str, inches: float, across: int, down: int, groups: Sequence[Group]) -> float:
    """The height of a figure in inches: its panels, their names and the legend."""
    labels = list(dict.fromkeys(group.label for group in groups))
    legend = 0.145 * legend_rows(labels, inches)
    if kind == "communication":
        return down * (0.55 + 0.2 * max(2, len(labels))) + 0.2
    return down * min(max(1.1, KINDS[kind].aspect * inches / across), 2.8) + legend + 0.15


def _letter(number: int) -> str:
    letters = string.ascii_lowercase
    return letters[number] if number < 26 else letters[number // 26 - 1] + letters[number % 26]


def _same_limits(panels: Sequence[Axes]) -> None:
    """Give vertical axes of the same name the same limits, so that panels can be compared."""
    for label in {axes.get_ylabel() for axes in panels}:
        same = [axes for axes in panels if axes.get_ylabel() == label]
        low, high = zip(*(axes.get_ylim() for axes in same), strict=True)
        for axes in same:
            axes.set_ylim(min(low), max(high))


def _tidy(grid: Any, rows: int) -> None:
    """Leave out what panels side by side have in common: the names of vertical axes, and of rounds above others."""
    for line, across in enumerate(grid):
        names = [axes.get_ylabel() for axes in across if axes.get_visible()]
        if len(names) > 1 and len(set(names)) == 1:
            for axes in across[1:]:
                axes.set_ylabel("")
        if rows > 1 and (line + 1) % rows:
            for axes, below in zip(across, grid[line + 1], strict=True):
                if axes.get_xlabel() == below.get_xlabel().partition("\n")[0]:
                    axes.set_xlabel("")
