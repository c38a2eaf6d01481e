"""Ways to deal the examples of one array out among clients.

Each function takes labels or counts and gives index lists; `assemble` makes federated data of them and the arrays,
without copying an image. All are deterministic by their seed.
"""

from __future__ import annotations

from coterie.data.partition.assembling import assemble, numbered
from coterie.data.partition.chunks import by_column, clustered, iid, inversions, rotations
from coterie.data.partition.classes import by_classes, by_lognormal, by_shares
from coterie.data.partition.groups import Groups, dirichlet, label_groups
from coterie.data.partition.testing import local_view, matched

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
