"""Relations between numbers: one point per pair or experiment, and lines over a setting.

`relation` draws EDC against MADC (FedGroup fig. 5) and the gain of a method against PNI; `sweep` draws PNI over a
setting of the data (FedSim fig. 10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from coterie.errors import RecordError, SpecError
from coterie.reports.figures.curves import draw_line
from coterie.reports.figures.groups import Runs, plain, views_of
from coterie.reports.figures.matrix import distance_label, pairs_of
from coterie.reports.figures.quantities import Line
from coterie.reports.figures.style import COLORS, add_legend, axes_of, few_ticks, look
from coterie.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def relation(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    ax: Axes | None = None,
    *,
    xlabel: str = "",
    ylabel: str = "",
    names: Sequence[str] = (),
    fit: bool = True,
) -> Axes:
    """Draw points, the line of least squares through them, and their Pearson correlation.

    Args:
        x: One number per point; or a symmetric matrix of distances, whose pairs of clients are the points.
        y: The same for the other axis.
        ax: Axes to draw on; None: those of a new figure.
        xlabel: Name of the horizontal axis.
        ylabel: Name of the vertical axis.
        names: Name of each point, written beside it.
        fit: Whether to draw the line and write the correlation.

    Returns:
        The axes.
    """
    first, second = _points(x, "x"), _points(y, "y")
    if len(first) != len(second):
        raise SpecError(f"x and y must have the same number of points, got {len(first)} and {len(second)}")
    if names and len(names) != len(first):
        raise SpecError(f"There must be one name per point: {len(first)} points, {len(names)} names")
    with axes_of(ax) as axes:
        many = len(first) > 200
        axes.plot(
            first,
            second,
            linestyle="none",
            marker="." if many else "o",
            markersize=2 if many else 3.5,
            color=COLORS[0],
            alpha=0.5 if many else 1,
            markeredgewidth=0,
            rasterized=len(first) > 20_000,  # a vector of each point would be a file of many megabytes
        )
        for px, py, name in zip(first, second, names, strict=False):
            axes.annotate(plain(name), (px, py), xytext=(3, 3), textcoords="offset points", fontsize="small")
        if fit and len(first) > 1 and np.ptp(first) > 0 and np.ptp(second) > 0:
            slope, start = np.polyfit(first, second, 1)
            ends = np.array([first.min(), first.max()])
            axes.plot(ends, start + slope * ends, color="black", linewidth=0.8, linestyle=(0, (5, 1.5)))
            r = float(np.corrcoef(first, second)[0, 1])
            # In the corner that the line does not reach.
            corner, side = ((0.03, 0.97), "left") if r > 0 else ((0.97, 0.97), "right")
            axes.annotate(f"$r = {r:.3f}$", corner, xycoords="axes fraction", va="top", ha=side)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.margins(0.12 if names else 0.05)
        few_ticks(axes)
    return axes


def distance_relation(runs: Runs, ax: Axes | None = None) -> Axes:
    """Draw the distances between pairs of clients in one run against those of the same pairs in another run.

    Two runs of fedgroup with the same seed, with `method.measure` madc and edc, give the mapping from MADC to EDC.

    Args:
        runs: Two runs; the first is on the horizontal axis.
        ax: Axes to draw on; None: those of a new figure.

    Returns:
        The axes.
    """
    views = views_of(runs)
    if len(views) != 2:
        raise SpecError(f"A relation of distances needs two runs, got {len(views)}")
    pairs = [pairs_of(view) for view in views]
    known = set(pairs[1].clients)
    common = [client for client in pairs[0].clients if client in known]
    if len(common) < 3:
        raise RecordError(
            f"{views[0].path} and {views[1].path} have distances of {len(common)} common clients; at least 3 are "
            "needed. Run both with the same data and seed"
        )
    values = []
    for each in pairs:
        position = {client: place for place, client in enumerate(each.clients)}
        rows = [position[client] for client in common]
        values.append(each.values[np.ix_(rows, rows)])
    labels = [distance_label(view, each) for view, each in zip(views, pairs, strict=True)]
    return relation(values[0], values[1], ax, xlabel=labels[0], ylabel=labels[1])


def sweep(
    x: npt.ArrayLike,
    series: Mapping[str, npt.ArrayLike],
    ax: Axes | None = None,
    *,
    deviations: Mapping[str, npt.ArrayLike] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    legend: bool = True,
) -> Axes:
    """Draw lines over a setting, such as PNI over α for several β, with bands of one standard deviation.

    Args:
        x: The values of the setting.
        series: Label → one number per value of the setting.
        ax: Axes to draw on; None: those of a new figure.
        deviations: Label → standard deviation of each number; labels without any have no band.
        xlabel: Name of the horizontal axis.
        ylabel: Name of the vertical axis.
        legend: Whether to draw a legend.

    Returns:
        The axes.
    """
    places = _points(x, "x")
    with axes_of(ax) as axes:
        for number, (label, values) in enumerate(series.items()):
            given = _points(values, f"series {label!r}")
            spread = (deviations or {}).get(label)
            band = np.full(len(given), np.nan) if spread is None else np.asarray(spread, np.float64)
            if not len(given) == len(places) == len(band):
                raise SpecError(f"Series {label!r} must have {len(places)} values, one per value of x")
            draw_line(axes, Line(places, given, band), label, look(number))
        axes.set(xlabel=xlabel, ylabel=ylabel)
        few_ticks(axes)
        if legend and len(series) > 1:
            add_legend(axes, outside=ax is None)
    return axes


def _points(values: npt.ArrayLike, name: str) -> Array:
    """The numbers; of a square matrix those above its diagonal."""
    found = np.asarray(values, np.float64)
    if found.ndim == 2 and found.shape[0] == found.shape[1]:
        found = found[np.triu_indices(len(found), k=1)]
    if found.ndim != 1:
        raise SpecError(f"{name} must be one number per point or a square matrix, got an array of shape {found.shape}")
    if not np.isfinite(found).all():
        raise SpecError(f"{name} contains NaN or infinity")
    return found
