"""The figure of a method: accuracy over rounds, and the cluster of each client in each round."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

import coterie
from coterie.runs.record import RunRecord
from sitebuilder.drawing import CLUSTERS, INK, QUIET


def method_figure(record: RunRecord, references: dict[str, RunRecord]) -> Figure:
    """Accuracy over rounds beside one model for all and the true clusters; and who is in which cluster when."""
    figure, (curves, strip) = plt.subplots(1, 2, figsize=(7.4, 2.9), gridspec_kw={"width_ratios": [1, 1.15]})
    _accuracy(curves, record, references)
    _clusters(strip, record)
    figure.tight_layout(w_pad=2.5, rect=(0, 0.07, 1, 1))
    figure.legend(*curves.get_legend_handles_labels(), loc="lower center", ncols=4, handlelength=1.6)
    plt.close(figure)  # pyplot forgets it; it can still be drawn
    return figure


def _evaluated(record: RunRecord) -> list[tuple[int, dict]]:
    """Step and line of every evaluation."""
    return [(step, line) for step, line in enumerate(record.rounds) if line.get("accuracy")]


def _curve(record: RunRecord, key: str) -> tuple[list[int], list[float]]:
    lines = [line for _, line in _evaluated(record)]
    return [line["t"] + 1 for line in lines], [100 * line["accuracy"][key] for line in lines]


def _accuracy(axes: Axes, record: RunRecord, references: dict[str, RunRecord]) -> None:
    name = record.summary["method"]
    styles = {"oracle": (":", INK), "fedavg": ("--", QUIET)}
    labels = {"oracle": "true clusters (oracle)", "fedavg": "one model (fedavg)"}
    for other, reference in references.items():
        if other != name:
            line, color = styles[other]
            axes.plot(*_curve(reference, "weighted"), linestyle=line, color=color, linewidth=1.2, label=labels[other])
    marker = "o" if len(_evaluated(record)) < 3 else None
    axes.plot(*_curve(record, "weighted"), color=CLUSTERS[0], linewidth=2, marker=marker, label=name, zorder=3)
    t, worst = _curve(record, "worst_tenth")
    axes.plot(t, worst, color=CLUSTERS[5], linewidth=1, marker=marker, label=f"{name}, worst tenth of clients")
    for line in record.rounds:
        if line.get("shifted"):
            axes.axvline(line["t"] + 1, color=QUIET, linewidth=0.8, zorder=0)
    axes.set(xlabel="round", ylabel="test accuracy (%)", ylim=(0, 100), title="Accuracy")


def _clusters(axes: Axes, record: RunRecord) -> None:
    """A row per client, ordered by true cluster; a column per round; the color is the cluster that serves it."""
    data = coterie.data.load("digits")
    truth = dict(zip(data.clients, data.truth.tolist(), strict=True))
    clients = sorted(truth, key=lambda client: (truth[client], client))
    found = [record.client_results(step) for step, _ in _evaluated(record)]
    table = np.full((len(clients), len(found)), np.nan)
    for column, results in enumerate(found):
        cluster = dict(zip(results.clients, results.cluster, strict=True))
        table[:, column] = [cluster.get(client, -1) for client in clients]
    table[table < 0] = np.nan
    if record.summary["method"] in ("local", "perfedavg"):
        table[:] = 0
    colors = np.full_like(table, np.nan)
    for place, number in enumerate(np.unique(table[np.isfinite(table)])):  # numbers may have gaps after splits
        colors[table == number] = place % len(CLUSTERS)
    first, last = _evaluated(record)[0][1]["t"] + 1, _evaluated(record)[-1][1]["t"] + 1
    if len(found) == 1:
        first, last = first - 1, last + 1
    axes.imshow(
        colors,
        aspect="auto",
        interpolation="nearest",
        cmap=ListedColormap(CLUSTERS),
        vmin=0,
        vmax=len(CLUSTERS) - 1,
        extent=(first - 0.5, last + 0.5, len(clients) - 0.5, -0.5),
    )
    names = ["0°", "90°", "180°", "270°"]
    sizes = [sum(truth[client] == each for client in clients) for each in sorted(set(truth.values()))]
    edges = np.cumsum([0, *sizes])
    for edge in edges[1:-1]:
        axes.axhline(edge - 0.5, color=INK, linewidth=0.8)
    axes.set_yticks((edges[:-1] + edges[1:] - 1) / 2, names)
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel="round", ylabel="true cluster at the start", title="Clients (rows) and their clusters (colors)")
    if len(found) == 1:
        axes.set_xticks([])


def caption(record: RunRecord) -> str:
    """What the figure shows, in words, from the summary of the run."""
    summary = record.summary
    name, accuracy = summary["method"], summary["accuracy"]
    clusters, agreement = summary["clusters"]["count"], summary["truth"]["adjusted_rand"]
    if name in ("local", "perfedavg"):
        who = (
            "Each client has a model of its own."
            if name == "local"
            else "Each client adapts the one model to its data."
        )
    elif clusters == 1:
        who = "One model serves all clients."
    else:
        who = f"{clusters} clusters serve the clients at the end; adjusted Rand index {agreement:.2f}."
    drift = ""
    if summary.get("drift"):
        found = summary["drift"]
        drift = (
            f" In rounds 21 and 41 (vertical lines) pairs of clients exchange their data: {found['shifts']} shifts, "
            f"{found['detected']} detected, {found['false_alarms']} false alarms."
        )
    return (
        f"{who}{drift} Accuracy of the last ten rounds: {100 * accuracy['weighted_last_ten']:.1f} % over all clients, "
        f"{100 * accuracy['worst_tenth_last_ten']:.1f} % for the worst tenth of them. "
        "One run with seed 0 and the settings of the demonstration."
    )
