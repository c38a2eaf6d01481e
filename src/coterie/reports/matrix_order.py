"""The order of clients in a matrix of distances: by cluster, then by similarity; with its dendrogram."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from coterie.types import Array


@dataclass(frozen=True)
class OrderedMatrix:
    """The order of the rows of a matrix.

    Attributes:
        order: Position of the client in each row.
        segments: (lines, 4) of the dendrogram: x1, height 1, x2, height 2. Leaf i is at x = i + 0.5, height 0.
        height: Height of the last join.
    """

    order: Array
    segments: Array
    height: float


@dataclass
class _Node:
    """A joined group of rows: its leaves in order, and the height at which they joined."""

    leaves: list[int]
    height: float = 0.0
    x: float = 0.0
    parts: list[_Node] = field(default_factory=list)


def order_matrix(distances: Array, cluster: Array) -> OrderedMatrix:
    """Order clients by cluster.

    Clients of a cluster are joined first, by average linkage, then the clusters, by the mean distance of their clients.
    A join is never drawn below its parts.

    Args:
        distances: (clients, clients) symmetric.
        cluster: (clients,) the cluster of each client.
    """
    if not len(distances):
        return OrderedMatrix(np.zeros(0, np.int64), np.zeros((0, 4)), 0.0)
    groups = [np.flatnonzero(cluster == each) for each in np.unique(cluster)]
    trees = [_joined([_Node([place]) for place in each.tolist()], distances[np.ix_(each, each)]) for each in groups]
    between = np.array([[distances[np.ix_(a, b)].mean() for b in groups] for a in groups])
    root = _joined(trees, between)
    segments: list[tuple[float, float, float, float]] = []
    _place(root, segments)
    return OrderedMatrix(np.array(root.leaves, np.int64), np.array(segments).reshape(-1, 4), root.height)


def _joined(nodes: list[_Node], distances: Array) -> _Node:
    """Join nodes by average linkage of their distances, the tree of the nodes."""
    if len(nodes) == 1:
        return nodes[0]
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    symmetric = (distances + distances.T) / 2
    np.fill_diagonal(symmetric, 0.0)
    made = list(nodes)
    for a, b, height, _ in linkage(squareform(symmetric, checks=False), "average", optimal_ordering=len(nodes) <= 300):
        parts = [made[int(a)], made[int(b)]]
        lifted = max(float(height), *(part.height for part in parts))
        made.append(_Node([*parts[0].leaves, *parts[1].leaves], lifted, parts=parts))
    return made[-1]


def _place(root: _Node, segments: list[tuple[float, float, float, float]]) -> None:
    """Place every node above the middle of its parts, and add the lines of its join."""
    position = {leaf: place for place, leaf in enumerate(root.leaves)}
    order: list[_Node] = []
    waiting = [root]
    while waiting:  # parents before parts; a tree may be deeper than Python's stack
        node = waiting.pop()
        order.append(node)
        waiting += node.parts
    for node in reversed(order):
        if not node.parts:
            node.x = position[node.leaves[0]] + 0.5
            continue
        one, other = node.parts
        node.x = (one.x + other.x) / 2
        segments += [
            (one.x, one.height, one.x, node.height),
            (one.x, node.height, other.x, node.height),
            (other.x, node.height, other.x, other.height),
        ]
