"""Images of Gaussian blobs with planted clusters: easy to separate, with any image size and number of clients.

Each class has a prototype of three bumps at random places; an example is the prototype of its class plus noise. All
clusters have the same prototypes, but rotated, inverted, shifted or with permuted labels.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from coterie.data.checks import at_least, at_most, check_clusters, check_share
from coterie.data.federated import FederatedData, Index, aligned
from coterie.data.partition import inversions, numbered, rotations
from coterie.data.partition.assembling import train_count
from coterie.errors import SpecError, unknown
from coterie.seeds import Seed
from coterie.types import Array

_RELATIONS = ("rotated", "inverted", "permuted_labels", "shifted")
_BUMPS = 3
_BLOCK = 1 << 16  # examples generated at a time, to save memory


def blobs(
    *,
    clients: int = 40,
    clusters: int = 4,
    samples: int = 50,
    side: int = 8,
    classes: int = 4,
    noise: float = 0.1,
    relation: Literal["rotated", "inverted", "permuted_labels", "shifted"] = "rotated",
    test_share: float = 0.2,
    seed: int = 0,
) -> FederatedData:
    """Images of side×side bytes; client i is in cluster i mod `clusters`.

    Args:
        clients: Number of clients.
        clusters: Number of clusters.
        samples: Number of training and test examples per client.
        side: Height and width of the images; 28 is the size of MNIST.
        classes: Number of classes; all are equally likely.
        noise: Standard deviation of the noise; the maximum of a prototype is 1.
        relation: How cluster j differs from cluster 0. "rotated": images rotated by 90°·j. "inverted": images of
            cluster 1 inverted. "permuted_labels": label y becomes y + j mod `classes`. "shifted": images shifted
            horizontally by j·side/clusters pixels, with wraparound.
        test_share: Fraction of each client's examples used for testing.
        seed: Random seed.
    """
    at_least("clusters", clusters, 1)
    check_clusters(clients, clusters)
    at_least("samples", samples, 1)
    for name, number, minimum in (("side", side, 2), ("classes", classes, 1), ("noise", noise, 0)):
        at_least(name, number, minimum)
    check_share(test_share)
    truth = np.arange(clients) % clusters
    transforms = _transforms(relation, clusters, classes, side)
    stream = Seed(seed)
    images = prototypes(classes, side, seed=seed)[None]  # (1 or clusters, classes, side, side)
    if relation == "shifted":
        images = np.concatenate([np.roll(images, j * side // clusters, axis=3) for j in range(clusters)])
    y = (stream.fold("labels").words(clients * samples) % np.uint64(classes)).astype(np.int32)
    x = _noisy(images, np.repeat(truth % len(images), samples), y, noise, stream.fold("noise"))
    if relation == "permuted_labels":
        y = ((y + np.repeat(truth, samples)) % classes).astype(np.int32)
    order = np.arange(clients * samples).reshape(clients, samples)  # examples are independent: no shuffle is needed
    fit = train_count(samples, test_share)
    return FederatedData(
        name="blobs",
        x=x,
        y=y,
        clients=numbered(clients),
        fit=Index.from_sizes(order[:, :fit].ravel(), np.full(clients, fit)),
        test=Index.from_sizes(order[:, fit:].ravel(), np.full(clients, samples - fit)),
        classes=classes,
        transforms=transforms,
        transform=truth.astype(np.uint8) if len(transforms) > 1 else None,
        truth=truth,
        source="Gaussian blobs, generated from a seed",
        held_seed=stream,
    )


def prototypes(classes: int, side: int, *, seed: int = 0) -> npt.NDArray[np.float64]:
    """(classes, side, side): the image of each class without noise; the maximum is 1."""
    draws = Seed(seed).fold("prototypes").uniform(classes * _BUMPS * 3).reshape(classes, _BUMPS, 3, 1, 1)
    rows, columns = np.mgrid[0:side, 0:side] / (side - 1)
    width = 0.1 + 0.1 * draws[:, :, 2]
    distance = (rows - draws[:, :, 0]) ** 2 + (columns - draws[:, :, 1]) ** 2
    images = np.exp(-distance / (2 * width**2)).sum(axis=1)
    bright: npt.NDArray[np.float64] = images / images.max(axis=(1, 2), keepdims=True)
    return bright


def _transforms(relation: str, clusters: int, classes: int, side: int) -> tuple[str, ...]:
    if relation not in _RELATIONS:
        raise SpecError(unknown("relation", relation, _RELATIONS))
    if relation == "rotated":
        return rotations(clusters)
    if relation == "inverted":
        return inversions(clusters)
    if relation == "permuted_labels":
        at_most("clusters", clusters, classes, "the number of classes, for permuted_labels")
    else:
        at_most("clusters", clusters, side, "the side of the images, for shifted")
    return ("identity",)


def _noisy(images: Array, cluster: Array, y: Array, noise: float, seed: Seed) -> Array:
    """(examples, side, side) bytes: prototypes plus noise, clipped to 0..255."""
    x = aligned(np.empty((len(y), *images.shape[2:]), np.uint8))
    bright = (255 * images).astype(np.float32)
    for block, start in enumerate(range(0, len(y), _BLOCK)):
        rows = slice(start, start + _BLOCK)
        values = seed.fold(block).generator().standard_normal(x[rows].shape, dtype=np.float32)
        values *= 255 * noise
        values += bright[cluster[rows], y[rows]]
        x[rows] = np.clip(np.rint(values), 0, 255)
    return x
