"""The pictures of the explanations. What looks like a result is one: a small computation, or a recorded run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from coterie.runs.record import RunRecord
from sitebuilder.drawing import CLUSTERS, INK, QUIET


def all_pictures(records: Mapping[str, Path]) -> dict[str, Figure]:
    """Name → picture."""
    made = {
        "one-model-or-several": one_model_or_several(),
        "a-round": a_round(),
        "directions": directions(RunRecord.read(records["fedgroup"])),
        "the-seam": the_seam(),
        "flat-array": flat_array(),
        "score-and-traffic": score_and_traffic({name: RunRecord.read(path) for name, path in records.items()}),
    }
    plt.close("all")
    return made


def one_model_or_several() -> Figure:
    """Eight clients with few noisy points on one of two lines, fitted together, alone, and by cluster."""
    draw = np.random.default_rng(3)
    slopes = np.array([1.0] * 4 + [-0.8] * 4)
    x = draw.uniform(-1, 1, (8, 5))
    y = slopes[:, None] * x + 0.35 * draw.standard_normal(x.shape)

    def fit(members: np.ndarray) -> np.ndarray:
        return np.polyfit(x[members].ravel(), y[members].ravel(), 1)

    every = np.arange(8)
    models = {
        "one model for all": [(every, QUIET)],
        "every client alone": [(np.array([i]), CLUSTERS[i // 4]) for i in every],
        "one model per cluster": [(every[:4], CLUSTERS[0]), (every[4:], CLUSTERS[1])],
    }
    figure, axes = plt.subplots(1, 3, figsize=(7.4, 2.5), sharey=True)
    grid = np.array([-1.0, 1.0])
    for each, (title, fitted) in zip(axes, models.items(), strict=True):
        for i in every:
            each.scatter(x[i], y[i], s=12, color=CLUSTERS[i // 4], alpha=0.65, linewidths=0)
        for members, color in fitted:
            each.plot(grid, np.polyval(fit(members), grid), color=color, linewidth=2 if len(members) > 1 else 1)
        each.set(title=title, xticks=[], yticks=[], ylim=(-2, 2))
    figure.tight_layout()
    return figure


def a_round() -> Figure:
    """The server, five clients in two clusters, and what travels between them in a round."""
    figure, axes = _canvas(7.4, 3.0)
    _box(axes, 3.85, 2.15, 2.3, 0.7, "server:\none model per cluster", INK)
    for i in range(5):
        color = CLUSTERS[0] if i in (0, 1, 3) else CLUSTERS[1]
        left = 0.1 + 1.9 * i
        _box(axes, left, 0.15, 1.55, 0.72, f"client {i + 1}\nits own examples", color)
        middle = 5.0 + 0.42 * (i - 2)
        _arrow(axes, (middle - 0.09, 2.12), (left + 0.62, 0.9), color)
        _arrow(axes, (left + 0.92, 0.9), (middle + 0.09, 2.12), color, dashed=True)
    axes.text(0.1, 2.62, "1  the cluster's model goes down (solid)", va="center")
    axes.text(0.1, 2.32, "2  each client trains it on its examples", va="center")
    axes.text(6.6, 2.62, "3  trained models come back (dashed)", va="center")
    axes.text(6.6, 2.32, "4  the server averages per cluster", va="center")
    return figure


def directions(record: RunRecord) -> Figure:
    """What FedGroup clustered on in the demonstration: the updates of the clients, in two dimensions."""
    evidence = record.evidence(0)
    points = np.asarray(evidence["embedding"], dtype=float)
    labels = np.asarray(evidence["labels"])
    flat = points @ _best_view(points, labels)
    figure, axes = plt.subplots(figsize=(4.2, 3.2))
    for cluster in range(int(evidence["labels"].max()) + 1):
        members = flat[labels == cluster]
        axes.scatter(*members.T, s=26, color=CLUSTERS[cluster], linewidths=0, label=f"cluster {cluster + 1}")
    axes.set(xticks=[], yticks=[])
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _best_view(points: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Of many projections to two dimensions, the one in which the nearest two clusters are farthest apart."""
    draw = np.random.default_rng(0)
    centers = np.stack([points[labels == each].mean(axis=0) for each in np.unique(labels)])
    views = [np.linalg.qr(draw.standard_normal((points.shape[1], 2)))[0] for _ in range(2000)]

    def nearest(view: np.ndarray) -> float:
        gaps = np.linalg.norm((centers @ view)[:, None] - (centers @ view)[None], axis=2)
        return float(gaps[np.triu_indices(len(centers), 1)].min())

    return max(views, key=nearest)


def the_seam() -> Figure:
    """A method above the line, places where clients run below it."""
    figure, axes = _canvas(7.4, 3.1)
    _box(
        axes,
        0.4,
        2.2,
        9.2,
        0.6,
        "method: start · stage · round · place. It knows client names, never an example",
        CLUSTERS[0],
    )
    axes.plot([0, 10], [1.55, 1.55], color=QUIET, linestyle="--", linewidth=1)
    axes.text(5, 1.72, "fed.ask(cohort, work, seed, …)  ↓            ↑  replies", ha="center", va="bottom")
    axes.text(5, 1.38, "server: checks replies, adds up means per cluster, counts bytes", ha="center", va="top")
    places = [
        "vectorized\none compiled call for a cohort",
        "sequential\none client at a time",
        "network\nother machines, over Flower",
    ]
    for i, text in enumerate(places):
        _box(axes, 0.4 + 3.15 * i, 0.15, 2.9, 0.7, text, CLUSTERS[(1, 2, 3)[i]])
        _arrow(axes, (5, 1.12), (1.85 + 3.15 * i, 0.88), QUIET)
    return figure


def flat_array() -> Figure:
    """All examples in one array; a batch is a list of positions in it."""
    figure, axes = _canvas(7.4, 2.4)
    sizes = (9, 5, 12, 6, 8)
    start = 0
    for client, size in enumerate(sizes):
        for i in range(size):
            axes.add_patch(
                plt.Rectangle(((start + i) * 0.245 + 0.1, 1.5), 0.22, 0.42, color=CLUSTERS[client], linewidth=0)
            )
        axes.text((start + size / 2) * 0.245 + 0.1, 2.0, f"client {client + 1}", ha="center", va="bottom")
        start += size
    offsets = np.cumsum([0, *sizes])
    for row, client in enumerate((0, 2)):
        picks = offsets[client] + np.array([1, 4, 6, 2][: 4 - row])
        for column, pick in enumerate(picks):
            left = 4.6 + 2.6 * row + 0.3 * column
            axes.add_patch(plt.Rectangle((left, 0.3), 0.22, 0.3, color=CLUSTERS[client], linewidth=0))
            _arrow(axes, (pick * 0.245 + 0.21, 1.48), (left + 0.11, 0.63), CLUSTERS[client], width=0.6)
        axes.text(4.6 + 2.6 * row, 0.18, f"batch of client {client + 1}", va="top")
    axes.text(
        0.1,
        0.6,
        "one flat array with the examples of all\nclients; batches are gathered by position,\n"
        "without copies and without padding",
        va="center",
    )
    return figure


def score_and_traffic(records: Mapping[str, RunRecord]) -> Figure:
    """Accuracy against bytes of every method on the demonstration."""
    figure, axes = plt.subplots(figsize=(7.4, 4.8))
    placed: list[tuple[float, float]] = []
    for name, record in sorted(records.items(), key=lambda item: -_score(item[1])):
        if record.summary.get("drift"):
            continue
        traffic = record.summary["traffic"]
        megabytes = (traffic["down_bytes"] + traffic["up_bytes"]) / 1e6
        kind = 0 if record.summary["clusters"]["count"] > 1 else 5
        axes.scatter(megabytes, _score(record), s=30, color=CLUSTERS[kind], linewidths=0)
        height = _score(record)
        while any(abs(np.log10(megabytes / x)) < 0.3 and abs(height - y) < 1.1 for x, y in placed):
            height -= 0.3
        placed.append((megabytes, height))
        line = {"arrowstyle": "-", "color": QUIET, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
        axes.annotate(
            name,
            (megabytes, _score(record)),
            xytext=(megabytes * 1.12, height),
            fontsize=8,
            va="center",
            arrowprops=line,
        )
    axes.scatter([], [], color=CLUSTERS[0], s=30, linewidths=0, label="several clusters at the end")
    axes.scatter([], [], color=CLUSTERS[5], s=30, linewidths=0, label="one model, or one per client")
    axes.set(
        xscale="log",
        ylim=(60, 95),
        xlabel="megabytes sent, down and up, in 60 rounds",
        ylabel="accuracy of the last ten rounds (%)",
    )
    axes.legend(loc="center left")
    figure.tight_layout()
    return figure


def _score(record: RunRecord) -> float:
    return 100 * float(record.summary["accuracy"]["weighted_last_ten"])


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """Axes for a diagram: 10 units wide, equal height units, no frame."""
    figure = plt.figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 10), ylim=(0, 3.1 if height > 2.5 else 2.4))
    axes.axis("off")
    return figure, axes


def _box(axes: Axes, left: float, bottom: float, width: float, height: float, text: str, color: str) -> None:
    shape = FancyBboxPatch(
        (left, bottom),
        width,
        height,
        boxstyle="round,pad=0.02,rounding_size=0.1",
        fill=False,
        edgecolor=color,
        linewidth=1.6,
    )
    axes.add_patch(shape)
    axes.text(left + width / 2, bottom + height / 2, text, ha="center", va="center")


def _arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    color: str,
    *,
    dashed: bool = False,
    width: float = 1.1,
) -> None:
    style = "--" if dashed else "-"
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=9,
            color=color,
            linewidth=width,
            linestyle=style,
            shrinkA=0,
            shrinkB=0,
        )
    )
