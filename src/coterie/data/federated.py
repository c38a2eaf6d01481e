"""`FederatedData`: all examples in one flat array, and for each client a list of row indices and a transform.

Per client only the id, two offsets and a byte are stored, so a hundred thousand clients need little more memory than
their examples. Simulated drift replaces index lists or transforms (`FederatedData.rearranged`), never the examples.

Text is stored as token ids. If tokens are represented by frozen vectors such as GloVe's, the `table` of vectors is
stored here, with the examples, because each client looks up its own words. Models take the vectors as inputs; the table
is not a parameter, is never sent and is not part of a record.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from coterie.data import transforms as transforming
from coterie.data.checks import (
    check_examples,
    check_ids,
    check_index,
    check_labels,
    check_names,
    check_normalize,
    check_tokens,
    check_transforms,
    check_weights,
    fits_int32,
)
from coterie.errors import DataError, unknown
from coterie.notebooks import html_facts
from coterie.seeds import Seed
from coterie.types import PARTS, Array, ClientId, Part

if TYPE_CHECKING:
    from coterie.data.preprocessing import Preprocessing

Integers = npt.NDArray[np.signedinteger[Any]]

_ALIGNMENT = 64  # bytes; compiled code can then use NumPy's memory without copying it
_ROOT = Seed(0)
_SEARCHED = 10_000  # maximum number of ids that are searched for a similar one


def aligned(array: Array) -> Array:
    """The array in C order and native byte order, aligned to 64 bytes; copied only if necessary."""
    if array.flags.c_contiguous and array.dtype.isnative and array.ctypes.data % _ALIGNMENT == 0:
        return array
    buffer = np.empty(array.nbytes + _ALIGNMENT, dtype=np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    result: Array = buffer[start : start + array.nbytes].view(array.dtype.newbyteorder("=")).reshape(array.shape)
    result[...] = array
    return result


@dataclass(frozen=True, eq=False)
class Index:
    """The row indices of all clients, concatenated.

    Client i has `order[offsets[i]:offsets[i + 1]]`.
    """

    order: Integers
    offsets: npt.NDArray[np.int64]  # (clients + 1,)

    @classmethod
    def from_lists(cls, lists: Sequence[Integers]) -> Index:
        """Create an index from one list per client."""
        sizes = np.fromiter((len(numbers) for numbers in lists), dtype=np.int64, count=len(lists))
        order = np.concatenate([np.asarray(n, dtype=np.int64) for n in lists]) if lists else np.zeros(0, np.int64)
        return cls.from_sizes(order, sizes)

    @classmethod
    def from_sizes(cls, order: Integers, sizes: Integers) -> Index:
        """Create an index that cuts `order` into consecutive parts of these sizes."""
        return cls(order, np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)]))

    def __len__(self) -> int:
        """Number of clients."""
        return len(self.offsets) - 1

    def of(self, position: int) -> Integers:
        """The row indices of one client, as a view."""
        return self.order[self.offsets[position] : self.offsets[position + 1]]

    def sizes(self) -> npt.NDArray[np.int64]:
        """Number of examples of each client."""
        return np.diff(self.offsets)

    def owners(self) -> npt.NDArray[np.int64]:
        """For each entry of `order`, the position of the client to which it belongs."""
        return np.repeat(np.arange(len(self)), self.sizes())


@dataclass(frozen=True, eq=False, repr=False)
class FederatedData:
    """The examples of all clients.

    Attributes:
        name: Name of the data set.
        x: (examples, *shape), any real dtype, not normalized: the task normalizes. 64-bit integers and uint32
            are stored as int32, or as float32 if a value does not fit.
        y: (examples,) labels 0..classes-1 as int32, or regression targets as float32.
        clients: Client ids; the order defines each client's position.
        fit: Training examples of each client.
        test: Test examples of each client.
        classes: Number of classes, or None for regression.
        transforms: Names of the transforms in use.
        transform: (clients,) index into `transforms` for each client; None: the first for all clients.
        truth: (clients,) the true cluster of each client, if known.
        held_share: Fraction of each client's training examples that is held out for validation; 0 for none.
        held_seed: Random seed of that split.
        source: Where the data come from, in a sentence.
        normalize: Published mean and standard deviation, if any: numbers, or arrays that broadcast over one example,
            in units of `x` as stored. They are applied by the task, not here.
        tokens: Number of tokens if `x` holds token ids 0..tokens-1; None otherwise.
        table: (tokens, width) float32, the vector of each token; None: models see the ids.
        weights: (examples,) sample weights, stored as float32: an example counts with its weight in losses and scores.
            None: all examples count 1.
        class_names: Name of each class; None if classes have no names, and for regression.
        features: Name of each column of `x`; None if they have no names.
        preprocessing: How `x` was made from the columns of a table; None for other data.
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
    weights: Array | None = None
    class_names: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    preprocessing: Preprocessing | None = None

    def __post_init__(self) -> None:
        """Check all fields, and convert `x` and `y` to their dtype and alignment, without a copy if possible."""
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
        check_normalize(self)
        check_tokens(self)
        check_weights(self)
        check_names(self)
        object.__setattr__(self, "x", aligned(_computable(self.x)))
        if self.table is not None:
            object.__setattr__(self, "table", aligned(self.table.astype(np.float32, copy=False)))
        if self.weights is not None:
            object.__setattr__(self, "weights", aligned(self.weights.astype(np.float32, copy=False)))
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
        """Return the same examples and clients with other index lists or transforms; only these are checked.

        `dataclasses.replace` would check all examples again, which is slow for one step of a simulated drift.
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
        """Position of a client in `clients`."""
        found = self._positions.get(ClientId(client))
        if found is None:
            near = difflib.get_close_matches(str(client), self.clients[:_SEARCHED], n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ends = f", from {self.clients[0]!r} to {self.clients[-1]!r}" if self.clients else ""
            raise DataError(f"No client {client!r}.{hint} There are {len(self.clients)}{ends}")
        return found

    def rows(self, position: int, part: Part = "fit") -> Integers:
        """The row indices of one part of a client's examples."""
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
        """Number of examples of each client in this part."""
        if part == "test":
            return self.test.sizes()
        if part not in PARTS:
            raise DataError(unknown("part", part, PARTS))
        fit = self.fit.sizes()
        held = _held(fit, self.held_share)
        return {"fit": fit, "held": held, "rest": fit - held}[part]

    def examples(self, client: str, part: Part = "fit") -> tuple[Array, Array]:
        """Copies of one client's examples and labels, with its transform applied."""
        position = self.position(client)
        rows = self.rows(position, part)
        return np.ascontiguousarray(transforming.apply(self.transform_of(position), self.inputs(rows))), self.y[rows]

    def sample_weights(self, client: str, part: Part = "fit") -> Array | None:
        """The weights of one client's examples; None if the data have none."""
        return None if self.weights is None else self.weights[self.rows(self.position(client), part)]

    def only(self, client: str) -> FederatedData:
        """The examples of one client alone, transformed, without those of others and without true clusters."""
        (x, y), (x_test, y_test) = (self.examples(client, part) for part in ("fit", "test"))
        rows = np.arange(len(y) + len(y_test))
        own: tuple[Part, ...] = ("fit", "test")
        weights = [self.sample_weights(client, part) for part in own]
        return FederatedData(
            name=self.name,
            x=np.concatenate([x, x_test]),
            y=np.concatenate([y, y_test]),
            clients=(ClientId(client),),
            fit=Index.from_lists([rows[: len(y)]]),
            test=Index.from_lists([rows[len(y) :]]),
            classes=self.classes,
            held_share=self.held_share,
            held_seed=self.held_seed,
            source=self.source,
            normalize=self.normalize,
            tokens=self.ids,
            weights=None if self.weights is None else np.concatenate([each for each in weights if each is not None]),
            class_names=self.class_names,
            features=self.features,
            preprocessing=self.preprocessing,
        )

    def with_validation_split(self, share: float, seed: Seed) -> FederatedData:
        """The same data with another draw of the validation examples from the training examples.

        Args:
            share: Fraction of each client's training examples; at least one, and at least one remains for training.
            seed: Random seed of the split.
        """
        if not 0 < share < 1:
            raise DataError(f"The share of validation examples must be above 0 and less than 1, got {share}")
        new = copy.copy(self)
        object.__setattr__(new, "held_share", share)
        object.__setattr__(new, "held_seed", seed)
        return new

    def subset(self, clients: Sequence[ClientId]) -> FederatedData:
        """The same examples with some of the clients, in this order."""
        places = np.array([self.position(client) for client in clients], np.int64)
        return replace(
            self,
            clients=tuple(clients),
            fit=Index.from_lists([self.fit.of(place) for place in places]),
            test=Index.from_lists([self.test.of(place) for place in places]),
            transform=None if self.transform is None else self.transform[places],
            truth=None if self.truth is None else self.truth[places],
        )

    def for_validation(self) -> FederatedData:
        """The same clients with their validation examples in place of the test examples, and trained on the rest.

        A run on these data sees no test example, and its scores are those of examples that it was not trained on.
        """
        places = range(len(self.clients))
        fit, test = (Index.from_lists([self.rows(place, part) for place in places]) for part in ("rest", "held"))
        if not len(test.order):
            raise DataError(
                f"{self.name} has no validation examples: held_share is {self.held_share}, and clients with one "
                "training example have none; choose a larger held_share"
            )
        return self.rearranged(fit=fit, test=test)

    def inputs(self, rows: Any) -> Array:
        """The examples in these rows before any transform; with a table, the vectors of the tokens."""
        stored: Array = self.x[rows]
        return stored if self.table is None else self.table[stored]

    def transform_of(self, position: int) -> str:
        """The name of a client's transform."""
        return self.transforms[0 if self.transform is None else int(self.transform[position])]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input of a model."""
        return self.x.shape[1:] if self.table is None else (*self.x.shape[1:], self.table.shape[1])

    @property
    def ids(self) -> int | None:
        """Number of tokens if models see token ids; None otherwise."""
        return self.tokens if self.table is None else None

    def __repr__(self) -> str:
        """Short: name, numbers of clients and examples, shape and classes."""
        facts = ", ".join(f"{name} {value}" for name, value in self._facts())
        return f"FederatedData({self.name!r}: {facts})"

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks."""
        return html_facts(self.name, self._facts())

    def _facts(self) -> list[tuple[str, object]]:
        facts: list[tuple[str, object]] = [
            ("clients", len(self.clients)),
            ("training examples", len(self.fit.order)),
            ("test examples", len(self.test.order)),
            ("input shape", self.shape),
            ("classes", "none (regression)" if self.classes is None else self.classes),
        ]
        if self.truth is not None:
            facts.append(("true clusters", len(np.unique(self.truth))))
        return facts

    def describe(self) -> dict[str, Any]:
        """Return a summary: numbers of clients, examples and classes, and their distribution over clients."""
        summary: dict[str, Any] = {
            "name": self.name,
            "source": self.source,
            "clients": len(self.clients),
            "examples": {"fit": len(self.fit.order), "test": len(self.test.order)},
            "shape": list(self.shape),
            "dtype": str(self.x.dtype),
            "classes": self.classes,
            "class_names": None if self.class_names is None else list(self.class_names),
            "features": None if self.features is None else list(self.features),
            "columns": None if self.preprocessing is None else self.preprocessing.to_dict()["columns"],
            "weighted": self.weights is not None,
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
        """(clients, classes) numbers of training or test examples per class."""
        if self.classes is None:
            raise DataError(f"{self.name} is a regression data set; there are no labels to count")
        if part not in ("fit", "test"):
            raise DataError(f"Labels are counted for the parts fit and test, got {part!r}")
        index = self.fit if part == "fit" else self.test
        cells = index.owners() * self.classes + self.y[index.order]
        counts = np.bincount(cells, minlength=len(self.clients) * self.classes)
        return counts.reshape(len(self.clients), self.classes)


def _computable(x: Array) -> Array:
    """Examples in a dtype that models can use: 64-bit integers would overflow silently."""
    if x.dtype.kind not in "iu" or np.can_cast(x.dtype, np.int32):
        return x
    return x.astype(np.int32 if fits_int32(x) else np.float32)


def _held(sizes: npt.NDArray[np.int64], share: float) -> npt.NDArray[np.int64]:
    """Numbers of training examples held out: a fraction, at least one; at least one remains for training."""
    if share == 0:
        return np.zeros_like(sizes)
    # Slightly less than the product: 0.07·100 is 7.000000000000001 in floating point.
    wanted = np.maximum(1, np.ceil(share * sizes - 1e-9)).astype(np.int64)
    return np.where(sizes < 2, 0, np.minimum(wanted, sizes - 1))


def _spread(numbers: npt.NDArray[Any]) -> dict[str, float]:
    if len(numbers) == 0:
        return {"min": 0, "median": 0.0, "max": 0}
    return {"min": int(numbers.min()), "median": float(np.median(numbers)), "max": int(numbers.max())}
