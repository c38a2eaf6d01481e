"""MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100 and SVHN, dealt out as you like.

Training images are dealt out by one of the partitions. Each test image goes to one client, each class in the
proportions in which the clients have it for training, so that a client is tested on what it trains on. CIFAR-100 has
two labels for each image, one of 100 fine and one of 20 coarse classes; the fine ones are used if nothing else is said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from coterie.data import partition as parts
from coterie.data.federated import FederatedData
from coterie.data.pools import Pool, pool
from coterie.errors import SpecError, unknown

Partition = Literal["iid", "classes", "dirichlet", "groups", "rotated", "inverted"]

_PARTITIONS = ("iid", "classes", "dirichlet", "groups", "rotated", "inverted")
_LABELS = ("fine", "coarse")


def _plain(name: str) -> Callable[..., FederatedData]:
    def load(
        *,
        clients: int = 100,
        partition: Partition = "iid",
        clusters: int = 0,
        per_client: int = 2,
        alpha: float = 0.25,
        skew: float = 0.2,
        seed: int = 0,
    ) -> FederatedData:
        """All images, with a partition of your choice.

        Args:
            clients: Number of clients.
            partition: "iid": equal pieces. "classes": `per_client` classes and a power law of sizes. "dirichlet": a
                label distribution for each client. "groups": label skew in groups. "rotated": equal pieces, client i
                turned by 90°·(i mod `clusters`). "inverted": the same with every other client inverted.
            clusters: For rotated, 1..4; 0 for four. For inverted there are two.
            per_client: For classes: how many.
            alpha: For dirichlet and groups: concentration.
            skew: For groups: share of all labels that a client owns.
            seed: Fixes every draw.
        """
        _check(partition)
        return _dealt(name, pool(name), clients, partition, clusters, per_client, alpha, skew, seed)

    return load


def _check(partition: str) -> None:
    if partition not in _PARTITIONS:
        raise SpecError(unknown("partition", partition, _PARTITIONS))


def _dealt(
    name: str,
    held: Pool,
    clients: int,
    partition: str,
    clusters: int,
    per_client: int,
    alpha: float,
    skew: float,
    seed: int,
) -> FederatedData:
    labels = held.labels
    transforms: tuple[str, ...] = ("identity",)
    truth = None
    if partition == "iid":
        fit = parts.iid(len(labels), clients, seed=seed)
    elif partition == "classes":
        fit = parts.by_classes(labels, clients, per_client=per_client, seed=seed)
    elif partition == "dirichlet":
        fit = parts.dirichlet(labels, clients, alpha=alpha, seed=seed)
    elif partition == "groups":
        dealt = parts.label_groups(labels, clients, skew=skew, alpha=alpha, seed=seed)
        fit, truth = dealt.fit, dealt.group
    else:
        transforms = parts.rotations(clusters or 4) if partition == "rotated" else parts.inversions(clusters or 2)
        fit = parts.clustered(len(labels), clients, len(transforms), seed=seed)
        truth = np.arange(clients) % len(transforms)
    return held.dealt(
        name,
        fit,
        parts.matched(fit, labels, held.test_labels, seed=seed),
        seed=seed,
        transforms=transforms,
        transform=truth.astype(np.uint8) if truth is not None and len(transforms) > 1 else None,
        truth=truth,
    )


mnist = _plain("mnist")
fmnist = _plain("fmnist")
cifar10 = _plain("cifar10")
svhn = _plain("svhn")


def cifar100(
    *,
    labels: Literal["fine", "coarse"] = "fine",
    clients: int = 100,
    partition: Partition = "iid",
    clusters: int = 0,
    per_client: int = 20,
    alpha: float = 0.25,
    skew: float = 0.2,
    seed: int = 0,
) -> FederatedData:
    """All images, with a partition of your choice.

    Args:
        labels: "fine": 100 classes. "coarse": the 20 classes of five fine ones each.
        clients: Number of clients.
        partition: "iid": equal pieces. "classes": `per_client` classes and a power law of sizes. "dirichlet": a
            label distribution for each client. "groups": label skew in groups. "rotated": equal pieces, client i
            turned by 90°·(i mod `clusters`). "inverted": the same with every other client inverted.
        clusters: For rotated, 1..4; 0 for four. For inverted there are two.
        per_client: For classes: how many.
        alpha: For dirichlet and groups: concentration.
        skew: For groups: share of all labels that a client owns.
        seed: Fixes every draw.
    """
    _check(partition)
    if labels not in _LABELS:
        raise SpecError(unknown("labels", labels, _LABELS))
    held = pool("cifar100")
    held = held if labels == "fine" else held.labeled("coarse", 20)
    return _dealt("cifar100", held, clients, partition, clusters, per_client, alpha, skew, seed)
