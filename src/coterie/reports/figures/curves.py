"""Scores over rounds, one line per method (FedGroup fig. 3, FlexCFL fig. 3 and 4, FLAG fig. 2, FedSim fig. 3 and 9)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from coterie.errors import RecordError, SpecError, unknown
from coterie.reports.figures.groups import Group, Runs, groups_of
from coterie.reports.figures.quantities import Line, mean_line, quantity_label
from coterie.reports.figures.style import Look, add_legend, axes_of, few_ticks, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

log = logging.getLogger(__name__)

#: Number of markers on a line.
_MARKERS = 8

#: What the horizontal axis shows → its name.
AXES = {"round": "round", "megabytes": "traffic (MB)"}


def curves(
    runs: Runs,
    ax: Axes | None = None,
    *,
    quantity: str = "primary",
    against: str = "round",
    band: bool = True,
    legend: bool = True,
) -> Axes:
    """Draw a quantity over rounds: for each method the mean over seeds, with a band of one standard deviation.

    Args:
        runs: Views, records, folders of records, or label → any of these.
        ax: Axes to draw on; None: those of a new figure.
        quantity: `primary` (the primary metric), `mean`, `worst_tenth`, `test_loss`, `train_loss`, `discrepancy`,
            `coverage`, `validation`, `adjusted_rand`, or a metric of `run.metrics`.
        against: `round`, or `megabytes` that were sent until then, without evaluation.
        band: Whether to draw the band, if there are several seeds.
        legend: Whether to draw a legend.

    Returns:
        The axes.
    """
    if against not in AXES:
        raise SpecError(unknown("axis", against, AXES))
    groups = groups_of(runs)
    with axes_of(ax) as axes:
        draw_lines(axes, groups, quantity, against, band=band)
        if legend and len(groups) > 1:
            add_legend(axes, outside=ax is None)
    return axes


def draw_lines(
    axes: Axes,
    groups: Sequence[Group],
    quantity: str,
    against: str = "round",
    *,
    band: bool = True,
) -> None:
    """Draw one line per group, with the names of both axes; groups without the quantity are left out with a warning.

    Raises:
        RecordError: If no group has it.
    """
    faults = []
    for group in groups:
        try:
            line = mean_line(group, quantity, against)
        except RecordError as fault:
            faults.append(fault)
            continue
        draw_line(axes, line, group.label, look(group.place), group.place, band=band)
    if len(faults) == len(groups):
        raise faults[0]
    for each in faults:
        log.warning("%s; it is left out", each)
    axes.set_xlabel(AXES[against])
    axes.set_ylabel(quantity_label(groups[0].views[0], quantity))
    few_ticks(axes, integers=against == "round")


def draw_line(axes: Axes, line: Line, label: str, how: Look, place: int = 0, *, band: bool = True) -> None:
    """Draw one line; its markers are between those of the lines before it."""
    step = max(1, round(len(line.x) / _MARKERS))
    axes.plot(
        line.x,
        line.y,
        label=label,
        color=how.color,
        linestyle=how.line,
        marker=how.marker,
        markevery=((place * step // 3) % step, step),
        markerfacecolor="white",
        markeredgewidth=0.7,
        zorder=3,
    )
    if band and not np.isnan(line.deviation).all():
        low, high = line.y - line.deviation, line.y + line.deviation
        axes.fill_between(line.x, low, high, color=how.color, alpha=0.15, linewidth=0, zorder=2)
