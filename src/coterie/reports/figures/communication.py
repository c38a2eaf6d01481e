"""Traffic of each method, with its score (FlexCFL fig. 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from coterie.errors import RecordError, SpecError, unknown
from coterie.reports.costs import EVALUATION
from coterie.reports.figures.groups import Group, Runs, groups_of
from coterie.reports.figures.quantities import final_score
from coterie.reports.figures.style import BARS, add_legend, axes_of, few_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: How traffic is split.
By = Literal["direction", "purpose"]

#: Maximum number of purposes that are drawn separately; the smaller ones are drawn together.
_MAX_PURPOSES = 6


def communication(
    runs: Runs, ax: Axes | None = None, *, by: By = "direction", scores: bool = True, legend: bool = True
) -> Axes:
    """Draw the traffic of each method as a bar in megabytes, without evaluation; the mean over seeds.

    Args:
        runs: Views, records, folders of records, or label → any of these.
        ax: Axes to draw on; None: those of a new figure.
        by: Split the bars by `direction` (from the server to clients, and back) or by `purpose`.
        scores: Whether to write the score behind each bar: the mean of the last ten rounds.
        legend: Whether to draw a legend.

    Returns:
        The axes.
    """
    if by not in ("direction", "purpose"):
        raise SpecError(unknown("split", by, ["direction", "purpose"]))
    groups = groups_of(runs)
    parts = _parts(groups, by)
    with axes_of(ax) as axes:
        places, left = np.arange(len(groups)), np.zeros(len(groups))
        for (name, megabytes), (face, edge, hatch) in zip(parts.items(), BARS, strict=False):
            axes.barh(
                places,
                megabytes,
                left=left,
                height=0.62,
                label=name,
                facecolor=face,
                edgecolor=edge,
                hatch=hatch,
                linewidth=0.6,
            )
            left += megabytes
        axes.set_yticks(places, [group.label for group in groups])
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("traffic (MB)")
        if scores:
            _write_scores(axes, groups, left)
        few_ticks(axes)
        axes.set_yticks(places)
        axes.grid(visible=False)
        if legend:
            add_legend(axes, outside=ax is None)
    return axes


def _parts(groups: Sequence[Group], by: By) -> dict[str, np.ndarray]:
    """Part of the traffic → megabytes of each group."""
    for view in (view for group in groups for view in group.views):
        if not any(view.traffic.total):
            raise RecordError(f"{view.path} has no traffic yet: no step was finished")
    if by == "direction":
        totals = np.array([np.mean([view.traffic.total for view in group.views], axis=0) for group in groups]) / 1e6
        return {"server to clients": totals[:, 0], "clients to server": totals[:, 1]}
    names = sorted({name for group in groups for view in group.views for name in view.traffic.by_purpose})
    found = {name: np.array([_purpose(group, name) for group in groups]) for name in names if name != EVALUATION}
    largest = sorted(found, key=lambda name: -found[name].sum())
    shown = {name: found[name] for name in largest[:_MAX_PURPOSES]}
    rest = [found[name] for name in largest[_MAX_PURPOSES:]]
    return shown | ({"other": np.sum(rest, axis=0)} if rest else {})


def _purpose(group: Group, name: str) -> float:
    return float(np.mean([sum(view.traffic.by_purpose.get(name, (0, 0))) for view in group.views])) / 1e6


def _write_scores(axes: Axes, groups: Sequence[Group], ends: np.ndarray) -> None:
    """Write the score of each group behind its bar."""
    for place, group in enumerate(groups):
        try:
            mean, deviation = final_score(group.views)
        except RecordError:  # not evaluated
            continue
        percent = group.views[0].metric.percent
        digits = ".1f" if percent else ".4g"
        spread = "" if np.isnan(deviation) else f" ± {deviation:{digits}}"
        text = f"{mean:{digits}}{spread}{' %' if percent else ''}"
        axes.annotate(text, (ends[place], place), xytext=(3, 0), textcoords="offset points", va="center")
    axes.set_xlim(0, 1.35 * float(ends.max()))  # room for the scores
