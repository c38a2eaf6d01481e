"""CFL's split of a cluster in two, and the statistics that decide whether to make it.

Sattler, Müller, Samek, "Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization Under Privacy
Constraints", IEEE TNNLS 2021, arXiv:1910.01991:

    (16)  c1, c2 = argmin over c1 ∪ c2 = c of α_cross,                  α_cross = max_{i∈c1, j∈c2} cos(Δ_i, Δ_j)
    bound on γ_max:  √((1 - α_cross)/2),                                γ_i = ‖Δ_i - E Δ_i‖ / ‖E Δ_i‖
    B/W,  B = n1 n2/n ‖Δ̄_1 - Δ̄_2‖²,  W = Σ_i ‖Δ_i - Δ̄_part(i)‖² / (n - 2)

B/W is not in the paper: it is the pseudo-F of Caliński and Harabasz (1974).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.clustering.clusterers import bipartition
from coterie.clustering.measures import cosine
from coterie.types import Array

__all__ = ["SplitStatistics", "split_statistics"]


@dataclass(frozen=True)
class SplitStatistics:
    """The bipartition of clients by their updates, and how well it separates them.

    Attributes:
        similarities: The cosines of all pairs, (clients, clients).
        labels: The part of each client, 0 or 1.
        alpha_cross: α_cross.
        bound: √((1 - α_cross)/2): if the relative noise γ of all clients is below it, no two clients of one
            distribution are separated.
        gamma: The largest γ_i, with part means in place of the expectations E Δ_i.
        separation: B/W.
    """

    similarities: Array
    labels: Array
    alpha_cross: float
    bound: float
    gamma: float
    separation: float


def split_statistics(updates: Array, linkage: Literal["single", "complete", "average"] = "single") -> SplitStatistics:
    """The bipartition (16) and its statistics.

    Args:
        updates: Δ_i, (clients, parameters).
        linkage: `single` solves (16); `complete` is used by the authors' code; `average` compares means.
    """
    similarities = cosine(updates)
    labels = bipartition(similarities, linkage)
    cross = float(similarities[labels == 0][:, labels == 1].max())
    parts = [updates[labels == side].astype(np.float64) for side in (0, 1)]
    centers = [part.mean(axis=0) for part in parts]
    noise = [np.linalg.norm(part - center, axis=1) for part, center in zip(parts, centers, strict=True)]
    lengths = [float(np.linalg.norm(center)) for center in centers]
    gammas = [each.max() / length if length else np.inf for each, length in zip(noise, lengths, strict=True)]
    n1, n2 = map(len, parts)
    between = n1 * n2 / (n1 + n2) * float(np.square(centers[0] - centers[1]).sum())
    within = sum(float(np.square(each).sum()) for each in noise) / max(n1 + n2 - 2, 1)
    return SplitStatistics(
        similarities=similarities,
        labels=labels,
        alpha_cross=cross,
        bound=float(np.sqrt((1 - cross) / 2)),
        gamma=float(max(gammas)),
        separation=between / within if within else np.inf,
    )
