"""Linear regression with planted clusters, as in IFCA (arXiv:2006.04088) and SR-FCA.

θ*_j = r·Bernoulli(½)^d for cluster j, x ~ N(0, I), y = <x, θ*> + σ·N(0, 1); client i is in cluster i mod k. The
published code of SR-FCA also scales the signal of its test targets by σ; here they are drawn like the training targets.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coterie.data.checks import above, at_least, check_clusters
from coterie.data.federated import FederatedData, Index, aligned
from coterie.data.partition import numbered
from coterie.seeds import Seed


def regression(
    *,
    clients: int = 50,
    clusters: int = 2,
    dimension: int = 1000,
    samples: int = 100,
    test_samples: int = 100,
    noise: float = 0.001,
    radius: float = 1.0,
    seed: int = 0,
) -> FederatedData:
    """Examples with regression targets.

    Args:
        clients: Number of clients; 50 in SR-FCA, 100 in IFCA.
        clusters: Number of clusters, k.
        dimension: Number of features, d.
        samples: Number of training examples per client.
        test_samples: Number of test examples per client.
        noise: Standard deviation of the noise of the targets, σ.
        radius: Value of the nonzero weights, r.
        seed: Random seed.
    """
    for name, value, minimum in (("clusters", clusters, 1), ("dimension", dimension, 1)):
        at_least(name, value, minimum)
    for name, number, minimum in (("samples", samples, 0), ("test_samples", test_samples, 0), ("noise", noise, 0)):
        at_least(name, number, minimum)
    above("radius", radius, 0)
    check_clusters(clients, clusters)
    truth = np.arange(clients) % clusters
    theta = planted_weights(clusters, dimension, radius=radius, seed=seed)
    each = samples + test_samples
    x = aligned(np.empty((clients * each, dimension), np.float32))
    y = np.empty(clients * each, np.float32)
    for client in range(clients):
        own = slice(client * each, (client + 1) * each)
        draw = Seed(seed).fold("examples", client).generator()
        x[own] = draw.standard_normal((each, dimension), dtype=np.float32)
        y[own] = x[own].astype(np.float64) @ theta[truth[client]] + noise * draw.standard_normal(each)
    order = np.arange(clients * each).reshape(clients, each)
    return FederatedData(
        name="regression",
        x=x,
        y=y,
        clients=numbered(clients),
        fit=Index.from_sizes(order[:, :samples].ravel(), np.full(clients, samples)),
        test=Index.from_sizes(order[:, samples:].ravel(), np.full(clients, test_samples)),
        classes=None,
        truth=truth,
        source="linear regression with planted clusters (IFCA, arXiv:2006.04088), generated from a seed",
        held_seed=Seed(seed),
    )


def planted_weights(clusters: int, dimension: int, *, radius: float = 1.0, seed: int = 0) -> npt.NDArray[np.float64]:
    """(clusters, dimension): the true weights of each cluster, each 0 or `radius` with probability ½."""
    draws = [Seed(seed).fold("theta", j).uniform(dimension) < 0.5 for j in range(clusters)]
    return radius * np.asarray(draws).astype(np.float64)
