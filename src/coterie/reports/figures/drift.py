"""Scores while the data of clients change (FlexCFL fig. 4), and which changes the methods detected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from coterie.errors import RecordError
from coterie.reports.figures.curves import draw_lines
from coterie.reports.figures.groups import Group, Runs, groups_of
from coterie.reports.figures.style import BARS, GRAY, add_legend, axes_of, few_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Height of the strip with the numbers of clients whose data changed, as a fraction of the axes.
_STRIP = 0.16

#: Bars of `drift_outcomes` → key of the drift figures.
_OUTCOMES = {
    "detected": "detected",
    "missed": "missed",
    "false alarms": "false_alarms",
    "moved correctly": "migrations_correct",
    "moved wrongly": "migrations_wrong",
}


def drift(runs: Runs, ax: Axes | None = None, *, quantity: str = "primary", legend: bool = True) -> Axes:
    """Draw a quantity over rounds, with a strip of gray bars: the number of clients whose data changed in each round.

    Args:
        runs: Views, records, folders of records, or label → any of these. Their data changed (`[shift]` of the spec).
        ax: Axes to draw on; None: those of a new figure.
        quantity: As in `curves`.
        legend: Whether to draw a legend.

    Returns:
        The axes.
    """
    groups = groups_of(runs)
    rounds, clients = shifts_of(groups)
    with axes_of(ax) as axes:
        draw_lines(axes, groups, quantity)
        low, high = axes.get_ylim()
        # Room below the lines, so that the strip does not touch them.
        axes.set_ylim(low - (high - low) * _STRIP / (1 - _STRIP), high)
        strip = axes.inset_axes((0, 0, 1, 0.8 * _STRIP), sharex=axes)
        strip.bar(rounds, clients, width=0.8, color="#b0b0b0", label="_shifted clients")
        strip.set_axis_off()
        most = clients.max()
        what = "clients whose data changed" if axes.bbox.width > 2.4 * axes.figure.dpi else "changed"
        strip.set_ylim(0, most)
        axes.annotate(
            f"{what} (≤ {most:g})",
            (1, 0.82 * _STRIP),
            xycoords="axes fraction",
            ha="right",
            va="bottom",
            color=GRAY,
            fontsize="x-small",
        )
        if legend and len(groups) > 1:
            add_legend(axes, outside=ax is None)
    return axes


def drift_outcomes(runs: Runs, ax: Axes | None = None, *, legend: bool = True) -> Axes:
    """Draw what each method noticed: detected and missed changes, false alarms, correct and wrong migrations.

    Args:
        runs: Views, records, folders of records, or label → any of these.
        ax: Axes to draw on; None: those of a new figure.
        legend: Whether to draw a legend.

    Returns:
        The axes: one group of bars per method, the mean over seeds. If some method reacts to drift, those that neither
        detect it nor move clients are left out.
    """
    given = groups_of(runs)
    shifts_of(given)  # raises if no data changed
    groups = [group for group in given if reacts(group)] or given
    with axes_of(ax) as axes:
        height = 0.8 / len(_OUTCOMES)
        for number, (name, key) in enumerate(_OUTCOMES.items()):
            counts = np.array([_mean(group, key) for group in groups])
            face, edge, hatch = BARS[number]
            axes.barh(
                np.arange(len(groups)) + (number - (len(_OUTCOMES) - 1) / 2) * height,
                np.nan_to_num(counts),
                height=0.9 * height,
                label=name,
                facecolor=face,
                edgecolor=edge,
                hatch=hatch,
                linewidth=0.6,
            )
        few_ticks(axes)
        axes.set_yticks(range(len(groups)), [group.label for group in groups])
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        axes.set_xlabel("number in the run")
        if legend:
            add_legend(axes, outside=ax is None)
    return axes


def shifts_of(groups: Sequence[Group]) -> tuple[np.ndarray, np.ndarray]:
    """Rounds, and the mean number over runs of clients whose data changed before each; an error if none changed."""
    views = [view for group in groups for view in group.views]
    last = max((max(view.movements.shifts, default=0) for view in views), default=0)
    counts = np.zeros((len(views), last + 1))
    for row, view in zip(counts, views, strict=True):
        for t, clients in view.movements.shifts.items():
            row[t] = clients
    if not counts.any():
        raise RecordError(
            f"The data of no client changed in {views[0].path}; run it with drift, such as --set shift.name=swap_all, "
            "or draw it with --kind curves"
        )
    mean = counts.mean(axis=0)
    rounds = np.flatnonzero(mean)
    return rounds, mean[rounds]


def reacts(group: Group) -> bool:
    """Whether a method detected drift or moved clients in one of its runs."""
    figures = [view.summary.get("drift") or {} for view in group.views]
    return any(each.get("detected") or each.get("false_alarms") or each.get("migrations") for each in figures)


def _mean(group: Group, key: str) -> float:
    """The mean over runs; NaN if it is not known."""
    values = [(view.summary.get("drift") or {}).get(key) for view in group.views]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")
