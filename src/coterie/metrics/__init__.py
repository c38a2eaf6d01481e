"""Metrics of predictions (accuracy, F1, AUROC, calibration, errors) and of runs (final scores, clusters, costs).

Pure functions of NumPy arrays, sequences or mappings by client. Two arguments with one value per client must have the
same order, or both be mappings with the same clients. In an assignment, None or -1 means that a client has no cluster;
in a mapping, a client may also be missing. Rounds are positions in a curve, from 0. All functions raise `SpecError` for
invalid input.

The metrics are from FedGroup (arXiv:2010.06870), FlexCFL ("Flexible Clustered Federated Learning for Client-Level
Data Distribution Shift"), SR-FCA ("An Improved Federated Clustering Algorithm with Model-based Clustering") and
FedSim (doi:10.1016/j.neucom.2021.08.141).
"""

from __future__ import annotations

from coterie.metrics.client_scores import mean_accuracy, training_loss, weighted_accuracy, worst_share_accuracy
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
from coterie.metrics.metric import CLASSIFICATION, REGRESSION, Metric
from coterie.metrics.predictions import (
    accuracy,
    auroc,
    balanced_accuracy,
    brier,
    ece,
    log_loss,
    macro_f1,
    mae,
    r2,
    rmse,
)
from coterie.metrics.sums import BINS, FROM_SUMS, Sums, add_up
from coterie.metrics.validation import Assignment, Values

__all__ = [
    "BINS",
    "CLASSIFICATION",
    "FROM_SUMS",
    "PNI",
    "REGRESSION",
    "Assignment",
    "ClusterStats",
    "Discrepancy",
    "FinalRule",
    "Improvement",
    "Metric",
    "MisclusteringVariant",
    "Sums",
    "Values",
    "accuracy",
    "add_up",
    "adjusted_rand",
    "auroc",
    "balanced_accuracy",
    "brier",
    "bytes_to_target",
    "cluster_stats",
    "converged",
    "discrepancy",
    "ece",
    "final_score",
    "gradient_dissimilarity",
    "holm",
    "label_rmse",
    "log_loss",
    "macro_f1",
    "mae",
    "mean_accuracy",
    "mean_improvement",
    "migrations",
    "misclustering",
    "nmi",
    "pni",
    "r2",
    "rmse",
    "rounds_to_target",
    "training_loss",
    "weighted_accuracy",
    "worst_share_accuracy",
]
