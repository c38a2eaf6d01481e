"""TrimmedMeanGD: a round of training in every cluster with trimmed means. The training stage of SR-FCA's REFINE.

Vardhan, Ghosh, Mazumdar, "An Improved Federated Clustering Algorithm with Model-based Clustering", TMLR 2024,
arXiv:2210.11538:

    ω_c ← TrMean_β{LocalUpdate_i(ω_c)}              mode `models`: at most K members i of cluster c
    ω_c ← ω_c - η TrMean_β{∇f_i(ω_c)}               mode `gradients`

ω_c is row c of `bank`, β `beta`, η `local.learning_rate`. TrMean is `aggregation.trimmed_mean`; with β = 0 the run's
aggregation rule is used. `trimming` chooses the form of the published program. A cluster without replies keeps its
model; clients without examples do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from coterie import tree
from coterie.aggregation import Trimming, trimmed_mean
from coterie.clients import LocalSGD, fit, gradient
from coterie.federation.protocol import Cohort, Federation, Mean, PerClient, Replies
from coterie.methods.fedavg import distances_of, move_groups
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId


class Trained(NamedTuple):
    """Clusters after a round of training.

    Attributes:
        bank: The clusters' models.
        replies: The replies.
        distances: Client → distance of its local model to its cluster's model.
    """

    bank: Bank
    replies: Replies
    distances: Mapping[ClientId, float]


def train_by_gradients(
    bank: Bank,
    row: dict[ClientId, int],
    fed: Federation,
    cohort: Cohort,
    seed: Seed,
    rate: float,
    beta: float,
    trimming: Trimming = "symmetric",
) -> Trained:
    """One gradient step in every cluster; `row` is the cluster of each client."""
    got = fed.ask(cohort, gradient, seed, params=PerClient(bank, row))
    gradients, replied = _trimmed(tree.map(np.zeros_like, bank), row, fed, got, "gradient", beta, trimming)
    stepped = tree.map(lambda w, g: (w - rate * g.astype(np.float64)).astype(w.dtype), bank, gradients)
    return Trained(tree.where_rows(replied, stepped, bank), got, {})


def train_by_models(
    bank: Bank,
    row: dict[ClientId, int],
    fed: Federation,
    cohort: Cohort,
    seed: Seed,
    local: LocalSGD,
    beta: float,
    trimming: Trimming = "symmetric",
) -> Trained:
    """Local training in every cluster, and the trimmed mean of the models; `row` is the cluster of each client."""
    start = PerClient(bank, row)
    if beta == 0:
        mean = Mean(groups=tree.rows(bank), by=row, weights="uniform", spread=True)
        got = fed.ask(cohort, fit, seed, reduce=mean, start=start, local=local)
        return Trained(move_groups(bank, got), got, distances_of(got))
    got = fed.ask(cohort, fit, seed, start=start, local=local)
    bank, _ = _trimmed(bank, row, fed, got, "params", beta, trimming)
    spread = tree.row_distances(got["params"], bank, [row[client] for client in got.clients])
    return Trained(bank, got, dict(zip(got.clients, spread.tolist(), strict=True)))


def _trimmed(
    bank: Bank,
    row: dict[ClientId, int],
    fed: Federation,
    got: Replies,
    name: Literal["params", "gradient"],
    beta: float,
    trimming: Trimming,
) -> tuple[Bank, Array]:
    """TrMean_β of each cluster's replies, and which clusters have any; the others keep their row of `bank`."""
    rows = np.array([row[client] for client in got.clients], np.int64)
    models, replied = [tree.row(bank, c) for c in range(tree.rows(bank))], np.zeros(tree.rows(bank), bool)
    for c in np.unique(rows[got.samples > 0]).tolist():
        members = np.flatnonzero((rows == c) & (got.samples > 0))
        values, replied[c] = tree.take(got[name], members), True
        clients, start = [got.clients[i] for i in members], models[c]  # the start of gradients is 0
        mean = trimmed_mean(values, beta, trimming) if beta else None
        models[c] = fed.average(values, np.ones(len(members)), clients=clients, start=start) if mean is None else mean
    return tree.stack(models), replied
