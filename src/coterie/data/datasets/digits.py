"""The 1,797 handwritten digits of scikit-learn: real images without a download."""

from __future__ import annotations

from typing import Literal

import numpy as np

from coterie.data import partition as parts
from coterie.data.checks import at_most
from coterie.data.federated import FederatedData
from coterie.errors import SpecError, unknown

_PARTITIONS = ("rotated", "inverted", "permuted_labels", "iid", "classes", "dirichlet", "groups")


def digits(
    *,
    clients: int = 40,
    partition: Literal["rotated", "inverted", "permuted_labels", "iid", "classes", "dirichlet", "groups"] = "rotated",
    clusters: int = 4,
    per_client: int = 2,
    alpha: float = 0.25,
    skew: float = 0.2,
    size_spread: float = 0.0,
    test_share: float = 0.2,
    seed: int = 0,
) -> FederatedData:
    """Images of 8×8 gray levels 0..16, as bytes, with labels 0..9.

    Args:
        clients: Number of clients.
        partition: "rotated": equal parts, client i rotated by 90°·(i mod `clusters`). "inverted": equal parts, every
            other client inverted. "permuted_labels": equal parts, label y of client i becomes y + (i mod `clusters`)
            mod 10. "iid": equal parts. "classes": `per_client` classes per client, sizes by a power law. "dirichlet": a
            label distribution for each client. "groups": label skew in groups.
        clusters: Number of clusters for "rotated", 1..4, for "permuted_labels", 1..10, and for "inverted", 2.
        per_client: Number of classes per client, for "classes".
        alpha: Concentration, for "dirichlet" and "groups".
        skew: Fraction of all labels that a client owns, for "groups".
        size_spread: For "iid", 0: equal parts; otherwise sizes by LogNormal(0, `size_spread`), at least 5.
        test_share: Fraction of each client's images used for testing.
        seed: Random seed.
    """
    if partition not in _PARTITIONS:
        raise SpecError(unknown("partition", partition, _PARTITIONS))
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x, y = bunch.images.astype(np.uint8), bunch.target.astype(np.int32)
    transforms: tuple[str, ...] = ("identity",)
    truth = None
    if partition in ("rotated", "inverted"):
        transforms = parts.rotations(clusters) if partition == "rotated" else parts.inversions(clusters, levels=17)
        fit = parts.clustered(len(y), clients, clusters, seed=seed)
        truth = np.arange(clients) % clusters
    elif partition == "permuted_labels":
        at_most("clusters", clusters, 10, "the number of classes, for permuted_labels")
        fit = parts.clustered(len(y), clients, clusters, seed=seed)
        truth = np.arange(clients) % clusters
        y[fit.order] = (y[fit.order] + truth[fit.owners()]) % 10
    elif partition == "iid":
        fit = parts.iid(len(y), clients, size_spread=size_spread, seed=seed)
    elif partition == "classes":
        fit = parts.by_classes(y, clients, per_client=per_client, seed=seed)
    elif partition == "dirichlet":
        fit = parts.dirichlet(y, clients, alpha=alpha, seed=seed)
    else:
        groups = parts.label_groups(y, clients, skew=skew, alpha=alpha, seed=seed)
        fit, truth = groups.fit, groups.group
    return parts.assemble(
        "digits",
        (x, y),
        fit,
        test_share=test_share,
        seed=seed,
        classes=10,
        transforms=transforms,
        transform=truth.astype(np.uint8) if truth is not None and len(transforms) > 1 else None,
        truth=truth,
        source="Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak, UCI), as shipped with scikit-learn",
    )
