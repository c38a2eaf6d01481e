"""Federated data from arrays and index lists, and the split of a client's examples into training and test examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data.checks import check_ids, check_share, classes_of
from coterie.data.federated import FederatedData, Index, Integers, aligned
from coterie.errors import DataError
from coterie.seeds import Seed
from coterie.types import Array, ClientId


def train_count(n: int, test_share: float) -> int:
    """Number of training examples among n examples.

    At least one. With two or more examples, at least one is for testing, unless the share is 0.
    """
    # Slightly more than the product, because (1 - 0.1)·n can be just below an integer in floating point.
    wanted = min(n, max(1, math.floor((1 - test_share) * n + 1e-9)))
    return wanted if test_share == 0 or n < 2 else min(wanted, n - 1)


def split(rows: Integers, test_share: float, seed: Seed) -> tuple[Integers, Integers]:
    """Shuffle the examples of a client and split them into training and test examples."""
    shuffled = rows[seed.permutation(len(rows))]
    fit = train_count(len(rows), test_share)
    return shuffled[:fit], shuffled[fit:]


def numbered(clients: int) -> tuple[ClientId, ...]:
    """Ids 0..clients-1 with leading zeros, so that sorting them as text sorts them as numbers."""
    width = len(str(max(0, clients - 1)))
    return tuple(ClientId(f"{i:0{width}d}") for i in range(clients))


def assemble(
    name: str,
    train: tuple[Array, Array],
    fit: Index,
    *,
    test: tuple[Array, Array] | None = None,
    tested: Index | None = None,
    test_share: float = 0.1,
    seed: int = 0,
    classes: int | None = None,
    targets: bool = False,
    clients: Sequence[str] | None = None,
    transforms: tuple[str, ...] = ("identity",),
    transform: npt.NDArray[np.uint8] | None = None,
    truth: npt.NDArray[np.int64] | None = None,
    normalize: tuple[Any, Any] | None = None,
    tokens: int | None = None,
    table: Array | None = None,
    source: str = "",
) -> FederatedData:
    """Create federated data from one or two pools of examples.

    Args:
        name: Name of the data.
        train: x and y of the training pool; without `test` it is used without a copy if it is aligned.
        fit: Rows of the training pool, for each client.
        test: x and y of the test pool.
        tested: Rows of the test pool, for each client; without `test`, rows of the training pool.
        test_share: Without `tested`, the fraction of each client's examples used for testing, after a shuffle.
        seed: Random seed of that shuffle and of the validation split.
        classes: Number of classes; None: one more than the largest label.
        targets: Whether y holds regression targets instead of labels.
        clients: Client ids; None: numbers.
        transforms: Names of the transforms in use.
        transform: (clients,) index into `transforms` for each client.
        truth: (clients,) the true cluster of each client.
        normalize: Published mean and standard deviation of the inputs.
        tokens: Number of tokens if x holds token ids; None otherwise.
        table: Vectors of the tokens.
        source: Where the data come from, in a sentence.
    """
    ids = numbered(len(fit)) if clients is None else tuple(ClientId(str(client)) for client in clients)
    if len(ids) != len(fit):
        raise DataError(f"There are {len(ids)} client ids for {len(fit)} index lists; give one for each")
    check_ids(ids)
    x, y = np.asarray(train[0]), np.asarray(train[1])
    if test is not None:
        if tested is None:
            raise DataError("A test pool needs index lists: give tested as well, or leave test out")
        tested = Index(tested.order + len(y), tested.offsets)
        x, y = _joined(x, np.asarray(test[0])), np.concatenate([y, np.asarray(test[1])])
    if tested is None:
        check_share(test_share)
        pairs = [split(fit.of(i), test_share, Seed(seed).fold("split", client)) for i, client in enumerate(ids)]
        fit, tested = (Index.from_lists([pair[side] for pair in pairs]) for side in (0, 1))
    if classes is None and not targets:
        classes = classes_of(y)
    return FederatedData(
        name=name,
        x=x,
        y=y,
        clients=ids,
        fit=fit,
        test=tested,
        classes=classes,
        transforms=transforms,
        transform=transform,
        truth=truth,
        normalize=normalize,
        tokens=tokens,
        table=table,
        source=source,
        held_seed=Seed(seed),
    )


def _joined(x: Array, x_test: Array) -> Array:
    if x.shape[1:] != x_test.shape[1:]:
        raise DataError(f"Training and test examples must have one shape, got {x.shape[1:]} and {x_test.shape[1:]}")
    joined = aligned(np.empty((len(x) + len(x_test), *x.shape[1:]), np.result_type(x, x_test)))
    return np.concatenate([x, x_test], out=joined)
