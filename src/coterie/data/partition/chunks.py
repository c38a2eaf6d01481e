"""Partitions into equal parts, with or without clusters, and by a column such as the writer."""

from __future__ import annotations

import numpy as np

from coterie.data.checks import at_least, at_most
from coterie.data.federated import Index
from coterie.errors import DataError, SpecError
from coterie.seeds import Seed
from coterie.types import Array

_ROTATIONS = ("identity", "rot90", "rot180", "rot270")


#: Smallest part of a partition into unequal parts, if there are enough examples.
_SMALLEST = 5


def iid(examples: int, clients: int, *, size_spread: float = 0.0, seed: int = 0) -> Index:
    """Shuffle all examples and cut them into parts.

    Args:
        examples: Number of examples.
        clients: Number of clients.
        size_spread: 0: sizes differ by at most one. Otherwise every client has 5 examples, and the others are shared in
            proportion to draws from LogNormal(0, size_spread).
        seed: Random seed.
    """
    at_least("clients", clients, 1)
    at_least("size_spread", size_spread, 0)
    order = Seed(seed).fold("iid").permutation(examples)
    if not size_spread:
        return Index.from_lists(np.array_split(order, clients))
    shares = Seed(seed).fold("sizes").generator().lognormal(0.0, size_spread, clients)
    smallest = min(_SMALLEST, examples // clients)
    bounds = np.rint(np.cumsum(shares) / shares.sum() * (examples - smallest * clients)).astype(np.int64)
    return Index.from_sizes(order, np.diff(bounds, prepend=0) + smallest)


def clustered(
    examples: int, clients: int, clusters: int, *, whole: bool = False, chunks: int | None = None, seed: int = 0
) -> Index:
    """Equal parts; client i is in cluster i mod `clusters`.

    Args:
        examples: Number of examples.
        clients: Number of clients.
        clusters: Number of clusters.
        whole: False: the examples are split among all clients (SR-FCA's MNIST). True: each cluster splits all examples
            among its clients (IFCA's MNIST), so that an example occurs once per cluster.
        chunks: With `whole`, number of parts into which a cluster cuts the examples; its clients get some of them at
            random and the others are unused (SR-FCA's CIFAR-10 uses 8 of 16). None: one per client of the cluster.
        seed: Random seed.
    """
    at_least("clusters", clusters, 1)
    at_least("clients", clients, clusters, "the number of clusters")
    if not whole:
        if chunks is not None:
            raise SpecError("chunks can be used only with whole=True; leave it out")
        return iid(examples, clients, seed=seed)
    lists: dict[int, Array] = {}
    for cluster in range(clusters):
        members = range(cluster, clients, clusters)
        pieces = chunks or len(members)
        at_least("chunks", pieces, len(members))
        stream = Seed(seed).fold("cluster", cluster)
        cut = np.array_split(stream.fold("order").permutation(examples), pieces)
        kept = range(pieces) if pieces == len(members) else stream.fold("keep").sample(pieces, len(members))
        lists.update(zip(members, (cut[piece] for piece in kept), strict=True))
    return Index.from_lists([lists[i] for i in range(clients)])


def rotations(clusters: int, *, step: int = 90) -> tuple[str, ...]:
    """The transforms that rotate cluster j by j·`step` degrees; the step is 90 for MNIST, 180 for CIFAR-10."""
    if step not in (90, 180, 270):
        raise SpecError(f"step must be 90, 180 or 270 degrees, got {step}")
    at_most("clusters", clusters, 2 if step == 180 else 4, f"since steps of {step}° then repeat")
    return tuple(_ROTATIONS[j * step // 90 % 4] for j in range(clusters))


def inversions(clusters: int = 2, *, levels: int = 256) -> tuple[str, ...]:
    """The transforms that invert the images of cluster 1; there are two clusters.

    `levels` is 256 for bytes and floats, 17 for scikit-learn's digits.
    """
    if clusters != 2:
        raise SpecError(f"Inversion gives 2 clusters, got clusters={clusters}. Set clusters=2")
    if levels not in (17, 256):
        raise SpecError(f"levels must be 17 or 256, got {levels}")
    return ("identity", "invert16" if levels == 17 else "invert")


def by_column(values: Array) -> tuple[Index, list[str]]:
    """The examples of each value of a column, such as the writer, and the sorted values as client ids."""
    values = np.asarray(values)
    if values.ndim != 1 or len(values) == 0:
        raise DataError(f"A column must be a list of at least one value, got shape {values.shape}")
    names, inverse, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return Index.from_sizes(np.argsort(inverse, kind="stable"), sizes), [str(name) for name in names]
