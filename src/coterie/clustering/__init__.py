"""Clustering of clients: similarity measures, clustering algorithms, number of clusters.

Pure functions of NumPy arrays. `U` is one vector per client, (clients, d).

    measures     `cosine`, `madc`, `madc_of`, `edc_embedding`, `edc`, `l1`, `l2`, `principal_angle`
    pca          `principal_scores`
    angles       `pacfl_angles`, `class_angles`, `update_angles`
    proximity    `flag_data_angles`, `flag_proximity`
    clusterers   `kmeans`, `agglomerative`, `components`, `bipartition`
    cross_loss   `cross`, `losses_by_cluster`
    thresholds   `widest_gap`, `pairwise_quantile`, `pivots`, `nearest`, `merge`
    noise_floor  `first_gap_above_noise`, `noise_limit`
    n_clusters   `choose_n_clusters`, `elbow`, `guarded_elbow`
    repeated_splits  `repeated_splits`

Points (`edc_embedding`, `principal_scores`) are clustered by `kmeans`, distances (`madc`, `edc`, `l1`, `l2`) by
`agglomerative` and `components`, similarities (`cosine`) by `bipartition`.
"""

from __future__ import annotations

from coterie.clustering.angles import PairAngle, class_angles, pacfl_angles, update_angles
from coterie.clustering.clusterers import Linkage, agglomerative, bipartition, components, kmeans
from coterie.clustering.cross_loss import cross, losses_by_cluster
from coterie.clustering.measures import cosine, edc, edc_embedding, l1, l2, madc, madc_of, principal_angle
from coterie.clustering.n_clusters import Choice, ChoiceRule, ElbowRule, choose_n_clusters, elbow, guarded_elbow
from coterie.clustering.noise_floor import first_gap_above_noise, noise_limit
from coterie.clustering.pca import principal_scores
from coterie.clustering.proximity import flag_data_angles, flag_proximity
from coterie.clustering.repeated_splits import repeated_splits
from coterie.clustering.thresholds import Gap, merge, nearest, pairwise_quantile, pivots, widest_gap

__all__ = [
    "Choice",
    "ChoiceRule",
    "ElbowRule",
    "Gap",
    "Linkage",
    "PairAngle",
    "agglomerative",
    "bipartition",
    "choose_n_clusters",
    "class_angles",
    "components",
    "cosine",
    "cross",
    "edc",
    "edc_embedding",
    "elbow",
    "first_gap_above_noise",
    "flag_data_angles",
    "flag_proximity",
    "guarded_elbow",
    "kmeans",
    "l1",
    "l2",
    "losses_by_cluster",
    "madc",
    "madc_of",
    "merge",
    "nearest",
    "noise_limit",
    "pacfl_angles",
    "pairwise_quantile",
    "pivots",
    "principal_angle",
    "principal_scores",
    "repeated_splits",
    "update_angles",
    "widest_gap",
]
