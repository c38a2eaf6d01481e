"""Federated data from arrays in memory, given per client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coterie.data.checks import check_ids, check_share, classes_of, first_bad_label, first_bad_row, label_text
from coterie.data.federated import FederatedData, Index, Integers, aligned
from coterie.data.partition.assembling import split
from coterie.errors import DataError
from coterie.seeds import Seed
from coterie.types import Array, ClientId


@dataclass(frozen=True)
class _Piece:
    """Training or test examples of one client, as given."""

    client: str
    what: str  # for error messages: "" or "test "
    x: Array
    y: Array


def from_arrays(
    clients: Mapping[str, Sequence[npt.ArrayLike]],
    test: Mapping[str, Sequence[npt.ArrayLike]] | None = None,
    *,
    name: str = "arrays",
    test_share: float = 0.1,
    seed: int = 0,
    classes: int | None = None,
    truth: Mapping[str, int] | Sequence[int] | None = None,
    source: str = "arrays in memory",
) -> FederatedData:
    """Create federated data from the arrays of each client.

    A client may have no training examples, a single one, a single class, or no test examples. float64 is stored as
    float32, 64-bit integers as described in `FederatedData`.

    Args:
        clients: id → (x, y), split into training and test examples; or id → (x, y, x_test, y_test), used as given.
        test: id → (x, y), test examples. If given, no examples are split; clients missing here have no test examples.
        name: Name of the data.
        test_share: Fraction of a client's examples used for testing, after a shuffle, if no test examples are given.
        seed: Random seed of the shuffle and of the validation split.
        classes: Number of classes. None: one more than the largest label, or regression if `y` has floats.
        truth: The true cluster of each client, by id or in the order of `clients`.
        source: Where the data come from, in a sentence.
    """
    check_share(test_share)
    ids = tuple(ClientId(str(client)) for client in clients)
    if not ids:
        raise DataError("There are no clients. Give at least one, as {id: (x, y)}")
    check_ids(ids)
    unknown_ids = {str(client) for client in test or {}} - set(ids)
    if unknown_ids:
        raise DataError(f"Test examples for {min(unknown_ids)!r}, which is not one of the clients. Add it to clients")
    pieces: list[_Piece] = []
    fit: list[Integers] = []
    tested: list[Integers] = []
    start = 0
    given_tests = {str(client): pair for client, pair in (test or {}).items()}
    for client, parts in zip(ids, clients.values(), strict=True):
        own = _pieces(client, parts, given_tests.get(client))
        numbers = [start + np.arange(len(own[0].y))]
        start += len(own[0].y)
        if len(own) == 2:
            numbers.append(start + np.arange(len(own[1].y)))
            start += len(own[1].y)
        elif test is None:
            numbers = list(split(numbers[0], test_share, Seed(seed).fold("split", client)))
        fit.append(numbers[0])
        tested.append(numbers[1] if len(numbers) == 2 else np.zeros(0, np.int64))
        pieces += own
    x, y, classes = _joined(pieces, classes)
    return FederatedData(
        name=name,
        x=x,
        y=y,
        clients=ids,
        fit=Index.from_lists(fit),
        test=Index.from_lists(tested),
        classes=classes,
        truth=_truth(ids, truth),
        source=source,
        held_seed=Seed(seed),
    )


def _pieces(client: str, parts: Sequence[npt.ArrayLike], test: Sequence[npt.ArrayLike] | None) -> list[_Piece]:
    """The one or two pairs of arrays of a client, each checked."""
    if not isinstance(parts, tuple | list) or len(parts) not in (2, 4) or (test is not None and len(parts) == 4):
        allowed = "(x, y)" if test is not None else "(x, y) or (x, y, x_test, y_test)"
        got = f"{len(parts)} values" if isinstance(parts, tuple | list) else type(parts).__name__
        raise DataError(f"Client {client!r}: give {allowed}, got {got}")
    if test is not None and (not isinstance(test, tuple | list) or len(test) != 2):
        raise DataError(f"Client {client!r}: give its test examples as (x, y)")
    pairs = [("", parts[0], parts[1])]
    if len(parts) == 4 or test is not None:
        pairs.append(("test ", *(test or parts[2:])))
    return [_piece(client, what, x, y) for what, x, y in pairs]


def _piece(client: str, what: str, x_like: npt.ArrayLike, y_like: npt.ArrayLike) -> _Piece:
    x, y = np.asarray(x_like), np.asarray(y_like)
    if y.ndim != 1 or x.ndim == 0 or len(x) != len(y):
        raise DataError(
            f"Client {client!r}: {what}y must hold one label for each example,"
            f" got x of shape {x.shape} and y of shape {y.shape}"
        )
    for field, array in (("x", x), ("y", y)):
        if array.dtype.kind not in "biuf":
            raise DataError(
                f"Client {client!r}: {what}{field} must hold numbers, got {array.dtype}. Encode it as numbers first"
            )
        row = first_bad_row(array)
        if row is not None:
            raise DataError(
                f"Client {client!r}: {what}{field} is NaN or infinite in row {row}."
                " Remove such examples or fill in the values"
            )
    return _Piece(client, what, x, y)


def _joined(pieces: list[_Piece], classes: int | None) -> tuple[Array, Array, int | None]:
    """All examples in one flat array, all labels in another, and the number of classes."""
    filled = [piece for piece in pieces if len(piece.y)]
    if not filled:
        raise DataError("No client has any examples. Give at least one example")
    first = filled[0]
    for piece in filled:
        if piece.x.shape[1:] != first.x.shape[1:] or piece.x.ndim < 2:
            raise DataError(
                f"Client {piece.client!r}: an example in {piece.what}x has shape {piece.x.shape[1:]}, but client"
                f" {first.client!r} has {first.x.shape[1:]}. All examples must have one shape, of at least one axis"
            )
        if classes is None and (piece.y.dtype.kind == "f") != (first.y.dtype.kind == "f"):
            raise DataError(
                f"Client {piece.client!r}: {piece.what}y is {piece.y.dtype}, but client {first.client!r} has"
                f" {first.y.dtype}. Use integers for labels or floats for regression targets, the same for all clients"
            )
    if classes is None and first.y.dtype.kind != "f":
        classes = classes_of(np.concatenate([piece.y for piece in filled]))
    for piece in filled:
        row = None if classes is None else first_bad_label(piece.y.astype(np.float64), classes)
        if row is not None and classes is not None:
            raise DataError(f"Client {piece.client!r}, {piece.what}row {row}: {label_text(piece.y[row], classes)}")
    dtype = np.result_type(*{piece.x.dtype for piece in filled})
    dtype = np.dtype(np.float32) if dtype.kind == "f" and dtype.itemsize > 4 else dtype
    x = aligned(np.empty((sum(len(piece.y) for piece in filled), *first.x.shape[1:]), dtype))
    with np.errstate(over="ignore"):  # values too large for float32 become infinite, which is an error later
        np.concatenate([piece.x for piece in filled], out=x, casting="same_kind")
    y = np.concatenate([piece.y for piece in filled]).astype(np.float32 if classes is None else np.int32)
    return x, y, classes


def _truth(ids: tuple[ClientId, ...], truth: Mapping[str, int] | Sequence[int] | None) -> npt.NDArray[np.int64] | None:
    if truth is None:
        return None
    if isinstance(truth, Mapping):
        by_id = {str(client): cluster for client, cluster in truth.items()}
        missing = [client for client in ids if client not in by_id]
        if missing:
            raise DataError(f"truth has no cluster for client {missing[0]!r}. Give one for every client")
        truth = [by_id[client] for client in ids]
    if len(truth) != len(ids):
        raise DataError(f"truth must give one cluster for each of the {len(ids)} clients, got {len(truth)}")
    return np.asarray(truth)
