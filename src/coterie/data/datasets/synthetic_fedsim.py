"""Synthetic(0, 0) as drawn by the authors of FedSim: 30 clients with the published split.

Palihawadana et al., "FedSim: Similarity Guided Model Aggregation for Federated Learning", Neurocomputing 2022. The
generator of `synthetic-0-0` sets no seed in their program, so its figures can be compared example by example only on
their own draw, 4,491 training and 516 test examples.
"""

from __future__ import annotations

import numpy as np

from coterie.data.catalog import CATALOG
from coterie.data.checks import at_least, at_most
from coterie.data.federated import FederatedData, Index
from coterie.data.files import obtain
from coterie.data.formats.npz import read_clients
from coterie.data.partition import assemble, numbered
from coterie.seeds import Seed

_CLASSES = 10


def synthetic_0_0_fedsim(*, clients: int = 0, seed: int = 0) -> FederatedData:
    """The examples of the authors' draw, not normalized.

    Args:
        clients: Number of clients, drawn at random; 0 for all.
        seed: Random seed of that draw and of the validation split.
    """
    at_least("clients", clients, 0)
    origin = obtain(CATALOG["synthetic-0-0-fedsim"].files[0])
    (x, y, fit), (x_test, y_test, tested) = read_clients(origin.paths[0])
    names = numbered(len(fit))
    if clients:
        at_most("clients", clients, len(names), "the number of clients in the file")
        drawn = sorted(Seed(seed).fold("clients").sample(len(names), clients))
        fit, tested = (Index.from_lists([index.of(i) for i in drawn]) for index in (fit, tested))
        names = tuple(names[i] for i in drawn)
    return assemble(
        "synthetic-0-0-fedsim",
        (x, y),
        fit,
        test=(x_test, y_test),
        tested=tested,
        seed=seed,
        classes=max(_CLASSES, int(np.concatenate([y, y_test]).max()) + 1),
        clients=names,
        normalize=(0.0, 1.0),
        source=origin.describe(),
    )
