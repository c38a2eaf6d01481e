"""FLAG's two partitions of image data: label skew in groups of clients, or a label distribution for each client.

"FLAG: Clustered Federated Learning Combining Data and Gradient Information in Heterogeneous Settings", submitted to
ICLR 2025, openreview.net/forum?id=8OrXrdPbef: 100 clients on CIFAR-10, Fashion-MNIST, SVHN and CIFAR-100 with its 100
fine labels. Coterie adds MNIST. The paper gives neither the number of groups nor the test protocol. Here a fraction
ρ of the labels per client gives ceil(1/ρ) groups, which are the true clusters. A client is tested on all test images of
its labels, as in PACFL ("local_view"), or on part of them in the proportions of its training images ("matched"). If the
files are a subset, the number of clients stays the same and each has fewer images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from coterie.data import partition
from coterie.data.datasets.pool import Pool, pool
from coterie.data.federated import FederatedData, Index
from coterie.errors import SpecError, unknown
from coterie.types import Array

_PROTOCOLS = ("local_view", "matched")


def _test_images(protocol: str, images: Pool, fit: Index, owned: Array | None, seed: int) -> Index:
    """Test images of each client; `owned`: (clients, classes), or None for the labels of its training images."""
    if protocol not in _PROTOCOLS:
        raise SpecError(unknown("test_protocol", protocol, _PROTOCOLS))
    if protocol == "matched":
        return partition.matched(fit, images.labels, images.test_labels, seed=seed)
    if owned is None:
        owned = np.zeros((len(fit), images.classes), np.bool_)
        owned[fit.owners(), images.labels[fit.order]] = True
    return partition.local_view(owned, images.test_labels)


def _skew(name: str, skew: float) -> Callable[..., FederatedData]:
    def load(
        *,
        clients: int = 100,
        alpha: float = 1.0,
        test_protocol: Literal["local_view", "matched"] = "local_view",
        groups: int = 0,
        label_sets: Literal["covering", "random"] = "covering",
        seed: int = 0,
    ) -> FederatedData:
        """Groups of clients that own some of the labels, in unequal quantities.

        Args:
            clients: Number of clients.
            alpha: Concentration of the quantities: 1 for a low, 0.25 for a high shift.
            test_protocol: "local_view": all test images of the labels that a client's group owns; clients share
                them. "matched": each test image for one client, in the proportions of training.
            groups: Number of groups; 0 for the smallest number that covers all labels.
            label_sets: "covering": all labels occur; "random": the labels of each group are drawn independently.
            seed: Random seed.
        """
        images = pool(name)
        made = partition.label_groups(
            images.labels, clients, skew=skew, alpha=alpha, groups=groups or None, label_sets=label_sets, seed=seed
        )
        tested = _test_images(test_protocol, images, made.fit, made.owned, seed)
        return images.federated(made.fit, tested, seed=seed, truth=made.group)

    return load


def _dirichlet(name: str) -> Callable[..., FederatedData]:
    def load(
        *,
        clients: int = 100,
        alpha: float = 0.25,
        concentration: Literal["per_class", "total"] = "per_class",
        test_protocol: Literal["local_view", "matched"] = "local_view",
        seed: int = 0,
    ) -> FederatedData:
        """A label distribution for each client, and equal numbers of training images.

        Args:
            clients: Number of clients.
            alpha: Concentration of the label distributions.
            concentration: Meaning of alpha. "per_class": concentration of each class, if classes are balanced.
                "total": concentration of all classes together, which leaves nearly one class per client.
            test_protocol: "local_view": all test images of the labels that a client has for training; clients
                share them. "matched": each test image for one client, in the proportions of training.
            seed: Random seed.
        """
        images = pool(name)
        fit = partition.dirichlet(images.labels, clients, alpha=alpha, concentration=concentration, seed=seed)
        return images.federated(fit, _test_images(test_protocol, images, fit, None, seed), seed=seed)

    return load


mnist_skew20 = _skew("mnist-skew20", 0.2)
mnist_skew30 = _skew("mnist-skew30", 0.3)
mnist_dirichlet = _dirichlet("mnist-dirichlet")
fmnist_skew20 = _skew("fmnist-skew20", 0.2)
fmnist_skew30 = _skew("fmnist-skew30", 0.3)
fmnist_dirichlet = _dirichlet("fmnist-dirichlet")
cifar10_skew20 = _skew("cifar10-skew20", 0.2)
cifar10_skew30 = _skew("cifar10-skew30", 0.3)
cifar10_dirichlet = _dirichlet("cifar10-dirichlet")
svhn_skew20 = _skew("svhn-skew20", 0.2)
svhn_skew30 = _skew("svhn-skew30", 0.3)
svhn_dirichlet = _dirichlet("svhn-dirichlet")
cifar100_skew20 = _skew("cifar100-skew20", 0.2)
cifar100_skew30 = _skew("cifar100-skew30", 0.3)
cifar100_dirichlet = _dirichlet("cifar100-dirichlet")
