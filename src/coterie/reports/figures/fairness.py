"""Scores of clients: which fraction of them has at most a score, one line per method."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coterie.errors import RecordError
from coterie.reports.figures.groups import Group, Runs, groups_of
from coterie.reports.figures.style import GRAY, add_legend, axes_of, few_ticks, look
from coterie.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def fairness(runs: Runs, ax: Axes | None = None, *, legend: bool = True) -> Axes:
    """Draw the distribution of the clients' scores in the last evaluation, with a line at the worst tenth.

    At each score, a line shows the percentage of clients with this score or a worse one; the clients of several seeds
    are taken together. A line that rises late and steeply means that all clients have good models.

    Args:
        runs: Views, records, folders of records, or label → any of these.
        ax: Axes to draw on; None: those of a new figure.
        legend: Whether to draw a legend.

    Returns:
        The axes.
    """
    groups = groups_of(runs)
    metric = groups[0].views[0].metric
    with axes_of(ax) as axes:
        for place, group in enumerate(groups):
            scores, how = client_scores(group), look(group.place)
            worst_first = scores if metric.greater_is_better else scores[::-1]
            percent = 100 * np.arange(len(scores) + 1) / len(scores)
            axes.plot(
                np.concatenate([worst_first[:1], worst_first]),  # the line starts at 0 % of clients
                percent,
                label=group.label,
                color=how.color,
                linestyle=how.line,
                marker=how.marker,
                markevery=(0.1 + 0.02 * (place % 5), 0.25),
                markerfacecolor="white",
                markeredgewidth=0.7,
                drawstyle="steps-post",
            )
        axes.axhline(10, color=GRAY, linewidth=0.6, linestyle=(0, (1, 2)), zorder=1)
        axes.set_xlabel(f"{metric.label} of a client{' (%)' if metric.percent else ''}")
        axes.set_ylabel("clients (%)")
        axes.set_ylim(0, 102)
        few_ticks(axes)
        axes.set_yticks([0, 10, 25, 50, 75, 100])
        if legend and len(groups) > 1:
            add_legend(axes, outside=ax is None)
    return axes


def client_scores(group: Group) -> Array:
    """The scores of all clients of a group, ascending, in percent where the metric is shown in percent."""
    found = []
    for view in group.views:
        scores = view.clients.score[~np.isnan(view.clients.score)]
        if not len(scores):
            raise RecordError(f"{view.path} has no scores of clients: no round was evaluated")
        found.append((100.0 if view.metric.percent else 1.0) * scores)
    return np.sort(np.concatenate(found))
