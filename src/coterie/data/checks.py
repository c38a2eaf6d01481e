"""Checks of settings, which raise `SpecError`, and of federated data, which raise `DataError` and name the client."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from coterie.data.transforms import ROTATIONS, TRANSFORMS
from coterie.errors import DataError, SpecError, unknown
from coterie.types import Array

if TYPE_CHECKING:
    from coterie.data.federated import FederatedData

log = logging.getLogger(__name__)

_BLOCK = 1 << 22  # numbers checked at a time, to save memory
_INT32 = np.iinfo(np.int32)
_CODES = 1000  # labels above this and above ten times the number of classes are taken for codes, not class numbers


def at_least(name: str, value: float, minimum: float, why: str = "") -> None:
    """Check that a setting is at least `minimum`."""
    if not value >= minimum:
        raise SpecError(f"{name} must be at least {minimum}{why and f', {why}'}, got {value}")


def at_most(name: str, value: float, maximum: float, why: str) -> None:
    """Check that a setting is at most `maximum`."""
    if not value <= maximum:
        raise SpecError(f"{name} must be at most {maximum}, {why}, got {value}")


def above(name: str, value: float, bound: float) -> None:
    """Check that a setting is more than `bound`."""
    if not value > bound:
        raise SpecError(f"{name} must be more than {bound}, got {value}")


def check_share(test_share: float) -> None:
    """Check that the test share is less than 1, so that training examples remain."""
    if not 0 <= test_share < 1:
        raise SpecError(f"test_share must be at least 0 and less than 1, got {test_share}")


def check_clusters(clients: int, clusters: int) -> None:
    """Check that there are enough clients for every cluster."""
    if clients < clusters:
        raise SpecError(f"data.clients must be at least data.clusters ({clusters}), got {clients}")


def is_utf8(name: str) -> bool:
    """Whether a name can be encoded as UTF-8; file names in other encodings cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_ids(clients: Sequence[str]) -> None:
    """Check that ids are valid UTF-8, because random draws and records use them."""
    if not is_utf8("".join(clients)):
        bad = next(client for client in clients if not is_utf8(client))
        raise DataError(f"The client id {bad!a} cannot be encoded as UTF-8. Rename the client")


def fits_int32(numbers: Array) -> bool:
    """Whether all numbers fit into 32 bits."""
    return not numbers.size or bool(numbers.min() >= _INT32.min and numbers.max() <= _INT32.max)


def classes_of(labels: Array) -> int:
    """Number of classes: one more than the largest label. Labels that look like arbitrary codes are rejected."""
    largest = int(labels.max()) if len(labels) else 0
    if largest > _CODES and largest > 10 * (distinct := len(np.unique(labels))):
        raise DataError(
            f"{distinct} distinct labels, the largest {largest}: number them 0..{distinct - 1} or set data.classes"
        )
    return max(1, largest + 1)


def first_bad_row(x: Array) -> int | None:
    """The first row that contains NaN or infinity, or None."""
    if x.dtype.kind != "f" or x.size == 0:
        return None
    step = max(1, _BLOCK // max(1, x[0].size))
    for start in range(0, len(x), step):
        good = np.isfinite(x[start : start + step]).reshape(len(x[start : start + step]), -1).all(axis=1)
        if not good.all():
            return start + int(np.argmin(good))
    return None


def check_examples(data: FederatedData) -> None:
    """Check that examples are real, finite numbers."""
    if data.x.ndim < 2:
        raise DataError(f"x must have one row per example with at least one number, got shape {data.x.shape}")
    if data.x.dtype.kind not in "biuf":
        raise DataError(f"x must hold real numbers, got {data.x.dtype}. Convert it, for example to float32")
    row = first_bad_row(data.x)
    if row is not None:
        raise DataError(f"{_owner(data, row)}: x is NaN or infinite. Remove or fill in such values first")


def check_labels(data: FederatedData) -> None:
    """Check that labels are integers 0..classes-1, or finite regression targets."""
    y = data.y
    if data.classes is None:
        if y.dtype.kind not in "iuf":
            raise DataError(f"Targets must be numbers, got {y.dtype}")
        row = first_bad_row(y)
        if row is not None:
            raise DataError(f"{_owner(data, row)}: the target is NaN or infinite. Remove such examples first")
        return
    if data.classes < 1:
        raise DataError(f"classes must be at least 1, got {data.classes}")
    if data.classes > _INT32.max:
        raise DataError(f"classes must be at most {_INT32.max}, got {data.classes}. Number the classes from 0")
    row = first_bad_label(y, data.classes)
    if row is not None:
        raise DataError(f"{_owner(data, row)}: {label_text(y[row], data.classes)}")


def first_bad_label(y: Array, classes: int) -> int | None:
    """The first index where y is not an integer in 0..classes-1, or None."""
    if y.dtype.kind not in "iuf":
        return 0 if len(y) else None
    bad = ~((y >= 0) & (y < classes) & (y == np.floor(y)))  # negated, so that NaN is found as well
    return int(np.argmax(bad)) if bad.any() else None


def label_text(label: object, classes: int) -> str:
    """Error message for an invalid label."""
    return f"the label is {label}; labels must be integers 0..{classes - 1}. Number the classes from 0"


def warn_if_targets_look_like_labels(what: str, y: Array) -> None:
    """Log a warning if regression targets look like labels: at least 90 % of them are integers."""
    odd = np.flatnonzero(y != np.floor(y))
    if len(odd) > len(y) / 10 or len(y) == 0:
        return
    why = "labels are integers written as floats, and"
    if len(odd):
        verb = "is" if len(odd) == 1 else "are"
        why = f"{len(odd)} of {len(y)} labels {verb} not integers, such as {y[odd[0]]}, so all"
    log.warning("%s: %s are used as regression targets; for classes set data.classes=N", what, why)


def check_weights(data: FederatedData) -> None:
    """Check that there is a finite weight of at least 0 for each example."""
    weights = data.weights
    if weights is None:
        return
    if weights.shape != (len(data.x),) or weights.dtype.kind not in "iuf":
        raise DataError(
            f"weights must hold a number for each of the {len(data.x)} examples, got {weights.dtype} of shape "
            f"{weights.shape}"
        )
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(f"{_owner(data, row)}: the weight is {weights[row]}; weights must be finite and at least 0")


def check_index(data: FederatedData, part: Literal["fit", "test"]) -> None:
    """Check that the index has one part per client and only rows that exist."""
    index = data.fit if part == "fit" else data.test
    order, offsets = index.order, index.offsets
    if order.dtype.kind != "i" or offsets.dtype.kind != "i" or order.ndim != 1 or offsets.ndim != 1:
        raise DataError(f"The {part} index must be two lists of integers, got {order.dtype} and {offsets.dtype}")
    if len(offsets) != len(data.clients) + 1:
        raise DataError(
            f"The {part} index must have {len(data.clients) + 1} offsets, one more than clients, got {len(offsets)}"
        )
    if offsets[0] != 0 or offsets[-1] != len(order) or (np.diff(offsets) < 0).any():
        raise DataError(f"The {part} offsets must increase from 0 to {len(order)}, the length of the order")
    if len(order) and not (order.min() >= 0 and order.max() < len(data.x)):
        entry = int(np.argmax((order < 0) | (order >= len(data.x))))
        client = data.clients[int(np.searchsorted(offsets, entry, side="right")) - 1]
        raise DataError(f"Client {client!r}: {part} example {order[entry]} does not exist; there are {len(data.x)}")


def check_transforms(data: FederatedData) -> None:
    """Check that transforms are known and fit the examples' shape, and that each client has one and a true cluster."""
    for name in data.transforms:
        if name not in TRANSFORMS:
            raise DataError(unknown("transform", name, TRANSFORMS))
    rotations = [name for name in data.transforms if name in ROTATIONS]
    if rotations and (data.x.ndim < 3 or data.x.shape[1] != data.x.shape[2]):
        raise DataError(f"{rotations[0]} needs square images (rows, side, side[, channels]), got shape {data.x.shape}")
    if data.tokens is not None and data.transforms != ("identity",):
        raise DataError(
            f"Transforms cannot be applied to token ids: leave transforms out, got {', '.join(data.transforms)}"
        )
    _check_numbers(data, "transform", data.transform, len(data.transforms))
    _check_numbers(data, "truth", data.truth, None)


def check_normalize(data: FederatedData) -> None:
    """Check that mean and deviation are finite and broadcast over one example, and that the deviation is above 0."""
    if data.normalize is None:
        return
    mean, deviation = (np.asarray(part, np.float64) for part in data.normalize)
    shape = data.x.shape[1:]
    try:
        fits = np.broadcast_shapes(mean.shape, deviation.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise DataError(
            f"normalize must be a mean and a deviation that broadcast over one example of shape {shape},"
            f" got shapes {mean.shape} and {deviation.shape}"
        )
    if not (np.isfinite(mean).all() and np.isfinite(deviation).all() and (deviation > 0).all()):
        raise DataError("normalize must be finite, with a deviation above 0 everywhere")


def check_tokens(data: FederatedData) -> None:
    """Check that token ids are in range and not normalized, and that a table has a finite vector for each token."""
    if data.tokens is None:
        if data.table is not None:
            raise DataError("A table of vectors needs tokens: set it to the number of rows of the table")
        return
    top = min(data.tokens - 1, _INT32.max)
    if data.x.dtype.kind not in "iu" or (data.x.size and not 0 <= int(data.x.min()) <= int(data.x.max()) <= top):
        raise DataError(f"x must hold token ids, integers 0..{top}, got {_range(data.x)}")
    if data.normalize is not None:
        raise DataError("Token ids cannot be normalized: leave normalize out")
    if data.table is not None:
        if data.table.ndim != 2 or len(data.table) != data.tokens or data.table.dtype.kind != "f":
            raise DataError(
                f"table must hold a vector of floats for each of the {data.tokens} tokens,"
                f" got {data.table.dtype} of shape {data.table.shape}"
            )
        row = first_bad_row(data.table)
        if row is not None:
            raise DataError(f"table is NaN or infinite in row {row}")


def _range(x: Array) -> str:
    return f"{x.dtype}" + (f" from {x.min()} to {x.max()}" if x.size else "")


def _check_numbers(data: FederatedData, field: str, numbers: npt.NDArray[Any] | None, below: int | None) -> None:
    if numbers is None:
        if field == "transform" and below == 0:
            raise DataError("transforms must name at least one transform, such as identity")
        return
    if numbers.shape != (len(data.clients),) or numbers.dtype.kind not in "iu":
        raise DataError(
            f"{field} must be an integer for each of the {len(data.clients)} clients,"
            f" got {numbers.dtype} of shape {numbers.shape}"
        )
    if len(numbers) and (numbers.min() < 0 or (below is not None and numbers.max() >= below)):
        bad = int(np.argmax((numbers < 0) | (numbers >= (below or np.inf))))
        top = "" if below is None else f" and less than {below}"
        raise DataError(f"Client {data.clients[bad]!r}: {field} must be at least 0{top}, got {numbers[bad]}")


def _owner(data: FederatedData, row: int) -> str:
    """The client of an example, for error messages."""
    for index in (data.fit, data.test):
        entries = np.flatnonzero(index.order == row)
        if len(entries):
            position = int(np.searchsorted(index.offsets, entries[0], side="right")) - 1
            return f"Client {data.clients[position]!r}, example {row}"
    return f"Example {row}, which belongs to no client"
