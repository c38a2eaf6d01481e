"""Metrics of runs: accuracy, final scores, discrepancy, agreement with true clusters, cost to reach a target.

Pure functions of NumPy arrays, sequences or mappings by client. Two arguments with one value per client must have the
same order, or both be mappings with the same clients. In an assignment, None or -1 means that a client has no cluster;
in a mapping, a client may also be missing. Rounds are positions in a curve, from 0. All functions raise `SpecError` for
invalid input.

The metrics are from FedGroup (arXiv:2010.06870), FlexCFL ("Flexible Clustered Federated Learning for Client-Level
Data Distribution Shift"), SR-FCA ("An Improved Federated Clustering Algorithm with Model-based Clustering") and
FedSim (doi:10.1016/j.neucom.2021.08.141).
"""

from __future__ import annotations

from coterie.metrics.accuracy import mean_accuracy, training_loss, weighted_accuracy, worst_share_accuracy
from coterie.metrics.clusters import (
    ClusterStats,
    MisclusteringVariant,
    adjusted_rand,
    cluster_stats,
    migrations,
    misclustering,
    nmi,
)
from coterie.metrics.curves import (
    FinalRule,
    Improvement,
    bytes_to_target,
    converged,
    final_score,
    holm,
    mean_improvement,
    rounds_to_target,
)
from coterie.metrics.heterogeneity import PNI, Discrepancy, discrepancy, gradient_dissimilarity, label_rmse, pni
from coterie.metrics.validation import Assignment, Values

__all__ = [
    "PNI",
    "Assignment",
    "ClusterStats",
    "Discrepancy",
    "FinalRule",
    "Improvement",
    "MisclusteringVariant",
    "Values",
    "adjusted_rand",
    "bytes_to_target",
    "cluster_stats",
    "converged",
    "discrepancy",
    "final_score",
    "gradient_dissimilarity",
    "holm",
    "label_rmse",
    "mean_accuracy",
    "mean_improvement",
    "migrations",
    "misclustering",
    "nmi",
    "pni",
    "rounds_to_target",
    "training_loss",
    "weighted_accuracy",
    "worst_share_accuracy",
]
