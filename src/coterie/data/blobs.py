"""Images of Gaussian blobs with planted clusters: small, separable, of any size and number of clients.

Each class has a prototype, three bumps at random places; an example is its class's prototype plus noise. The clusters
differ in how they see the same prototypes, so that every partition, rotation and swap can be tried without a download.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from coterie.data.federated import FederatedData, Index, aligned
from coterie.data.partition import inversions, numbered, rotations
from coterie.data.partition.counting import a_client_each, at_least, at_most
from coterie.data.splitting import check_share, kept
from coterie.errors import SpecError, unknown
from coterie.seeds import Seed
from coterie.types import Array

_RELATIONS = ("rotated", "inverted", "permuted_labels", "shifted")
_BUMPS = 3
_BLOCK = 1 << 16  # examples drawn in one go, so that the noise of millions needs little memory


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
        samples: Examples of each client, for training and testing together.
        side: Height and width; 28 has the shape of MNIST.
        classes: Number of classes, which are equally likely everywhere.
        noise: Standard deviation of the noise, where a prototype's highest bump is 1.
        relation: How cluster j differs. "rotated": images turned by 90°·j. "inverted": images of cluster 1 inverted.
            "permuted_labels": the same images, but label y is called y + j mod `classes`. "shifted": images moved
            sideways by j·side/clusters pixels; what leaves on one side comes back on the other.
        test_share: Share of each client's examples for testing.
        seed: Fixes every draw.
    """
    at_least("clusters", clusters, 1)
    a_client_each(clients, clusters)
    at_least("samples", samples, 1)
    for name, number, least in (("side", side, 2), ("classes", classes, 1), ("noise", noise, 0)):
        at_least(name, number, least)
    check_share(test_share)
    truth = np.arange(clients) % clusters
    transforms = _transforms(relation, clusters, classes, side)
    stream = Seed(seed)
    looks = prototypes(classes, side, seed=seed)[None]  # (1 or clusters, classes, side, side)
    if relation == "shifted":
        looks = np.concatenate([np.roll(looks, j * side // clusters, axis=3) for j in range(clusters)])
    y = (stream.fold("labels").words(clients * samples) % np.uint64(classes)).astype(np.int32)
    x = _noisy(looks, np.repeat(truth % len(looks), samples), y, noise, stream.fold("noise"))
    if relation == "permuted_labels":
        y = ((y + np.repeat(truth, samples)) % classes).astype(np.int32)
    order = np.arange(clients * samples).reshape(clients, samples)  # examples are drawn alike: no shuffle needed
    fit = kept(samples, test_share)
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
        source="Gaussian blobs, drawn by a seed",
        held_seed=stream,
    )


def prototypes(classes: int, side: int, *, seed: int = 0) -> npt.NDArray[np.float64]:
    """(classes, side, side): what an example of each class looks like without noise, highest value 1."""
    draws = Seed(seed).fold("prototypes").uniform(classes * _BUMPS * 3).reshape(classes, _BUMPS, 3, 1, 1)
    rows, columns = np.mgrid[0:side, 0:side] / (side - 1)
    width = 0.1 + 0.1 * draws[:, :, 2]
    distance = (rows - draws[:, :, 0]) ** 2 + (columns - draws[:, :, 1]) ** 2
    looks = np.exp(-distance / (2 * width**2)).sum(axis=1)
    bright: npt.NDArray[np.float64] = looks / looks.max(axis=(1, 2), keepdims=True)
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


def _noisy(looks: Array, cluster: Array, y: Array, noise: float, seed: Seed) -> Array:
    """(examples, side, side) bytes: prototypes plus noise, cut off at black and white."""
    x = aligned(np.empty((len(y), *looks.shape[2:]), np.uint8))
    bright = (255 * looks).astype(np.float32)
    for block, start in enumerate(range(0, len(y), _BLOCK)):
        here = slice(start, start + _BLOCK)
        values = seed.fold(block).generator().standard_normal(x[here].shape, dtype=np.float32)
        values *= 255 * noise
        values += bright[cluster[here], y[here]]
        x[here] = np.clip(np.rint(values), 0, 255)
    return x
