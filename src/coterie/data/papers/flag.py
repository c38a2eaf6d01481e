"""Label skew in groups of clients, and a label distribution for each client: FLAG's two partitions.

"FLAG: Clustered Federated Learning Combining Data and Gradient Information in Heterogeneous Settings", submitted to
ICLR 2025, openreview.net/forum?id=8OrXrdPbef: 100 clients on CIFAR-10, Fashion-MNIST, SVHN and CIFAR-100 with its 100
fine labels (MNIST is ours). The paper leaves open how many groups there are and how clients are tested. Here a share ρ
of the labels for each client makes ceil(1/ρ) groups, which are the true clusters, and a client is tested on all test
images of its labels, as in PACFL ("local_view"), or on a part of them in the proportions of training ("matched").
Where the file holds a subset, the number of clients stays and each has fewer images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from coterie.data import partition
from coterie.data.federated import FederatedData, Index
from coterie.data.pools import Pool, pool
from coterie.errors import SpecError, unknown
from coterie.types import Array

_PROTOCOLS = ("local_view", "matched")


def tests(protocol: str, held: Pool, fit: Index, owned: Array | None, seed: int) -> Index:
    """Test images for each client.

    Args:
        protocol: "local_view" or "matched".
        held: The images.
        fit: Training images of each client.
        owned: (clients, classes) which labels a client has; None: those of its training images.
        seed: Fixes the draw.
    """
    if protocol not in _PROTOCOLS:
        raise SpecError(unknown("test_protocol", protocol, _PROTOCOLS))
    if protocol == "matched":
        return partition.matched(fit, held.labels, held.test_labels, seed=seed)
    if owned is None:
        owned = np.zeros((len(fit), held.classes), np.bool_)
        owned[fit.owners(), held.labels[fit.order]] = True
    return partition.local_view(owned, held.test_labels)


def _skew(name: str, images: str, share: float) -> Callable[..., FederatedData]:
    def load(
        *,
        clients: int = 100,
        alpha: float = 1.0,
        test_protocol: Literal["local_view", "matched"] = "local_view",
        groups: int = 0,
        sets: Literal["covering", "random"] = "covering",
        seed: int = 0,
    ) -> FederatedData:
        """Groups of clients that own a share of the labels, with a shift of quantities.

        Args:
            clients: Number of clients.
            alpha: Concentration of the quantities: 1 for a low, 0.25 for a high shift.
            test_protocol: "local_view": all test images of the labels that a client's group owns; clients share
                them. "matched": each test image for one client, in the proportions of training.
            groups: Number of groups; 0 for as few as own all labels.
            sets: "covering": all labels occur; "random": each group's labels are drawn by themselves.
            seed: Fixes every draw.
        """
        held = pool(images)
        dealt = partition.label_groups(
            held.labels, clients, skew=share, alpha=alpha, groups=groups or None, sets=sets, seed=seed
        )
        tested = tests(test_protocol, held, dealt.fit, dealt.owned, seed)
        return held.dealt(name, dealt.fit, tested, seed=seed, truth=dealt.group)

    return load


def _dirichlet(name: str, images: str) -> Callable[..., FederatedData]:
    def load(
        *,
        clients: int = 100,
        alpha: float = 0.25,
        reading: Literal["per_class", "total"] = "per_class",
        test_protocol: Literal["local_view", "matched"] = "local_view",
        seed: int = 0,
    ) -> FederatedData:
        """A label distribution for each client, and equally many training images for all.

        Args:
            clients: Number of clients.
            alpha: Concentration of the label distributions.
            reading: "per_class": alpha for each class, where classes are balanced; "total": alpha for all classes
                together, which leaves nearly one class for each client.
            test_protocol: "local_view": all test images of the labels that a client has for training; clients
                share them. "matched": each test image for one client, in the proportions of training.
            seed: Fixes every draw.
        """
        held = pool(images)
        fit = partition.dirichlet(held.labels, clients, alpha=alpha, reading=reading, seed=seed)
        return held.dealt(name, fit, tests(test_protocol, held, fit, None, seed), seed=seed)

    return load


mnist_skew20 = _skew("mnist-skew20", "mnist", 0.2)
mnist_skew30 = _skew("mnist-skew30", "mnist", 0.3)
mnist_dirichlet = _dirichlet("mnist-dirichlet", "mnist")
fmnist_skew20 = _skew("fmnist-skew20", "fmnist", 0.2)
fmnist_skew30 = _skew("fmnist-skew30", "fmnist", 0.3)
fmnist_dirichlet = _dirichlet("fmnist-dirichlet", "fmnist")
cifar10_skew20 = _skew("cifar10-skew20", "cifar10", 0.2)
cifar10_skew30 = _skew("cifar10-skew30", "cifar10", 0.3)
cifar10_dirichlet = _dirichlet("cifar10-dirichlet", "cifar10")
svhn_skew20 = _skew("svhn-skew20", "svhn", 0.2)
svhn_skew30 = _skew("svhn-skew30", "svhn", 0.3)
svhn_dirichlet = _dirichlet("svhn-dirichlet", "svhn")
cifar100_skew20 = _skew("cifar100-skew20", "cifar100", 0.2)
cifar100_skew30 = _skew("cifar100-skew30", "cifar100", 0.3)
cifar100_dirichlet = _dirichlet("cifar100-dirichlet", "cifar100")
