"""How a method chose its clusters: scores of candidates (FLAG fig. 1), and explained variance (FedSim fig. 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coterie.reports.figures.curves import draw_line
from coterie.reports.figures.groups import Runs, groups_of
from coterie.reports.figures.one_run import one_view
from coterie.reports.figures.quantities import Line
from coterie.reports.figures.style import COLORS, GRAY, Look, add_legend, axes_of, few_ticks, look
from coterie.reports.search_view import candidates_of, explained_variance_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SCORE = Look(COLORS[1], "-", "o")


def cluster_search(run: Runs, ax: Axes | None = None, *, legend: bool = True) -> Axes:
    """Draw the score of each candidate, with a dotted line at the chosen one.

    With thresholds (FLAG) the horizontal axis is the threshold, and gray bars show the number of clusters, on the right
    axis. For other methods it is the number of clusters.

    Args:
        run: View, record or folder of one run.
        ax: Axes to draw on; None: those of a new figure.
        legend: Whether to draw a legend.

    Returns:
        The axes with the scores.
    """
    view = one_view(run)
    found = candidates_of(view)
    trials = found.threshold is not None
    x = found.clusters if found.threshold is None else found.threshold
    y = 100 * found.score if trials else found.score
    with axes_of(ax) as axes:
        label = "validation accuracy" if trials else "score"
        draw_line(axes, Line(x, y, np.full(len(y), np.nan)), label, _SCORE)
        axes.lines[-1].set_markevery(None)
        axes.set_ylabel("validation accuracy (%)" if trials else str(view.spec["method"].get("rule", "score")))
        axes.set_xlabel("distance threshold" if trials else "number of clusters")
        few_ticks(axes, integers=not trials)
        if found.chosen is not None:
            axes.axvline(x[found.chosen], color="black", linewidth=0.7, linestyle=(0, (1, 2)), label="chosen")
        if found.threshold is not None:
            _draw_bars(axes, found.threshold, found.clusters)
            axes.grid(visible=False)
        if legend:
            add_legend(axes, outside=ax is None)
    return axes


def _draw_bars(axes: Axes, thresholds: np.ndarray, clusters: np.ndarray) -> None:
    """Gray bars behind the line, with an axis of their own."""
    right = axes.twinx()
    gap = float(np.diff(thresholds).min()) if len(thresholds) > 1 else 1.0
    right.bar(thresholds, clusters, width=0.6 * gap, color="#c8c8c8", edgecolor=GRAY, linewidth=0.4)
    right.set_ylabel("number of clusters", color=GRAY)
    right.tick_params(axis="y", colors=GRAY)
    right.spines["right"].set(visible=True, color=GRAY)
    right.set_zorder(axes.get_zorder() - 1)  # behind the line
    axes.patch.set_visible(False)


def explained_variance(runs: Runs, ax: Axes | None = None, *, share: float | None = 0.95, legend: bool = True) -> Axes:
    """Draw the share of the variance of the clients' gradients that the first principal components have.

    Args:
        runs: Runs of fedsim with `method.variance = 1`; several seeds of one group are averaged.
        ax: Axes to draw on; None: those of a new figure.
        share: Draw dotted lines at this share, and at the number of components that reach it; None: no lines.
        legend: Whether to draw a legend.

    Returns:
        The axes.
    """
    groups = groups_of(runs)
    with axes_of(ax) as axes:
        for place, group in enumerate(groups):
            curves = [explained_variance_of(view) for view in group.views]
            table = np.ones((len(curves), max(map(len, curves))))
            for row, curve in zip(table, curves, strict=True):
                row[: len(curve)] = curve
            mean, how = table.mean(axis=0), look(group.place)
            label = group.panel or group.label
            line = Line(np.arange(1, len(mean) + 1), 100 * mean, np.full(len(mean), np.nan))
            draw_line(axes, line, label, how, place)
            if share is not None:
                needed = int(np.searchsorted(mean, share * (1 - 1e-12))) + 1
                axes.axvline(needed, color=how.color, linewidth=0.6, linestyle=(0, (1, 2)))
        if share is not None:
            axes.axhline(100 * share, color=GRAY, linewidth=0.6, linestyle=(0, (1, 2)))
        axes.set_xlabel("principal components")
        axes.set_ylabel("explained variance (%)")
        few_ticks(axes, integers=True)
        if legend and len(groups) > 1:
            add_legend(axes, outside=ax is None)
    return axes
