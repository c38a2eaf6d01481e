"""The cross-cluster loss of SR-FCA between clients and clusters: the loss of one's model on the other's examples.

    client i, client j      ½ (f_i(w_j) + f_j(w_i))
    cluster c, client j     ½ (f_c(w_j) + f_j(ω_c))
    cluster c, cluster c'   ½ (f_c(ω_c') + f_c'(ω_c))            f_c = mean of f_i over the members i of c

Vardhan, Ghosh, Mazumdar, "An Improved Federated Clustering Algorithm with Model-based Clustering", arXiv:2210.11538,
Definition 5.1. A table of losses has one row per evaluating client or cluster and one column per model. `cross`
computes all three cross losses from such tables; `losses_by_cluster` computes the rows of clusters. The cross loss is
not a metric: the distance of a client to itself is not 0.

Departure from the paper, which assumes that all clients reply: an unknown loss is NaN. If only one half of a pair is
known, it is used alone; a pair without known losses gets the distance of the farthest pair. f_c is the mean over the
members that replied. The halves of a client and a cluster are not comparable: f_c(w_j) is the loss of a model trained
by one client, f_j(ω_c) that of a model trained by many. Comparisons between clusters must use the same half throughout.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coterie.errors import SpecError

__all__ = ["cross", "losses_by_cluster"]

Matrix = npt.NDArray[np.float64]


def cross(F: npt.ArrayLike, G: npt.ArrayLike) -> Matrix:
    """The cross losses ½ (F + Gᵀ) between the rows and the columns of `F`.

    Args:
        F: Losses of the models of the columns on the examples of the rows, (rows, columns); NaN: unknown.
        G: Losses of the models of the rows on the examples of the columns, (columns, rows). Between clients, or between
            clusters, it is the same table as `F`.

    Raises:
        SpecError: If the shapes do not match, a loss is infinite, or all are unknown.
    """
    first, second = _table(F, "F"), _table(G, "G").T
    if first.shape != second.shape:
        raise SpecError(f"G must have the shape of F transposed, got shapes {first.shape} and {second.T.shape}")
    halves = np.stack([first, second])
    known = ~np.isnan(halves)
    if not known.any():
        raise SpecError("All losses are unknown (NaN): at least one is needed")
    count = known.sum(axis=0)
    mean: Matrix = np.where(known, halves, 0.0).sum(axis=0) / np.maximum(count, 1)
    return np.where(count > 0, mean, mean.max(where=count > 0, initial=0.0))


def losses_by_cluster(F: npt.ArrayLike, labels: npt.ArrayLike, clusters: int) -> Matrix:
    """f_c of each model: the unweighted mean loss over the members of each cluster, (clusters, models).

    Args:
        F: Losses of models on the clients' examples, (clients, models); NaN: unknown.
        labels: Cluster of each client; -1: none.
        clusters: Number of clusters. A cluster without known losses has a row of NaN.

    Raises:
        SpecError: If there is not one valid label per row.
    """
    losses, own = _table(F, "F"), np.asarray(labels)
    if own.shape != (len(losses),) or (len(own) and not -1 <= own.min() <= own.max() < clusters):
        raise SpecError(f"labels must be numbers from -1 to {clusters - 1}, one for each of the {len(losses)} clients")
    known = ~np.isnan(losses)
    result: Matrix = np.full((clusters, losses.shape[1]), np.nan)
    for c in range(clusters):
        members = own == c
        count = known[members].sum(axis=0)
        total = np.where(known, losses, 0.0)[members].sum(axis=0)
        np.divide(total, count, out=result[c], where=count > 0)
    return result


def _table(values: npt.ArrayLike, name: str) -> Matrix:
    table = np.asarray(values, np.float64)
    if table.ndim != 2:
        raise SpecError(f"{name} must be a matrix of losses (clients or clusters, models), got shape {table.shape}")
    if np.isinf(table).any():
        raise SpecError(f"{name} must hold finite losses, or NaN for unknown ones; it holds infinity")
    return table
