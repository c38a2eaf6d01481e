"""The map of clients: what a method clustered them on, in two dimensions (FedSim fig. 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coterie.errors import RecordError
from coterie.reports.figures.groups import Runs
from coterie.reports.figures.one_run import clusters_of, one_view
from coterie.reports.figures.style import GRAY, add_legend, axes_of, look
from coterie.reports.projection import project

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def client_map(run: Runs, ax: Axes | None = None, *, truth: bool = True, legend: bool = True) -> Axes:
    """Draw the clients of one run as points, with a color and a marker per cluster.

    Args:
        run: View, record or folder of one run.
        ax: Axes to draw on; None: those of a new figure.
        truth: Whether to draw a ring around clients that are elsewhere than most clients of their true cluster, if true
            clusters are known.
        legend: Whether to draw a legend.

    Returns:
        The axes; their names say what the coordinates are.
    """
    view = one_view(run)
    found = project(view.evidence)
    if found is None:
        raise RecordError(
            f"{view.path} has no evidence of clustering to draw: {view.method} recorded none. Draw a run of a method "
            "that clusters clients, such as fedgroup, ifca or pacfl"
        )
    cluster = clusters_of(view, found.clients)
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
                label="no cluster" if each < 0 else f"cluster {each}",
            )
        table = view.clients
        if truth and table.differs is not None:
            wrong = {name for name, differs in zip(table.name, table.differs, strict=True) if differs}
            ringed = np.array([client in wrong for client in found.clients], bool)
            if ringed.any():
                ring = {"marker": "o", "markersize": 8, "markerfacecolor": "none", "markeredgecolor": "black"}
                label = "other than true cluster"
                axes.plot(
                    found.x[ringed], found.y[ringed], linestyle="none", markeredgewidth=0.7, label=label, **ring
                )
        for name, label, share in zip("xy", found.labels, found.explained or (None, None), strict=True):
            axes.set(**{f"{name}label": label if share is None else f"{label} ({100 * share:.0f} %)"})
        axes.margins(0.08)
        axes.locator_params(nbins=5)
        if legend:
            add_legend(axes, outside=ax is None)
    return axes
