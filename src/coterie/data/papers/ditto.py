"""Fashion-MNIST with five classes for each of 500 clients: Ditto's generator, as FlexCFL uses it.

Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, arXiv:2012.04221; Duan et
al., "Flexible Clustered Federated Learning for Client-Level Data Distribution Shift", IEEE TPDS 2022, arXiv:2108.09749.
Training images come from the training set, test images from the test set; each pixel is standardized with the training
images, (x - mean)/(deviation + 0.001). Images are taken in turn, round and round within a class, so some serve several
clients: 72,505 in the published draw (NumPy's seed 233, which gives other numbers here).
"""

from __future__ import annotations

from coterie.data import partition
from coterie.data.federated import FederatedData
from coterie.data.pools import pool


def fmnist_500(*, clients: int = 500, per_client: int = 5, seed: int = 0) -> FederatedData:
    """Neighbouring classes in unequal shares.

    Args:
        clients: Number of clients.
        per_client: Classes for each client.
        seed: Fixes every draw.
    """
    fmnist = pool("fmnist")
    fit, tested = partition.by_shares(fmnist.labels, fmnist.test_labels, clients, per_client=per_client, seed=seed)
    return fmnist.dealt("fmnist-500", fit, tested, seed=seed, normalize=fmnist.per_pixel(fmnist.train))
