"""The map of clients: what a method clustered them on, in two dimensions (FedSim fig. 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.errors import RecordError
from coterie.reports.evidence_view import read_evidence
from coterie.reports.figures.groups import Runs
from coterie.reports.figures.one_run import clusters_of, one_view
from coterie.reports.figures.style import GRAY, MISCLUSTERED, NO_CLUSTER, add_legend, axes_of, look
from coterie.reports.projection import Projection, project
from coterie.reports.view import RunView

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Names of axes in a projection → short ones, as papers have them.
_AXES = {
    "first principal component": "PC 1",
    "second principal component": "PC 2",
    "first axis": "MDS 1",
    "second axis": "MDS 2",
}


def client_map(
    run: Runs, ax: Axes | None = None, *, round: int | None = None, truth: bool = True, legend: bool = True
) -> Axes:
    """Draw the clients of one run as points, with a color and a marker per cluster.

    Args:
        run: View, record or folder of one run.
        ax: Axes to draw on; None: those of a new figure.
        round: Draw what clients were clustered on in this round, from 1, and their clusters in it; 0 is the
            preparation. None: the latest of each client, with its cluster after the last round. FedSim clusters anew in
            each round: None is its last round.
        truth: Whether to draw a ring around misclustered clients, whose true cluster is not that of most clients of
            their cluster, if true clusters are known.
        legend: Whether to draw a legend.

    Returns:
        The axes; their names say what the coordinates are.
    """
    view = one_view(run)
    features = view.evidence.features
    if round is None and features is not None and features.key == "scores":
        round = int(features.rounds.max())  # principal components of different rounds cannot be compared
    found, known = _points(view, round)
    cluster = np.array([known.get(client, -1) for client in found.clients], np.int64)
    with axes_of(ax) as axes:
        for each in np.unique(cluster).tolist():
            mine, how = cluster == each, look(each)
            color, marker = (GRAY, "x") if each < 0 else (how.color, how.marker)
            axes.plot(
                found.x[mine],
                found.y[mine],
                linestyle="none",
                marker=marker,
                markersize=4,
                markeredgewidth=0.8,
                markeredgecolor=color,
                markerfacecolor=color if each % 2 == 0 and each >= 0 else "white",
                label=NO_CLUSTER if each < 0 else f"cluster {each}",
            )
        table = view.clients
        if truth and round is None and table.differs is not None:
            wrong = {name for name, differs in zip(table.name, table.differs, strict=True) if differs}
            ringed = np.array([client in wrong for client in found.clients], bool)
            if ringed.any():
                ring: dict[str, Any] = {
                    "marker": "o",
                    "markersize": 8,
                    "markerfacecolor": "none",
                    "markeredgecolor": "black",
                }
                axes.plot(
                    found.x[ringed], found.y[ringed], linestyle="none", markeredgewidth=0.7, label=MISCLUSTERED, **ring
                )
        for name, label, share in zip("xy", found.labels, found.explained or (None, None), strict=True):
            short = _AXES.get(label, label)
            axes.set(**{f"{name}label": short if share is None else f"{short} ({100 * share:.0f} %)"})
        axes.margins(0.08)
        axes.locator_params(nbins=5 if axes.bbox.width > 1.8 * axes.figure.dpi else 3)
        if legend:
            add_legend(axes, outside=ax is None)
    return axes


def _points(view: RunView, round: int | None) -> tuple[Projection, Mapping[str, int]]:
    """The points, and client → cluster."""
    evidence, known = view.evidence, clusters_of(view)
    if round is not None:
        steps = [place for place, line in enumerate(view.rounds) if line["t"] + 1 == round]
        evidence = read_evidence(view.record, steps)
        known = {
            client: cluster for step in steps for client, cluster in (view.rounds[step]["assignment"] or {}).items()
        }
    found = project(evidence)
    if found is None:
        when = "" if round is None else f" in round {round}"
        raise RecordError(
            f"{view.path} has no evidence of clustering to draw: {view.method} recorded none{when}. Draw a run of a "
            "method that clusters clients, such as fedgroup, ifca or pacfl"
        )
    return found, known
