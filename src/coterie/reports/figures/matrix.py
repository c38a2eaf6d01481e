"""The matrix of distances between clients, ordered by cluster, with its dendrogram."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from coterie.errors import RecordError
from coterie.reports.evidence_view import Pairs
from coterie.reports.figures.groups import Runs
from coterie.reports.figures.one_run import clusters_of, one_view
from coterie.reports.figures.style import axes_of
from coterie.reports.matrix_order import OrderedMatrix, order_matrix
from coterie.reports.view import RunView
from coterie.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Evidence with one row per client → name of the distance between two rows.
_DERIVED = {
    "embedding": "EDC of updates",
    "losses": "distance of losses",
    "cosines": "distance of cosines",
    "weights": "distance of shares",
    "scores": "distance of gradients (PCA)",
}
#: The setting `measure` or `distance` of a method → name on an axis.
_MEASURES = {"madc": "MADC of updates", "cross": "cross loss", "l2": "l2 distance of models"}


def matrix(run: Runs, ax: Axes | None = None, *, dendrogram: bool = True) -> Axes:
    """Draw the distances between the clients of one run as an image, with lines between clusters.

    Args:
        run: View, record or folder of one run.
        ax: Axes to draw on; None: those of a new figure.
        dendrogram: Whether to draw the dendrogram above the matrix. Clients of a cluster are joined first.

    Returns:
        The axes with the image: row and column i are client `order[i]`, see `coterie.reports.matrix_order`.
    """
    view = one_view(run)
    pairs = pairs_of(view)
    known = clusters_of(view)
    cluster = np.array([known.get(client, -1) for client in pairs.clients], np.int64)
    ordered = order_matrix(pairs.distances(), cluster)
    values = pairs.values[np.ix_(ordered.order, ordered.order)]
    with axes_of(ax) as axes:
        # Dark is near, in color as in gray.
        image = axes.imshow(values, cmap="cividis_r" if pairs.alike else "cividis", interpolation="nearest")
        axes.figure.colorbar(image, ax=axes, label=distance_label(view, pairs), fraction=0.046, pad=0.03)
        axes.spines[["top", "right"]].set_visible(True)
        _separate(axes, cluster[ordered.order])
        if dendrogram and len(pairs.clients) > 1:
            _draw_dendrogram(axes, ordered)
    return axes


def pairs_of(view: RunView) -> Pairs:
    """The distances between the clients of a run; an error that says what to do if it has none."""
    pairs = view.evidence.pairs
    if pairs is None:
        raise RecordError(
            f"{view.path} has no distances between clients: {view.method} recorded none. Draw a run of a method that "
            "compares clients, such as fedgroup, pacfl, srfca or flhc"
        )
    features = view.evidence.features
    if pairs.derived and features is not None and features.key == "embedding":
        return dataclasses.replace(pairs, values=pairs.values / features.values.shape[1])  # the definition of EDC
    return pairs


def distance_label(view: RunView, pairs: Pairs) -> str:
    """A short name of the distance between two clients."""
    features = view.evidence.features
    if pairs.derived and features is not None:
        return _DERIVED.get(features.key, "Euclidean distance")
    settings = view.spec["method"]
    measure = str(settings.get("measure") or settings.get("distance") or "")
    return _MEASURES.get(measure, pairs.what) if pairs.what == "distance" else pairs.what


def _separate(axes: Axes, cluster: Array) -> None:
    """White lines between clusters, and the number of each cluster in the middle of its rows."""
    edges = np.flatnonzero(np.diff(cluster)) + 0.5
    for edge in edges:
        axes.axhline(edge, color="white", linewidth=0.8)
        axes.axvline(edge, color="white", linewidth=0.8)
    bounds = np.concatenate([[-0.5], edges, [len(cluster) - 0.5]])
    middles = (bounds[:-1] + bounds[1:]) / 2
    names = ["–" if each < 0 else str(each) for each in cluster[np.ceil(bounds[:-1]).astype(int)].tolist()]
    if len(names) > 20:  # a number for each would be a black bar
        names, middles = [], middles[:0]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(middles, names)
        axis.set_tick_params(length=0)
    axes.set_xlabel("clients, by cluster")
    axes.set_ylabel("clients, by cluster")


def _draw_dendrogram(axes: Axes, ordered: OrderedMatrix) -> None:
    from matplotlib.collections import LineCollection

    above = axes.inset_axes((0, 1.01, 1, 0.22))
    lines = ordered.segments.reshape(-1, 2, 2)
    above.add_collection(LineCollection(list(lines), colors="black", linewidths=0.5))
    above.set_xlim(0, len(ordered.order))
    above.set_ylim(0, 1.05 * ordered.height or 1)
    above.set_axis_off()
