"""Clustering clients: how alike they are, which belong together, how many groups there are.

Pure functions of NumPy arrays; `U` is one vector for each client, (clients, d).

    measures     `cosine`, `madc`, `madc_of`, `edc_embedding`, `edc`, `l1`, `l2`, `principal_angle`
    clusterers   `kmeans`, `agglomerative`, `components`, `bipartition`
    choose       `choose`, `elbow`

A measure fits any clusterer that takes what it gives: points (`edc_embedding`) go to `kmeans`; distances (`madc`,
`edc`, `l1`, `l2`) to `agglomerative` and `components`; similarities (`cosine`) to `bipartition`.
"""

from __future__ import annotations

from coterie.clustering.choose import Choice, ChoiceRule, ElbowRule, choose, elbow
from coterie.clustering.clusterers import Linkage, agglomerative, bipartition, components, kmeans
from coterie.clustering.measures import cosine, edc, edc_embedding, l1, l2, madc, madc_of, principal_angle

__all__ = [
    "Choice",
    "ChoiceRule",
    "ElbowRule",
    "Linkage",
    "agglomerative",
    "bipartition",
    "choose",
    "components",
    "cosine",
    "edc",
    "edc_embedding",
    "elbow",
    "kmeans",
    "l1",
    "l2",
    "madc",
    "madc_of",
    "principal_angle",
]
