"""Turned and inverted images, and overlapping classes: the clusters of SR-FCA and IFCA.

Vardhan, Ghosh, Mazumdar, "An Improved Federated Clustering Algorithm with Model-based Clustering", TMLR 2024,
arXiv:2210.11538; Ghosh, Chung, Yin, Ramchandran, "An Efficient Framework for Clustered Federated Learning", NeurIPS
2020, arXiv:2006.04088. Client i is in cluster i mod k, which is its true cluster.

SR-FCA deals MNIST out once, in equal pieces; of CIFAR-10 each cluster has its own split of all images into 16 pieces,
of which 8 are used. In IFCA's MNIST each of four rotations has all images. IFCA scores m/6 clients that do not train;
here the 10,000 test images of a rotation are dealt out among its clients, so that the same images are scored. Where
the file holds a subset, the numbers of clients and pieces stay and the pieces shrink.

Departure: for CIFAR-10, SR-FCA's code trains on images that are flipped, moved by up to 2 pixels and robbed of a square
of 8×8 at random, anew each time. Here images are as published: such draws belong to the training of a task, which has
none of them; expect lower accuracies.
"""

from __future__ import annotations

import numpy as np

from coterie.data import partition
from coterie.data.federated import FederatedData, Index
from coterie.data.partition.counting import a_client_each
from coterie.data.pools import pool
from coterie.seeds import Seed
from coterie.types import Array

_UNIT = (0.0, 255.0)  # pixels from 0 to 1
_RAW = (0.0, 1.0)
_CLASSES = (range(6), range(4, 10))


def mnist_rotated(*, clients: int = 100, clusters: int = 4, seed: int = 0) -> FederatedData:
    """MNIST in equal pieces, client i turned by 90°·(i mod 4); pixels from 0 to 1.

    Args:
        clients: Number of clients.
        clusters: Number of rotations, 1..4.
        seed: Fixes every draw.
    """
    turns = partition.rotations(clusters)
    return _clustered("mnist-rotated", "mnist", clients, turns, seed, normalize=_UNIT)


def mnist_inverted(*, clients: int = 100, seed: int = 0) -> FederatedData:
    """MNIST in equal pieces, every other client black for white; pixels from 0 to 255, as in the published code.

    Args:
        clients: Number of clients.
        seed: Fixes every draw.
    """
    return _clustered("mnist-inverted", "mnist", clients, partition.inversions(), seed, normalize=_RAW)


def mnist_rotated_ifca(*, clients: int = 1200, clusters: int = 4, seed: int = 0) -> FederatedData:
    """MNIST under four rotations, each with all images among its own clients; pixels from 0 to 1.

    Args:
        clients: 1200, 2400 or 4800 in the paper: 200, 100 or 50 images each.
        clusters: Number of rotations, 1..4.
        seed: Fixes every draw.
    """
    turns = partition.rotations(clusters)
    return _clustered("mnist-rotated-ifca", "mnist", clients, turns, seed, whole=True, normalize=_UNIT)


def cifar10_rotated(*, clients: int = 16, chunks: int = 16, seed: int = 0) -> FederatedData:
    """CIFAR-10 as it is and turned by 180°; each cluster's clients hold 8 of 16 pieces of all images.

    Args:
        clients: Number of clients, half of them in each cluster.
        chunks: Pieces into which a cluster cuts the images.
        seed: Fixes every draw.
    """
    turns = partition.rotations(2, step=180)
    return _clustered("cifar10-rotated", "cifar10", clients, turns, seed, whole=True, chunks=chunks)


def cifar10_classes(*, clients: int = 16, chunks: int = 16, seed: int = 0) -> FederatedData:
    """CIFAR-10 in two clusters that share two classes, 0 to 5 and 4 to 9; each uses 8 of 16 pieces of its images.

    This variant is in SR-FCA's code only.

    Args:
        clients: Number of clients, half of them in each cluster.
        chunks: Pieces into which a cluster cuts its images.
        seed: Fixes every draw.
    """
    a_client_each(clients, len(_CLASSES))
    held = pool("cifar10")
    dealt = []
    for labels, stream in ((held.labels, Seed(seed)), (held.test_labels, Seed(seed).fold("test"))):
        lists: list[Array] = [np.zeros(0, np.int64)] * clients
        for cluster, classes in enumerate(_CLASSES):
            own = np.flatnonzero(np.isin(labels, classes))
            members = range(cluster, clients, len(_CLASSES))
            draw = stream.fold("classes", cluster).value
            pieces = partition.clustered(len(own), len(members), 1, whole=True, chunks=chunks, seed=draw)
            for place, client in enumerate(members):
                lists[client] = own[pieces.of(place)]
        dealt.append(Index.from_lists(lists))
    return held.dealt("cifar10-classes", *dealt, seed=seed, truth=np.arange(clients) % len(_CLASSES))


def _clustered(
    name: str,
    images: str,
    clients: int,
    transforms: tuple[str, ...],
    seed: int,
    *,
    whole: bool = False,
    chunks: int | None = None,
    normalize: tuple[float, float] | None = None,
) -> FederatedData:
    """Pieces of training and of test images; cluster j sees them under transform j."""
    clusters = len(transforms)
    held = pool(images)
    fit, tested = (
        partition.clustered(len(labels), clients, clusters, whole=whole, chunks=chunks, seed=stream)
        for labels, stream in ((held.labels, seed), (held.test_labels, Seed(seed).fold("test").value))
    )
    truth = np.arange(clients) % clusters
    return held.dealt(
        name,
        fit,
        tested,
        seed=seed,
        transforms=transforms,
        transform=truth.astype(np.uint8),
        truth=truth,
        normalize=normalize,
    )
