"""Examples of many clients: one flat array, and for each client a list of example numbers and a transform.

Nothing is stored per client but its id, two offsets and a byte, so a hundred thousand clients cost little more than
their examples. A shift of the data swaps index lists or transforms (`FederatedData.rearranged`); images never move.

Text is stored as ids of tokens. Where frozen vectors stand for the tokens, such as GloVe's, their `table` lies here,
beside the examples, since every client looks its own words up: models take the vectors as inputs and do not know where
they come from, so the table is no parameter, is never sent and is in no record.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data import transforms as transforming
from coterie.data.checks import (
    check_examples,
    check_ids,
    check_index,
    check_labels,
    check_normalise,
    check_tokens,
    check_transforms,
    fits_int32,
)
from coterie.errors import DataError, unknown
from coterie.seeds import Seed
from coterie.types import PARTS, Array, ClientId, Part

Integers = npt.NDArray[np.signedinteger[Any]]

_ALIGNMENT = 64  # bytes; compiled code can then share the memory of NumPy instead of copying it
_ROOT = Seed(0)
_SEARCHED = 10_000  # ids among which a near miss is looked for


def aligned(array: Array) -> Array:
    """The array in C order and native bytes, from a 64-byte boundary on: itself if it is so already, or a copy."""
    if array.flags.c_contiguous and array.dtype.isnative and array.ctypes.data % _ALIGNMENT == 0:
        return array
    buffer = np.empty(array.nbytes + _ALIGNMENT, dtype=np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    result: Array = buffer[start : start + array.nbytes].view(array.dtype.newbyteorder("=")).reshape(array.shape)
    result[...] = array
    return result


@dataclass(frozen=True, eq=False)
class Index:
    """The example numbers of all clients, one client after the other.

    Client i has `order[offsets[i]:offsets[i + 1]]`.
    """

    order: Integers
    offsets: npt.NDArray[np.int64]  # (clients + 1,)

    @classmethod
    def from_lists(cls, lists: Sequence[Integers]) -> Index:
        """The index of one list a client."""
        sizes = np.fromiter((len(numbers) for numbers in lists), dtype=np.int64, count=len(lists))
        order = np.concatenate([np.asarray(n, dtype=np.int64) for n in lists]) if lists else np.zeros(0, np.int64)
        return cls.from_sizes(order, sizes)

    @classmethod
    def from_sizes(cls, order: Integers, sizes: Integers) -> Index:
        """The index that cuts `order` into consecutive pieces of these sizes."""
        return cls(order, np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)]))

    def __len__(self) -> int:
        """How many clients."""
        return len(self.offsets) - 1

    def of(self, position: int) -> Integers:
        """The example numbers of one client, as a view."""
        return self.order[self.offsets[position] : self.offsets[position + 1]]

    def sizes(self) -> npt.NDArray[np.int64]:
        """How many examples each client has."""
        return np.diff(self.offsets)

    def owners(self) -> npt.NDArray[np.int64]:
        """The position of the client that each entry of `order` belongs to."""
        return np.repeat(np.arange(len(self)), self.sizes())


@dataclass(frozen=True, eq=False)
class FederatedData:
    """The examples of all clients.

    Attributes:
        name: What the data set is called.
        x: (examples, *shape), of any real type, as it is read; normalization belongs to the task. Whole numbers of 64
            bits, which models would cut off, and uint32 are stored as int32, or as float32 where one does not fit.
        y: (examples,) labels 0..classes-1 as int32, or targets as float32.
        clients: The ids; a client's place here is its position everywhere else.
        fit: Training examples of each client.
        test: Test examples of each client.
        classes: Number of classes, or None if `y` holds targets.
        transforms: Names of the transforms that occur.
        transform: (clients,) which of `transforms` each client's examples undergo; None: the first, for all.
        truth: (clients,) the true cluster, where it is known.
        held_share: Share of a client's training examples that is kept for validation; 0 keeps none.
        held_seed: Fixes which.
        source: Where the data come from, in a sentence.
        normalize: Mean and deviation with which the data were published, where they were: numbers, or arrays that
            broadcast over one example, in units of `x` as stored. Nothing here applies them; a task may.
        tokens: `x` holds ids of tokens, 0..tokens-1; None: it holds quantities.
        table: (tokens, width) float32, the vector that clients see for each id; None: they see the ids.
    """

    name: str
    x: Array
    y: Array
    clients: tuple[ClientId, ...]
    fit: Index
    test: Index
    classes: int | None
    transforms: tuple[str, ...] = ("identity",)
    transform: npt.NDArray[np.uint8] | None = None
    truth: npt.NDArray[np.int64] | None = None
    held_share: float = 0.1
    source: str = ""
    held_seed: Seed = _ROOT
    normalize: tuple[Any, Any] | None = None
    tokens: int | None = None
    table: Array | None = None

    def __post_init__(self) -> None:
        """Check everything once, and bring `x` and `y` into their types and places without copying if they fit."""
        if len(self.x) != len(self.y) or self.y.ndim != 1:
            raise DataError(
                f"y must hold one label for each of the {len(self.x)} examples in x, got shape {self.y.shape}"
            )
        if len(self._positions) != len(self.clients):
            raise DataError("Client ids must be unique; some id occurs twice. Rename one of the two clients")
        check_ids(self.clients)
        if not 0 <= self.held_share < 1:
            raise DataError(f"held_share must be at least 0 and less than 1, got {self.held_share}")
        check_index(self, "fit")
        check_index(self, "test")
        check_examples(self)
        check_labels(self)
        check_transforms(self)
        check_normalise(self)
        check_tokens(self)
        object.__setattr__(self, "x", aligned(_computable(self.x)))
        if self.table is not None:
            object.__setattr__(self, "table", aligned(self.table.astype(np.float32, copy=False)))
        object.__setattr__(
            self, "y", aligned(self.y.astype(np.float32 if self.classes is None else np.int32, copy=False))
        )

    def rearranged(
        self,
        *,
        fit: Index | None = None,
        test: Index | None = None,
        transforms: tuple[str, ...] | None = None,
        transform: npt.NDArray[np.uint8] | None = None,
        truth: npt.NDArray[np.int64] | None = None,
    ) -> FederatedData:
        """The same examples and clients, dealt out differently; only what is new is checked.

        `dataclasses.replace` would read all examples again, which is much work for one step of a simulated drift.
        """
        new = copy.copy(self)
        given = {"fit": fit, "test": test, "transforms": transforms, "transform": transform, "truth": truth}
        for field, value in given.items():
            if value is not None:
                object.__setattr__(new, field, value)
        check_index(new, "fit")
        check_index(new, "test")
        check_transforms(new)
        return new

    @cached_property
    def _positions(self) -> dict[ClientId, int]:
        return {client: position for position, client in enumerate(self.clients)}

    def position(self, client: str) -> int:
        """Where this client stands among the clients."""
        found = self._positions.get(ClientId(client))
        if found is None:
            near = difflib.get_close_matches(str(client), self.clients[:_SEARCHED], n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ends = f", from {self.clients[0]!r} to {self.clients[-1]!r}" if self.clients else ""
            raise DataError(f"No client {client!r}.{hint} There are {len(self.clients)}{ends}")
        return found

    def rows(self, position: int, part: Part = "fit") -> Integers:
        """The example numbers of one client's part."""
        if part == "test":
            return self.test.of(position)
        fit = self.fit.of(position)
        if part == "fit":
            return fit
        if part not in PARTS:
            raise DataError(unknown("part", part, PARTS))
        held = int(_held(np.asarray([len(fit)]), self.held_share)[0])
        order = self.held_seed.fold("held", self.clients[position]).permutation(len(fit))
        return fit[order[:held]] if part == "held" else fit[np.sort(order[held:])]

    def sizes(self, part: Part = "fit") -> npt.NDArray[np.int64]:
        """How many examples each client has in this part."""
        if part == "test":
            return self.test.sizes()
        if part not in PARTS:
            raise DataError(unknown("part", part, PARTS))
        fit = self.fit.sizes()
        held = _held(fit, self.held_share)
        return {"fit": fit, "held": held, "rest": fit - held}[part]

    def examples(self, client: str, part: Part = "fit") -> tuple[Array, Array]:
        """Copies of one client's examples and labels, transformed as the client sees them."""
        position = self.position(client)
        rows = self.rows(position, part)
        return np.ascontiguousarray(transforming.apply(self.transform_of(position), self.inputs(rows))), self.y[rows]

    def inputs(self, rows: Any) -> Array:
        """The examples of these numbers as clients see them before any transform: vectors where there is a table."""
        stored: Array = self.x[rows]
        return stored if self.table is None else self.table[stored]

    def transform_of(self, position: int) -> str:
        """The name of the transform that this client's examples undergo."""
        return self.transforms[0 if self.transform is None else int(self.transform[position])]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example as clients see it."""
        return self.x.shape[1:] if self.table is None else (*self.x.shape[1:], self.table.shape[1])

    @property
    def ids(self) -> int | None:
        """Of how many tokens clients see the ids; None: they see quantities."""
        return self.tokens if self.table is None else None

    def describe(self) -> dict[str, Any]:
        """A summary in plain numbers: how many clients, examples and classes, and how they are spread."""
        summary: dict[str, Any] = {
            "name": self.name,
            "source": self.source,
            "clients": len(self.clients),
            "examples": {"fit": len(self.fit.order), "test": len(self.test.order)},
            "shape": list(self.shape),
            "dtype": str(self.x.dtype),
            "classes": self.classes,
            "sizes": {"fit": _spread(self.fit.sizes()), "test": _spread(self.test.sizes())},
            "classes_per_client": None if self.classes is None else _spread(self.label_counts().astype(bool).sum(1)),
            "transforms": list(self.transforms),
            "clusters": None,
        }
        if self.truth is not None:
            names, members = np.unique(self.truth, return_counts=True)
            summary["clusters"] = {int(name): int(count) for name, count in zip(names, members, strict=True)}
        return summary

    def label_counts(self, part: Part = "fit") -> npt.NDArray[np.int64]:
        """(clients, classes): how many training or test examples of each class a client has."""
        if self.classes is None:
            raise DataError(f"{self.name} has targets, not classes; there are no labels to count")
        if part not in ("fit", "test"):
            raise DataError(f"Labels are counted for the parts fit and test, got {part!r}")
        index = self.fit if part == "fit" else self.test
        cells = index.owners() * self.classes + self.y[index.order]
        counts = np.bincount(cells, minlength=len(self.clients) * self.classes)
        return counts.reshape(len(self.clients), self.classes)


def _computable(x: Array) -> Array:
    """Examples in a type in which models compute; what they cannot hold would wrap round without a word."""
    if x.dtype.kind not in "iu" or np.can_cast(x.dtype, np.int32):
        return x
    return x.astype(np.int32 if fits_int32(x) else np.float32)


def _held(sizes: npt.NDArray[np.int64], share: float) -> npt.NDArray[np.int64]:
    """How many of so many training examples are held back: a share, at least one, but one stays for training."""
    if share == 0:
        return np.zeros_like(sizes)
    # A hair less than the product: 0.07·100 is 7.000000000000001 in floating point.
    wanted = np.maximum(1, np.ceil(share * sizes - 1e-9)).astype(np.int64)
    return np.where(sizes < 2, 0, np.minimum(wanted, sizes - 1))


def _spread(numbers: npt.NDArray[Any]) -> dict[str, float]:
    if len(numbers) == 0:
        return {"min": 0, "median": 0.0, "max": 0}
    return {"min": int(numbers.min()), "median": float(np.median(numbers)), "max": int(numbers.max())}
