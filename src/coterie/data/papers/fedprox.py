"""MNIST with a few digits for each client and sizes by a power law: FedProx's generator.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, arXiv:1812.06127; used by FedGroup, FlexCFL
and FedSim. All 70,000 images are one pool, each pixel is standardized over it, (x - mean)/(deviation + 0.001), and
client u owns the digits (u + j) mod 10 for j = 0..c-1: c = 2 in FedProx, c = 1, 3, 5 and 10 in Table I of FedGroup.
Each client's images are split 90/10.

The published generator's own draw is not known, only that its sizes have mean 69 and deviation 106. Draws of this law
seldom have so small a deviation: half of them lie above 164, two in a thousand within a tenth of 106, and the few huge
clients of the others pull a model to and fro from round to round. `mnist-powerlaw` therefore draws sizes until their
deviation is the published one to a tenth; `published_spread = false` takes the first draw.
"""

from __future__ import annotations

from coterie.data import partition
from coterie.data.federated import FederatedData
from coterie.data.pools import pool

#: Deviation of the published sizes over their mean.
SPREAD = 106 / 69


def mnist_powerlaw(
    *, clients: int = 1000, test_share: float = 0.1, published_spread: bool = True, seed: int = 0
) -> FederatedData:
    """Two digits for each of 1,000 clients.

    Args:
        clients: Number of clients.
        test_share: Share of each client's images for testing; 0.2 in FedSim's text.
        published_spread: Draw sizes until they spread as the published ones do; false takes the first draw.
        seed: Fixes every draw.
    """
    return _by_classes("mnist-powerlaw", clients, 2, test_share, seed, SPREAD if published_spread else None)


def mnist_classes(*, per_client: int = 3, clients: int = 1000, test_share: float = 0.1, seed: int = 0) -> FederatedData:
    """One to ten digits for each of 1,000 clients.

    Args:
        per_client: Digits for each client; with 10 the labels are alike everywhere and only the sizes differ.
        clients: Number of clients.
        test_share: Share of each client's images for testing.
        seed: Fixes every draw.
    """
    return _by_classes("mnist-classes", clients, per_client, test_share, seed)


def _by_classes(
    name: str, clients: int, per_client: int, test_share: float, seed: int, spread: float | None = None
) -> FederatedData:
    mnist = pool("mnist")
    fit = partition.by_classes(mnist.y, clients, per_client=per_client, spread=spread, seed=seed)
    return mnist.dealt(name, fit, test_share=test_share, seed=seed, normalize=mnist.per_pixel(len(mnist.y)))
