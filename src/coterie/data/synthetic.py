"""Synthetic(α, β) of FedProx: each client its own linear classifier and its own feature means.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, arXiv:1812.06127. With N(a, s) of standard
deviation s, for client k:

    n_k = int(LogNormal(4, 2)) + 50
    u_k ~ N(0, α);  W_k ~ N(u_k, 1) of shape (60, 10);  b_k ~ N(u_k, 1) of shape (10,)
    B_k ~ N(0, β);  v_k ~ N(B_k, 1) of shape (60,)
    x ~ N(v_k, Σ), Σ = diag(j^-1.2), j = 1..60;  y = argmax(Wᵀx + b)

In the IID variant v = 0, and one W ~ N(0, 1) and b ~ N(0, 1) serve all. Synthetic(0, 0) is not IID: W_k and v_k differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coterie.data.federated import FederatedData, Index
from coterie.data.partition import assemble
from coterie.data.partition.counting import at_least
from coterie.seeds import Seed

_FEATURES = 60
_CLASSES = 10


@dataclass(frozen=True, eq=False)
class Planted:
    """What a client's examples are drawn from."""

    mean: npt.NDArray[np.float64]  # v: (60,)
    weights: npt.NDArray[np.float64]  # W: (60, 10)
    bias: npt.NDArray[np.float64]  # b: (10,)

    def labels(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """The class of each example."""
        classes: npt.NDArray[np.int64] = np.argmax(x.astype(np.float64) @ self.weights + self.bias, axis=1)
        return classes


def planted(client: int, alpha: float, beta: float, *, iid: bool = False, seed: int = 0) -> Planted:
    """What the examples of client number `client` are drawn from."""
    draw = (Seed(seed).fold("iid") if iid else Seed(seed).fold("client", client)).generator()
    centre, shift = (0.0, 0.0) if iid else (draw.normal(0.0, alpha), draw.normal(0.0, beta))
    weights = draw.normal(centre, 1.0, (_FEATURES, _CLASSES))
    bias = draw.normal(centre, 1.0, _CLASSES)
    mean = np.zeros(_FEATURES) if iid else draw.normal(shift, 1.0, _FEATURES)
    return Planted(mean, weights, bias)


def synthetic(
    alpha: float = 1.0,
    beta: float = 1.0,
    *,
    clients: int = 30,
    iid: bool = False,
    test_share: float = 0.1,
    seed: int = 0,
) -> FederatedData:
    """Examples of 60 features in 10 classes, 50 or many more for each client.

    Args:
        alpha: How much the clients' classifiers differ.
        beta: How much their features do.
        clients: 30 in FedProx and FedSim, 100 in FedGroup and FlexCFL.
        iid: One classifier and one feature mean for all; alpha and beta then say nothing.
        test_share: Share of each client's examples for testing.
        seed: Fixes every draw.
    """
    return _drawn("synthetic", alpha, beta, iid, clients, test_share, seed)


def _drawn(
    name: str, alpha: float, beta: float, iid: bool, clients: int, test_share: float, seed: int
) -> FederatedData:
    at_least("alpha", alpha, 0)
    at_least("beta", beta, 0)
    at_least("clients", clients, 1)
    stream = Seed(seed)
    sizes = stream.fold("sizes").generator().lognormal(4.0, 2.0, clients).astype(np.int64) + 50
    spread = np.arange(1, _FEATURES + 1) ** -0.6  # standard deviations: the square roots of j^-1.2
    fit = Index.from_sizes(np.arange(sizes.sum()), sizes)
    x = np.empty((len(fit.order), _FEATURES), np.float32)
    y = np.empty(len(fit.order), np.int32)
    for client in range(clients):
        plant = planted(client, alpha, beta, iid=iid, seed=seed)
        here = slice(fit.offsets[client], fit.offsets[client + 1])
        draw = stream.fold("examples", client).generator()
        x[here] = plant.mean + spread * draw.standard_normal((sizes[client], _FEATURES))
        y[here] = plant.labels(x[here])
    kind = "IID" if iid else f"{alpha:g}, {beta:g}"
    return assemble(
        name,
        (x, y),
        fit,
        test_share=test_share,
        seed=seed,
        classes=_CLASSES,
        source=f"Synthetic({kind}) of FedProx (arXiv:1812.06127), drawn by a seed",
    )


def _preset(name: str, alpha: float, beta: float, *, iid: bool = False) -> Callable[..., FederatedData]:
    def load(*, clients: int = 30, test_share: float = 0.1, seed: int = 0) -> FederatedData:
        """Synthetic(α, β) with the α and β of its name.

        Args:
            clients: 30 in FedProx and FedSim, 100 in FedGroup and FlexCFL.
            test_share: Share of each client's examples for testing.
            seed: Fixes every draw.
        """
        return _drawn(name, alpha, beta, iid, clients, test_share, seed)

    return load


def synthetic_1_1(*, clients: int = 100, test_share: float = 0.1, seed: int = 0) -> FederatedData:
    """Synthetic(1, 1) as FedGroup and FlexCFL have it.

    Args:
        clients: 100 in FedGroup and FlexCFL, 30 in FedProx and FedSim.
        test_share: Share of each client's examples for testing.
        seed: Fixes every draw.
    """
    return _drawn("synthetic-1-1", 1.0, 1.0, False, clients, test_share, seed)


synthetic_0_0 = _preset("synthetic-0-0", 0.0, 0.0)
synthetic_025_025 = _preset("synthetic-0.25-0.25", 0.25, 0.25)
synthetic_05_05 = _preset("synthetic-0.5-0.5", 0.5, 0.5)
synthetic_075_075 = _preset("synthetic-0.75-0.75", 0.75, 0.75)
synthetic_iid = _preset("synthetic-iid", 0.0, 0.0, iid=True)
