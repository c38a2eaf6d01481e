"""The planted clusters of SR-FCA and IFCA: images rotated, inverted or split by class.

Vardhan, Ghosh, Mazumdar, "An Improved Federated Clustering Algorithm with Model-based Clustering", TMLR 2024,
arXiv:2210.11538; Ghosh, Chung, Yin, Ramchandran, "An Efficient Framework for Clustered Federated Learning", NeurIPS
2020, arXiv:2006.04088. Client i is in cluster i mod k, which is its true cluster.

SR-FCA splits MNIST into equal parts, one per client. For CIFAR-10, each cluster cuts all images into 16 parts and uses
8. In IFCA's MNIST, each of the four rotations has all images. IFCA evaluates m/6 clients that do not train; here the
10,000 test images of a rotation are split among its clients, so that the same images are evaluated. If the files are a
subset, the numbers of clients and parts stay the same and the parts are smaller.

Departure: for CIFAR-10, SR-FCA's code trains with data augmentation (random flips, shifts by up to 2 pixels and a
random erased square of 8×8 pixels). Here images are used as published, so expect lower accuracies.
"""

from __future__ import annotations

import numpy as np

from coterie.data import partition
from coterie.data.checks import check_clusters
from coterie.data.datasets.pool import pool
from coterie.data.federated import FederatedData, Index
from coterie.seeds import Seed
from coterie.types import Array

_UNIT = (0.0, 255.0)  # pixels from 0 to 1
_RAW = (0.0, 1.0)
_CLASSES = (range(6), range(4, 10))


def mnist_rotated(*, clients: int = 100, clusters: int = 4, seed: int = 0) -> FederatedData:
    """MNIST in equal parts, client i rotated by 90°·(i mod 4); pixels from 0 to 1.

    Args:
        clients: Number of clients.
        clusters: Number of rotations, 1..4.
        seed: Random seed.
    """
    rotations = partition.rotations(clusters)
    return _clustered("mnist-rotated", clients, rotations, seed, normalize=_UNIT)


def mnist_inverted(*, clients: int = 100, seed: int = 0) -> FederatedData:
    """MNIST in equal parts, every other client inverted; pixels from 0 to 255, as in the published code.

    Args:
        clients: Number of clients.
        seed: Random seed.
    """
    return _clustered("mnist-inverted", clients, partition.inversions(), seed, normalize=_RAW)


def mnist_rotated_ifca(*, clients: int = 1200, clusters: int = 4, seed: int = 0) -> FederatedData:
    """MNIST in four rotations, each with all images split among its clients; pixels from 0 to 1.

    Args:
        clients: Number of clients; 1200, 2400 or 4800 in the paper, with 200, 100 or 50 images each.
        clusters: Number of rotations, 1..4.
        seed: Random seed.
    """
    rotations = partition.rotations(clusters)
    return _clustered("mnist-rotated-ifca", clients, rotations, seed, whole=True, normalize=_UNIT)


def cifar10_rotated(*, clients: int = 16, chunks: int = 16, seed: int = 0) -> FederatedData:
    """CIFAR-10 unchanged and rotated by 180°; each cluster's clients have 8 of 16 parts of all images.

    Args:
        clients: Number of clients, half of them in each cluster.
        chunks: Number of parts into which a cluster cuts the images.
        seed: Random seed.
    """
    rotations = partition.rotations(2, step=180)
    return _clustered("cifar10-rotated", clients, rotations, seed, whole=True, chunks=chunks)


def cifar10_classes(*, clients: int = 16, chunks: int = 16, seed: int = 0) -> FederatedData:
    """CIFAR-10 in two clusters with classes 0 to 5 and 4 to 9; each cluster uses 8 of 16 parts of its images.

    This variant is only in SR-FCA's code.

    Args:
        clients: Number of clients, half of them in each cluster.
        chunks: Number of parts into which a cluster cuts its images.
        seed: Random seed.
    """
    check_clusters(clients, len(_CLASSES))
    images = pool("cifar10-classes")
    indexes = []
    for labels, stream in ((images.labels, Seed(seed)), (images.test_labels, Seed(seed).fold("test"))):
        lists: list[Array] = [np.zeros(0, np.int64)] * clients
        for cluster, classes in enumerate(_CLASSES):
            own = np.flatnonzero(np.isin(labels, classes))
            members = range(cluster, clients, len(_CLASSES))
            draw = stream.fold("classes", cluster).value
            pieces = partition.clustered(len(own), len(members), 1, whole=True, chunks=chunks, seed=draw)
            for place, client in enumerate(members):
                lists[client] = own[pieces.of(place)]
        indexes.append(Index.from_lists(lists))
    return images.federated(*indexes, seed=seed, truth=np.arange(clients) % len(_CLASSES))


def _clustered(
    name: str,
    clients: int,
    transforms: tuple[str, ...],
    seed: int,
    *,
    whole: bool = False,
    chunks: int | None = None,
    normalize: tuple[float, float] | None = None,
) -> FederatedData:
    """Equal parts of training and of test images; cluster j has transform j."""
    clusters = len(transforms)
    images = pool(name)
    fit, tested = (
        partition.clustered(len(labels), clients, clusters, whole=whole, chunks=chunks, seed=stream)
        for labels, stream in ((images.labels, seed), (images.test_labels, Seed(seed).fold("test").value))
    )
    truth = np.arange(clients) % clusters
    return images.federated(
        fit,
        tested,
        seed=seed,
        transforms=transforms,
        transform=truth.astype(np.uint8),
        truth=truth,
        normalize=normalize,
    )
