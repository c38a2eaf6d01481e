"""MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100 and SVHN, with a partition of your choice or a few classes per client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from coterie.data import partition as parts
from coterie.data.datasets.pool import Pool, pool
from coterie.data.federated import FederatedData, Index
from coterie.errors import SpecError, unknown

Partition = Literal["iid", "classes", "dirichlet", "groups", "rotated", "inverted"]

_PARTITIONS = ("iid", "classes", "dirichlet", "groups", "rotated", "inverted")
_LABELS = ("fine", "coarse")

#: Standard deviation of the published sizes of FedProx's MNIST clients, divided by their mean.
PUBLISHED_SPREAD = 106 / 69


def _partitioned(name: str) -> Callable[..., FederatedData]:
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

        Each test image belongs to one client. Each class of test images is split in the proportions of the clients'
        training images, so that a client is tested on the classes that it trains on.

        Args:
            clients: Number of clients.
            partition: "iid": equal parts. "classes": `per_client` classes per client, sizes by a power law.
                "dirichlet": a label distribution for each client. "groups": label skew in groups. "rotated": equal
                parts, client i rotated by 90°·(i mod `clusters`). "inverted": equal parts, every other client inverted.
            clusters: Number of rotations for "rotated", 1..4; 0 for four. "inverted" has two.
            per_client: Number of classes per client, for "classes".
            alpha: Concentration, for "dirichlet" and "groups".
            skew: Fraction of all labels that a client owns, for "groups".
            seed: Random seed.
        """
        _check(partition)
        return _apply(pool(name), clients, partition, clusters, per_client, alpha, skew, seed)

    return load


def _check(partition: str) -> None:
    if partition not in _PARTITIONS:
        raise SpecError(unknown("partition", partition, _PARTITIONS))


def _apply(
    images: Pool,
    clients: int,
    partition: str,
    clusters: int,
    per_client: int,
    alpha: float,
    skew: float,
    seed: int,
) -> FederatedData:
    labels = images.labels
    transforms: tuple[str, ...] = ("identity",)
    truth = None
    if partition == "iid":
        fit = parts.iid(len(labels), clients, seed=seed)
    elif partition == "classes":
        fit = parts.by_classes(labels, clients, per_client=per_client, seed=seed)
    elif partition == "dirichlet":
        fit = parts.dirichlet(labels, clients, alpha=alpha, seed=seed)
    elif partition == "groups":
        groups = parts.label_groups(labels, clients, skew=skew, alpha=alpha, seed=seed)
        fit, truth = groups.fit, groups.group
    else:
        transforms = parts.rotations(clusters or 4) if partition == "rotated" else parts.inversions(clusters or 2)
        fit = parts.clustered(len(labels), clients, len(transforms), seed=seed)
        truth = np.arange(clients) % len(transforms)
    return images.federated(
        fit,
        parts.matched(fit, labels, images.test_labels, seed=seed),
        seed=seed,
        transforms=transforms,
        transform=truth.astype(np.uint8) if truth is not None and len(transforms) > 1 else None,
        truth=truth,
    )


mnist = _partitioned("mnist")
fmnist = _partitioned("fmnist")
cifar10 = _partitioned("cifar10")
svhn = _partitioned("svhn")


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

    CIFAR-100 has two labels per image: one of 100 fine classes and one of 20 coarse classes. Each test image belongs to
    one client. Each class of test images is split in the proportions of the clients' training images, so that a client
    is tested on the classes that it trains on.

    Args:
        labels: "fine": 100 classes. "coarse": 20 classes of five fine classes each.
        clients: Number of clients.
        partition: "iid": equal parts. "classes": `per_client` classes per client, sizes by a power law. "dirichlet": a
            label distribution for each client. "groups": label skew in groups. "rotated": equal parts, client i
            rotated by 90°·(i mod `clusters`). "inverted": equal parts, every other client inverted.
        clusters: Number of rotations for "rotated", 1..4; 0 for four. "inverted" has two.
        per_client: Number of classes per client, for "classes".
        alpha: Concentration, for "dirichlet" and "groups".
        skew: Fraction of all labels that a client owns, for "groups".
        seed: Random seed.
    """
    _check(partition)
    if labels not in _LABELS:
        raise SpecError(unknown("labels", labels, _LABELS))
    images = pool("cifar100")
    images = images if labels == "fine" else images.labeled("coarse", 20)
    return _apply(images, clients, partition, clusters, per_client, alpha, skew, seed)


def mnist_powerlaw(
    *, clients: int = 1000, test_share: float = 0.1, published_spread: bool = True, seed: int = 0
) -> FederatedData:
    """FedProx's generator: two digits for each of 1,000 clients, sizes by a power law.

    Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, arXiv:1812.06127; used by FedGroup,
    FlexCFL and FedSim. All 70,000 images are one pool, each pixel is standardized over it, (x - mean)/(deviation +
    0.001), and client u owns the digits u and u + 1 mod 10. Each client's images are split 90/10.

    The sizes of the published draw are not available; only their mean, 69, and standard deviation, 106, are known. Half
    of the draws from this power law have a deviation above 164, and two in a thousand are within 10 % of 106. With a
    few very large clients, a model changes a lot from round to round. Sizes are therefore drawn again until their
    deviation is within 10 % of the published one; `published_spread = false` uses the first draw.

    Args:
        clients: Number of clients.
        test_share: Fraction of each client's images used for testing; 0.2 in FedSim's text.
        published_spread: Draw sizes again until their spread matches the published one; false uses the first draw.
        seed: Random seed.
    """
    images, spread = pool("mnist-powerlaw"), PUBLISHED_SPREAD if published_spread else None
    fit = parts.by_classes(images.y, clients, per_client=2, spread=spread, seed=seed)
    return _standardized(images, fit, test_share, seed)


def mnist_classes(*, per_client: int = 3, clients: int = 1000, test_share: float = 0.1, seed: int = 0) -> FederatedData:
    """One to ten digits for each of 1,000 clients, sizes by a power law.

    The generator of `mnist-powerlaw` with c digits per client: client u owns the digits (u + j) mod 10 for j = 0..c-1;
    c is 1, 3, 5 and 10 in Table I of FedGroup. The sets of that table are not published. They fit FedProx's script with
    only the number of digits changed (docs/errata.md): a client first takes five images of each of its digits, and
    sizes are scaled as if it had two digits. With one digit, 500 images of each digit are left; with five and ten the
    images run out, and with ten about half of the clients have 50 images each.

    Args:
        per_client: Number of digits per client. With 10, clients differ in size only.
        clients: Number of clients.
        test_share: Fraction of each client's images used for testing.
        seed: Random seed.
    """
    images = pool("mnist-classes")
    # The script takes 5 · 2 · clients / 10 images of each digit for the first images of clients with two digits.
    fit = parts.by_classes(images.y, clients, per_client=per_client, base=5, reserved=clients, seed=seed)
    return _standardized(images, fit, test_share, seed)


def _standardized(images: Pool, fit: Index, test_share: float, seed: int) -> FederatedData:
    """The images of each client split into training and test images, each pixel standardized over all images."""
    return images.federated(fit, test_share=test_share, seed=seed, normalize=images.per_pixel(len(images.y)))


def fmnist_500(*, clients: int = 500, per_client: int = 5, seed: int = 0) -> FederatedData:
    """Ditto's generator, as used by FlexCFL: five neighboring classes in unequal shares for each of 500 clients.

    Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, arXiv:2012.04221; Duan
    et al., "Flexible Clustered Federated Learning for Client-Level Data Distribution Shift", IEEE TPDS 2022,
    arXiv:2108.09749. Training images come from the training set, test images from the test set; each pixel is
    standardized with the training images, (x - mean)/(deviation + 0.001). The images of a class are used in turn, and
    again from the first when they are exhausted, so some belong to several clients: 72,505 images in the published draw
    (NumPy's seed 233, which gives other numbers here).

    Args:
        clients: Number of clients.
        per_client: Number of classes per client.
        seed: Random seed.
    """
    images = pool("fmnist-500")
    fit, tested = parts.by_shares(images.labels, images.test_labels, clients, per_client=per_client, seed=seed)
    return images.federated(fit, tested, seed=seed, normalize=images.per_pixel(images.train))
