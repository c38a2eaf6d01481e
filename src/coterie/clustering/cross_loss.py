"""How well each one's model does on another's examples: the cross-cluster loss of SR-FCA, for clients and clusters.

    client i, client j      ½ (f_i(w_j) + f_j(w_i))
    cluster c, client j     ½ (f_c(w_j) + f_j(ω_c))
    cluster c, cluster c'   ½ (f_c(ω_c') + f_c'(ω_c))            f_c = mean of f_i over the members i of c

Vardhan, Ghosh, Mazumdar, "An Improved Federated Clustering Algorithm with Model-based Clustering", arXiv:2210.11538,
Definition 5.1. A table of losses has a row for each who scored and a column for each model. `cross` makes all three of
such tables: of clients by clients, of clients by clusters and clusters by clients, of clusters by clusters; the rows of
clusters come from `losses_by_cluster`. It is no metric: the distance to oneself is not 0.

Departure from the paper, where everyone answers: a loss that nobody knows is NaN. Of a pair with one known half that
half counts; a pair of which nothing is known is as far apart as the farthest pair. In f_c, those members count that
answered. The halves of a client and a cluster are of two kinds, f_c(w_j) of a model that one client trained alone and
f_j(ω_c) of one that many trained: who compares clusters must not take one kind here and the other there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coterie.errors import SpecError

__all__ = ["cross", "losses_by_cluster"]

Matrix = npt.NDArray[np.float64]


def cross(F: npt.ArrayLike, G: npt.ArrayLike) -> Matrix:
    """½ (F + Gᵀ), the cross losses between those in the rows of `F` and those in its columns.

    Args:
        F: Losses of the columns' models on the rows' examples, (rows, columns); NaN where nobody knows.
        G: Losses of the rows' models on the columns' examples, (columns, rows); for pairs of one kind, the same table.

    Raises:
        SpecError: If the tables do not fit, hold infinity, or nothing at all is known.
    """
    there, back = _table(F, "F"), _table(G, "G").T
    if there.shape != back.shape:
        raise SpecError(f"F and G must be tables of the same pairs, got shapes {there.shape} and {back.T.shape}")
    halves = np.stack([there, back])
    known = ~np.isnan(halves)
    if not known.any():
        raise SpecError("No loss is known of any pair: there is nothing to compare")
    count = known.sum(axis=0)
    mean: Matrix = np.where(known, halves, 0.0).sum(axis=0) / np.maximum(count, 1)
    return np.where(count > 0, mean, mean.max(where=count > 0, initial=0.0))


def losses_by_cluster(F: npt.ArrayLike, labels: npt.ArrayLike, clusters: int) -> Matrix:
    """f_c of each model: the mean loss over the members of each cluster, every member counting 1, (clusters, models).

    Args:
        F: Losses of models on the clients' examples, (clients, models); NaN where nobody knows.
        labels: The cluster of each client, -1 for none.
        clusters: How many there are; one of whom nothing is known has a row of NaN.

    Raises:
        SpecError: If the labels do not fit the table.
    """
    losses, own = _table(F, "F"), np.asarray(labels)
    if own.shape != (len(losses),) or (len(own) and not -1 <= own.min() <= own.max() < clusters):
        raise SpecError(f"labels must be one of -1 to {clusters - 1} for each of the {len(losses)} clients")
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
        raise SpecError(f"{name} must be a table of losses (who scored, models), got shape {table.shape}")
    if np.isinf(table).any():
        raise SpecError(f"{name} must hold finite losses, or NaN for what nobody knows; it holds infinity")
    return table
