"""Figures for papers with matplotlib: functions that draw runs on axes, and `save`.

    from coterie import reports

    ax = reports.curves(["runs/digits-fedavg-0", "runs/digits-ifca-0"])
    ax.set_ylim(50, 100)
    reports.save(ax, "curves.pdf")

Every function draws on the axes that it is given, or on those of a new figure, and returns them. None of them uses
pyplot or changes the settings of matplotlib. In a notebook, `ax.figure` shows the figure.
"""

from __future__ import annotations

from coterie.reports.figures.client_map import client_map
from coterie.reports.figures.communication import communication
from coterie.reports.figures.curves import curves
from coterie.reports.figures.discrepancy import discrepancy
from coterie.reports.figures.drift import drift, drift_outcomes
from coterie.reports.figures.fairness import fairness
from coterie.reports.figures.layout import KINDS, figure
from coterie.reports.figures.matrix import matrix
from coterie.reports.figures.relation import distance_relation, relation, sweep
from coterie.reports.figures.save import save
from coterie.reports.figures.search import cluster_search, explained_variance

__all__ = [
    "KINDS",
    "client_map",
    "cluster_search",
    "communication",
    "curves",
    "discrepancy",
    "distance_relation",
    "drift",
    "drift_outcomes",
    "explained_variance",
    "fairness",
    "figure",
    "matrix",
    "relation",
    "save",
    "sweep",
]
