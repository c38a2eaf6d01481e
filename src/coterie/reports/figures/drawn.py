"""What a figure shows, as plain data: read from its axes, so that it is what was drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def drawn(figure: Figure) -> list[dict[str, Any]]:
    """The panels of a figure: names of axes, lines and points with their numbers, bars, and shapes of images."""
    return [_panel(axes) for axes in figure.axes if axes.get_visible() and axes.get_label() != "<colorbar>"]


def _panel(axes: Any) -> dict[str, Any]:
    lines = [
        {"label": line.get_label(), "x": _numbers(line.get_xdata()), "y": _numbers(line.get_ydata())}
        for line in axes.lines
        if not str(line.get_label()).startswith("_")
    ]
    bars = [
        {
            "label": bars.get_label(),
            "values": [bar.get_width() if bars.orientation == "horizontal" else bar.get_height() for bar in bars],
        }
        for bars in axes.containers
    ]
    images = [list(image.get_array().shape) for image in axes.images]
    found = {"xlabel": axes.get_xlabel(), "ylabel": axes.get_ylabel(), "lines": lines, "bars": bars, "images": images}
    return {key: value for key, value in found.items() if value not in ([], "")}


def _numbers(values: Any) -> list[float]:
    return [float(value) for value in np.asarray(values).tolist()]
