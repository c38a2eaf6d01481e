"""Synthetic(α, β) of FedProx: each client has its own linear classifier and feature means.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, arXiv:1812.06127. N(a, s) is the
normal distribution with standard deviation s. For client k:

    n_k = int(LogNormal(4, 2)) + 50
    u_k ~ N(0, α);  W_k ~ N(u_k, 1) of shape (60, 10);  b_k ~ N(u_k, 1) of shape (10,)
    B_k ~ N(0, β);  v_k ~ N(B_k, 1) of shape (60,)
    x ~ N(v_k, Σ), Σ = diag(j^-1.2), j = 1..60;  y = argmax(Wᵀx + b)

α has no effect on the examples: u_k adds the same number to the ten scores of an example, and the largest stays the
largest (docs/errata.md). In the IID variant v = 0, and all clients have the same W ~ N(0, 1) and b ~ N(0, 1).
Synthetic(0, 0) is not IID: W_k and v_k differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data.cache import IN_MEMORY, generated
from coterie.data.checks import at_least, check_share
from coterie.data.federated import FederatedData, Index
from coterie.data.partition import assemble
from coterie.data.partition.assembling import train_count
from coterie.errors import SpecError
from coterie.seeds import Seed
from coterie.types import Array

_FEATURES = 60
_CLASSES = 10
_SPREAD = np.arange(1, _FEATURES + 1) ** -0.6  # standard deviations: the square roots of j^-1.2

#: With more clients than this, each has 20 examples by default, because the paper's sizes would fill the disk.
MANY_CLIENTS = 10_000
FEW_SAMPLES = 20


@dataclass(frozen=True, eq=False)
class ClientModel:
    """The distribution of a client's examples."""

    mean: npt.NDArray[np.float64]  # v: (60,)
    weights: npt.NDArray[np.float64]  # W: (60, 10)
    bias: npt.NDArray[np.float64]  # b: (10,)

    def labels(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """The class of each example."""
        classes: npt.NDArray[np.int64] = np.argmax(x.astype(np.float64) @ self.weights + self.bias, axis=1)
        return classes


def client_model(client: int, alpha: float, beta: float, *, iid: bool = False, seed: int = 0) -> ClientModel:
    """The distribution of the examples of client number `client`."""
    draw = (Seed(seed).fold("iid") if iid else Seed(seed).fold("client", client)).generator()
    center, shift = (0.0, 0.0) if iid else (draw.normal(0.0, alpha), draw.normal(0.0, beta))
    weights = draw.normal(center, 1.0, (_FEATURES, _CLASSES))
    bias = draw.normal(center, 1.0, _CLASSES)
    mean = np.zeros(_FEATURES) if iid else draw.normal(shift, 1.0, _FEATURES)
    return ClientModel(mean, weights, bias)


def synthetic(
    alpha: float = 1.0,
    beta: float = 1.0,
    *,
    clients: int = 30,
    samples: int = 0,
    sizes: tuple[int, ...] = (),
    iid: bool = False,
    test_share: float = 0.1,
    seed: int = 0,
) -> FederatedData:
    """Examples with 60 features in 10 classes, for a few clients or a million.

    Args:
        alpha: Heterogeneity of the clients' classifiers.
        beta: Heterogeneity of the clients' features.
        clients: Number of clients; 30 in FedProx and FedSim, 100 in FedGroup and FlexCFL. More than a gigabyte of
            examples is written to the user's cache once and memory-mapped.
        samples: Number of examples per client. 0: n_k as above for up to 10,000 clients, 20 for more.
        sizes: Number of examples of each client, instead of `samples`.
        iid: The same classifier and feature means for all clients; alpha and beta are not used.
        test_share: Fraction of each client's examples used for testing.
        seed: Random seed.
    """
    return _drawn("synthetic", _Law(alpha, beta, iid, seed), clients, test_share, samples, sizes)


@dataclass(frozen=True)
class _Law:
    alpha: float
    beta: float
    iid: bool
    seed: int

    def __post_init__(self) -> None:
        at_least("alpha", self.alpha, 0)
        at_least("beta", self.beta, 0)

    def examples(self, client: int, size: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Examples of client number `client`, independent of the number of clients."""
        model = client_model(client, self.alpha, self.beta, iid=self.iid, seed=self.seed)
        draw = Seed(self.seed).fold("examples", client).generator()
        x = (model.mean + _SPREAD * draw.standard_normal((size, _FEATURES))).astype(np.float32)
        return x, model.labels(x)


def _drawn(
    name: str, law: _Law, clients: int, test_share: float, samples: int = 0, given: tuple[int, ...] = ()
) -> FederatedData:
    at_least("clients", clients, 1)
    at_least("samples", samples, 0)
    check_share(test_share)
    samples = samples or (FEW_SAMPLES if clients > MANY_CLIENTS and not given else 0)
    sizes = _sizes(law, clients, samples, given)
    fit = Index.from_sizes(np.arange(sizes.sum()), sizes)
    variant = "IID" if law.iid else f"{law.alpha:g}, {law.beta:g}"
    source = f"Synthetic({variant}) of FedProx (arXiv:1812.06127), generated from a seed"
    source += f"; {samples} examples per client, 450 on average in the paper" if samples else ""
    x, y = _examples(name, law, sizes)
    common: dict[str, Any] = {"classes": _CLASSES, "source": source, "seed": law.seed}
    if not samples:
        return assemble(name, (x, y), fit, test_share=test_share, **common)
    # Examples are drawn independently, so the last ones of each client can be used for testing without a shuffle.
    order = np.arange(len(y)).reshape(clients, samples)
    parts = [
        Index.from_sizes(part.ravel(), np.full(clients, part.shape[1]))
        for part in np.split(order, [train_count(samples, test_share)], 1)
    ]
    return assemble(name, (x, y), parts[0], tested=parts[1], **common)


def _sizes(law: _Law, clients: int, samples: int, given: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """The number of examples of each client: as given, the same for all, or drawn."""
    if not given:
        if samples:
            return np.full(clients, samples, np.int64)
        drawn = Seed(law.seed).fold("sizes").generator().lognormal(4.0, 2.0, clients)
        return drawn.astype(np.int64) + 50
    if samples:
        raise SpecError(f"data.sizes takes the place of data.samples, which is {samples}; set one of them")
    if len(given) != clients:
        raise SpecError(f"data.sizes has {len(given)} numbers, but data.clients is {clients}; one per client is needed")
    at_least("data.sizes", min(given), 1)
    return np.array(given, np.int64)


def _examples(name: str, law: _Law, sizes: npt.NDArray[np.int64]) -> tuple[Array, Array]:
    """The examples of all clients: in memory, or memory-mapped if they are large."""
    total = int(sizes.sum())
    if 4 * total * _FEATURES > IN_MEMORY:
        key = f"{law} {len(sizes)} {sizes[0]} {hashlib.sha256(sizes.tobytes()).hexdigest()}"
        return generated(name, key, total, _FEATURES, _pieces(law, sizes))
    x, y = np.empty((total, _FEATURES), np.float32), np.empty(total, np.int32)
    done = 0
    for piece, labels in _pieces(law, sizes):
        x[done : done + len(labels)], y[done : done + len(labels)] = piece, labels
        done += len(labels)
    return x, y


def _pieces(law: _Law, sizes: npt.NDArray[np.int64]) -> Iterator[tuple[Array, Array]]:
    """The examples of a thousand clients at a time."""
    for first in range(0, len(sizes), 1000):
        some = [law.examples(client, int(sizes[client])) for client in range(first, min(first + 1000, len(sizes)))]
        yield np.concatenate([x for x, _ in some]), np.concatenate([y for _, y in some]).astype(np.int32)


def _preset(name: str, alpha: float, beta: float, *, iid: bool = False) -> Callable[..., FederatedData]:
    def load(*, clients: int = 30, test_share: float = 0.1, seed: int = 0) -> FederatedData:
        """Synthetic(α, β) with the α and β of its name.

        Args:
            clients: Number of clients; 30 in FedProx and FedSim, 100 in FedGroup and FlexCFL.
            test_share: Fraction of each client's examples used for testing.
            seed: Random seed.
        """
        return _drawn(name, _Law(alpha, beta, iid, seed), clients, test_share)

    return load


def synthetic_1_1(*, clients: int = 100, test_share: float = 0.1, seed: int = 0) -> FederatedData:
    """Synthetic(1, 1) as in FedGroup and FlexCFL.

    Args:
        clients: Number of clients; 100 in FedGroup and FlexCFL, 30 in FedProx and FedSim.
        test_share: Fraction of each client's examples used for testing.
        seed: Random seed.
    """
    return _drawn("synthetic-1-1", _Law(1.0, 1.0, False, seed), clients, test_share)


synthetic_0_0 = _preset("synthetic-0-0", 0.0, 0.0)
synthetic_025_025 = _preset("synthetic-0.25-0.25", 0.25, 0.25)
synthetic_05_05 = _preset("synthetic-0.5-0.5", 0.5, 0.5)
synthetic_075_075 = _preset("synthetic-0.75-0.75", 0.75, 0.75)
synthetic_iid = _preset("synthetic-iid", 0.0, 0.0, iid=True)
