"""Discrepancy over rounds: the mean distance of local models to the model they started from (FedGroup fig. 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.reports.figures.curves import draw_line, draw_lines
from coterie.reports.figures.groups import Runs, groups_of
from coterie.reports.figures.quantities import mean_line, quantity_label
from coterie.reports.figures.style import COLORS, LINES, Look, add_legend, axes_of, few_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SCORE = Look("#000000", LINES[0], "o")
_DISCREPANCY = Look(COLORS[0], LINES[1], "s")


def discrepancy(runs: Runs, ax: Axes | None = None, *, legend: bool = True) -> Axes:
    """Draw the discrepancy over rounds; for a single method together with its score.

    Of one method the score is black, on the left axis, and the discrepancy blue and dashed, on the right axis. Of
    several methods only the discrepancy is drawn, one line each, the mean over seeds.

    Args:
        runs: Views, records, folders of records, or label → any of these.
        ax: Axes to draw on; None: those of a new figure.
        legend: Whether to draw a legend.

    Returns:
        The axes. With a single method the right axis is the last of `ax.figure.axes`.
    """
    groups = groups_of(runs)
    with axes_of(ax) as axes:
        if len(groups) > 1:
            draw_lines(axes, groups, "discrepancy")
            if legend:
                add_legend(axes, outside=ax is None)
            return axes
        score, distance = mean_line(groups[0], "primary"), mean_line(groups[0], "discrepancy")
        view = groups[0].views[0]
        draw_line(axes, score, view.metric.label, _SCORE)
        axes.set_xlabel("round")
        axes.set_ylabel(quantity_label(view, "primary"))
        right = axes.twinx()
        draw_line(right, distance, "discrepancy", _DISCREPANCY, 1)
        right.set_ylabel("discrepancy", color=_DISCREPANCY.color)
        right.tick_params(axis="y", colors=_DISCREPANCY.color)
        right.spines["right"].set(visible=True, color=_DISCREPANCY.color)
        right.set_ylim(bottom=0)
        few_ticks(axes, integers=True)
    return axes
