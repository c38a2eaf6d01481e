"""Partition the examples of one array among clients.

Each function takes labels or counts and returns index lists; `assemble` makes federated data from them and the arrays,
without copying examples. All results are determined by the seed.
"""

from __future__ import annotations

from coterie.data.partition.assembling import assemble, numbered
from coterie.data.partition.chunks import by_column, clustered, iid, inversions, rotations
from coterie.data.partition.classes import by_classes, by_lognormal, by_shares
from coterie.data.partition.groups import Groups, dirichlet, label_groups
from coterie.data.partition.labels import local_view, matched

__all__ = [
    "Groups",
    "assemble",
    "by_classes",
    "by_column",
    "by_lognormal",
    "by_shares",
    "clustered",
    "dirichlet",
    "iid",
    "inversions",
    "label_groups",
    "local_view",
    "matched",
    "numbered",
    "rotations",
]
