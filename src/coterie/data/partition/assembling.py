"""Federated data from arrays and index lists; images are put one pool after the other once, and never again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data.checks import check_ids, classes_of
from coterie.data.federated import FederatedData, Index, aligned
from coterie.data.splitting import check_share, split
from coterie.errors import DataError
from coterie.seeds import Seed
from coterie.types import Array, ClientId


def numbered(clients: int) -> tuple[ClientId, ...]:
    """Ids 0..clients-1 with leading zeros, so that their order as text is their order as numbers."""
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
    """Federated data from one or two pools of examples.

    Args:
        name: What to call the data.
        train: x and y of the training pool; without `test` it is used in place if it is aligned.
        fit: Numbers into the training pool, for each client.
        test: x and y of the test pool.
        tested: Numbers into the test pool, for each client; without `test`, into the training pool itself, which then
            holds the examples for testing too.
        test_share: Without `tested`, the share of each client's examples that is set aside after a shuffle.
        seed: Fixes that shuffle, and which examples are held for validation.
        classes: Number of classes; None: one more than the largest label.
        targets: Whether y holds targets instead of labels.
        clients: The ids. None: numbers.
        transforms: Names of the transforms that occur.
        transform: (clients,) which of them each client's examples undergo.
        truth: (clients,) the true clusters.
        normalize: Mean and deviation of the inputs, where they are published.
        tokens: Of how many tokens x holds the ids; None: it holds quantities.
        table: The vectors that stand for the tokens.
        source: Where the data come from, in a sentence.
    """
    ids = numbered(len(fit)) if clients is None else tuple(ClientId(str(client)) for client in clients)
    if len(ids) != len(fit):
        raise DataError(f"There are {len(ids)} client ids for {len(fit)} index lists; give one for each")
    check_ids(ids)
    x, y = np.asarray(train[0]), np.asarray(train[1])
    if test is not None:
        if tested is None:
            raise DataError("A test pool needs index lists into it: give tested too, or leave test out")
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
