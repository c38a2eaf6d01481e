"""`DataDescription`: what a run must know about the clients' data to build its model; no example is part of it.

In simulation it is computed from the data. On a network each client states what its own data are like (`ClientFacts`),
and `combined` puts these statements together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie.data.federated import FederatedData
from coterie.data.preprocessing import Preprocessing
from coterie.errors import DataError
from coterie.types import Array, ClientId

#: Largest number of classes, and of tokens, that clients may state: models have rows for each of them.
MAX_CLASSES, MAX_TOKENS = 1 << 20, 1 << 22


@dataclass(frozen=True)
class Moments:
    """Sums over the training examples of one or more clients, from which mean and deviation follow.

    Attributes:
        count: Number of examples.
        total: Sum of the inputs, per feature, in float64.
        squares: Sum of their squares.
    """

    count: int
    total: Array
    squares: Array

    @classmethod
    def of(cls, x: Array) -> Moments:
        """The sums over these inputs."""
        values = x.astype(np.float64)
        return cls(len(x), values.sum(axis=0), np.square(values).sum(axis=0))

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.count + other.count, self.total + other.total, self.squares + other.squares)

    def mean_and_deviation(self) -> tuple[Array, Array]:
        """Mean and standard deviation of each feature, in float32."""
        count = max(self.count, 1)
        mean = self.total / count
        variance = np.maximum(self.squares / count - np.square(mean), 0.0)
        return mean.astype(np.float32), np.sqrt(variance).astype(np.float32)


@dataclass(frozen=True)
class ClientFacts:
    """What one client states about its data.

    Attributes:
        shape: Shape of one input.
        classes: Largest label + 1; None: the targets are real numbers.
        integers: Whether the inputs are integers.
        magnitude: Largest absolute value of an input.
        ids: Number of tokens if the inputs are token ids; None otherwise.
        fit: Number of training examples.
        test: Number of test examples.
        moments: Sums over its training examples; None if they were not asked for.
        table: Whether the inputs are the columns of a table.
        features: Hash of the names of the inputs, in their order; empty if they have no names.
        labels: Hash of the names of the classes, in their order; empty if they have no names other than 0, 1, 2, ...
        weighted: Whether its examples have weights.
    """

    shape: tuple[int, ...]
    classes: int | None
    integers: bool
    magnitude: float
    ids: int | None
    fit: int
    test: int
    moments: Moments | None = None
    table: bool = False
    features: str = ""
    labels: str = ""
    weighted: bool = False

    @classmethod
    def of(cls, data: FederatedData, *, moments: bool = False) -> ClientFacts:
        """The facts about the examples of one client."""
        plain = None if data.classes is None else tuple(map(str, range(data.classes)))
        (client,) = data.clients
        x, _ = data.examples(client, "fit")
        labels = np.concatenate([data.examples(client, part)[1] for part in ("fit", "test")])
        return cls(
            shape=data.shape,
            classes=None if data.classes is None else max(data.classes, int(labels.max(initial=-1)) + 1),
            integers=data.x.dtype.kind in "iu" and data.table is None,
            magnitude=_magnitude(data.x),
            ids=data.ids,
            fit=int(data.sizes("fit")[0]),
            test=int(data.sizes("test")[0]),
            moments=Moments.of(x) if moments else None,
            table=data.preprocessing is not None,
            features=_hash(data.features),
            labels="" if data.class_names == plain else _hash(data.class_names),
            weighted=data.weights is not None,
        )

    @property
    def kind(self) -> tuple[object, ...]:
        """What the data of clients that learn together have in common."""
        return self.shape, self.classes is None, self.ids is None, self.features, self.labels

    def to_dict(self) -> dict[str, Any]:
        """The facts as plain data."""
        sums = self.moments
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "moments": None if sums is None else {"count": sums.count, "total": sums.total, "squares": sums.squares},
            **({"weighted": True} if self.weighted else {}),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> ClientFacts:
        """Facts from another machine, validated.

        Raises:
            DataError: If they are malformed.
        """
        try:
            return cls._checked(plain)
        except (KeyError, TypeError, ValueError, OverflowError) as fault:
            raise DataError(f"The statement about the data cannot be read: {type(fault).__name__}") from fault

    @classmethod
    def _checked(cls, plain: Mapping[str, Any]) -> ClientFacts:
        shape = tuple(_whole(size, 1, 1 << 24) for size in plain["shape"])
        if len(shape) > 8 or int(np.prod(shape, dtype=np.float64)) > 1 << 24:
            raise ValueError("too large")
        magnitude = float(plain["magnitude"])
        if not np.isfinite(magnitude) or magnitude < 0:
            raise ValueError("not a magnitude")
        fit, sums = _whole(plain["fit"], 0, 1 << 40), plain["moments"]
        return cls(
            shape=shape,
            classes=None if plain["classes"] is None else _whole(plain["classes"], 1, MAX_CLASSES),
            integers=bool(plain["integers"]),
            magnitude=magnitude,
            ids=None if plain["ids"] is None else _whole(plain["ids"], 1, MAX_TOKENS),
            fit=fit,
            test=_whole(plain["test"], 0, 1 << 40),
            moments=None if sums is None else _sums(sums, shape, fit),
            table=bool(plain.get("table", False)),
            features=_checked_hash(plain.get("features", "")),
            labels=_checked_hash(plain.get("labels", "")),
            weighted=bool(plain.get("weighted", False)),
        )


_PLAIN = ("shape", "classes", "integers", "magnitude", "ids", "fit", "test", "table", "features", "labels")


@dataclass(frozen=True)
class DataDescription:
    """The data of all clients, as far as a run must know them.

    Attributes:
        name: Name of the data set.
        source: Where the data come from, in a sentence.
        shape: Shape of one input.
        classes: Number of classes; None for regression.
        ids: Number of tokens if models see token ids; None otherwise.
        tokens: Whether the inputs are tokens: ids, or vectors that stand for them.
        integers: Whether the inputs are integers.
        published: Published mean and deviation, if any.
        magnitude: Computes the largest absolute value of an input.
        moments: Computes the sums over all training examples.
        trainable: Clients that have training examples, sorted.
        idle: Clients without training examples, sorted.
        truth: Client → true cluster; empty if true clusters are not known.
        table: Whether the inputs are the columns of a table.
        class_names: Name of each class, if known.
        features: Name of each input, if known.
        preprocessing: How the inputs were made from the columns of a table, if known.
        weighted: Whether examples have weights.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    classes: int | None
    ids: int | None
    tokens: bool
    integers: bool
    published: tuple[Any, Any] | None
    magnitude: Callable[[], float]
    moments: Callable[[], Moments]
    trainable: tuple[ClientId, ...]
    idle: tuple[ClientId, ...] = ()
    truth: Mapping[ClientId, int] = field(default_factory=dict)
    table: bool = False
    class_names: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    preprocessing: Preprocessing | None = None
    weighted: bool = False


def described(data: FederatedData) -> DataDescription:
    """The description of data at hand."""
    sizes = dict(zip(data.clients, data.sizes("fit").tolist(), strict=True))

    def moments() -> Moments:
        parts = [Moments.of(data.examples(client, "fit")[0]) for client in sorted(sizes) if sizes[client]]
        return sum(parts[1:], parts[0])

    return DataDescription(
        name=data.name,
        source=data.source,
        shape=data.shape,
        classes=data.classes,
        ids=data.ids,
        tokens=data.tokens is not None,
        integers=data.x.dtype.kind != "f",
        published=data.normalize,
        magnitude=lambda: _magnitude(data.x),
        moments=moments,
        trainable=tuple(sorted(client for client, size in sizes.items() if size)),
        idle=tuple(sorted(client for client, size in sizes.items() if not size)),
        truth={} if data.truth is None else dict(zip(data.clients, data.truth.tolist(), strict=True)),
        table=data.preprocessing is not None,
        class_names=data.class_names,
        features=data.features,
        preprocessing=data.preprocessing,
        weighted=data.weights is not None,
    )


def combined(
    name: str, facts: Mapping[ClientId, ClientFacts], *, classes: int = 0, truth: Mapping[ClientId, int] | None = None
) -> DataDescription:
    """The description that the statements of clients give together.

    Args:
        name: Name of the data set.
        facts: Client → what it states.
        classes: Number of classes; 0: the largest number that a client states.
        truth: Client → true cluster, if known.

    Raises:
        DataError: If the clients' data do not fit together.
    """
    if not facts:
        raise DataError("No client has stated what its data are like")
    clients = sorted(facts)
    first = facts[clients[0]]
    for client in clients:
        if problem := difference(first, facts[client]):
            raise DataError(f"The data of client {client!r} do not fit: {problem}")
    found = None if first.classes is None else max(facts[client].classes or 0 for client in clients)

    def moments() -> Moments:
        parts = [facts[client].moments for client in clients if facts[client].fit]
        sums = [part for part in parts if part is not None]
        if len(sums) < len(parts):
            raise DataError("Some clients have not stated the sums of their inputs, which model.normalize needs")
        return sum(sums[1:], sums[0])

    return DataDescription(
        name=name,
        source="clients on other machines",
        shape=first.shape,
        classes=None if found is None else classes or found,
        ids=None if first.ids is None else max(facts[client].ids or 0 for client in clients),
        tokens=first.ids is not None,
        integers=first.integers,
        published=None,
        magnitude=lambda: max(facts[client].magnitude for client in clients) or 1.0,
        moments=moments,
        trainable=tuple(client for client in clients if facts[client].fit),
        idle=tuple(client for client in clients if not facts[client].fit),
        truth=dict(truth or {}),
        table=all(facts[client].table for client in clients),
        weighted=any(facts[client].weighted for client in clients),
    )


def difference(one: ClientFacts, other: ClientFacts) -> str | None:
    """Why the data of two clients cannot be learned together; None if they can."""
    if one.shape != other.shape:
        return f"inputs have shape {other.shape}, those of other clients {one.shape}"
    if (one.classes is None) != (other.classes is None):
        has, others = ("real numbers", "class labels")[:: 1 if other.classes is None else -1]
        return f"targets are {has}, those of other clients {others}"
    if (one.ids is None) != (other.ids is None):
        return "inputs are token ids, unlike those of other clients, or the other way round"
    if one.features and other.features and one.features != other.features:
        return (
            "the columns of its table, their order or their categories differ from those of other clients; "
            "share one encoding (data.preprocessing)"
        )
    if one.labels != other.labels:
        return "its classes differ from those of other clients; name all classes in their order (data.class_names)"
    return None


def _hash(names: tuple[str, ...] | None) -> str:
    """A hash of names: clients compare them without stating them."""
    return "" if names is None else hashlib.blake2b(json.dumps(names).encode(), digest_size=16).hexdigest()


def _checked_hash(text: Any) -> str:
    if not isinstance(text, str) or len(text) > 32:
        raise ValueError("not a hash")
    return text


def _magnitude(x: Array) -> float:
    return max(abs(float(x.min(initial=0))), abs(float(x.max(initial=0)))) or 1.0


def _sums(plain: Mapping[str, Any], shape: tuple[int, ...], count: int) -> Moments:
    """Sums from another machine over this number of examples."""
    total, squares = (np.asarray(plain[name], np.float64) for name in ("total", "squares"))
    finite = np.isfinite(total).all() and np.isfinite(squares).all()
    if total.shape != shape or squares.shape != shape or not finite or (squares < 0).any():
        raise ValueError("not sums")
    return Moments(_whole(plain["count"], count, count), total, squares)


def _whole(value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError("not a whole number within its bounds")
    return value
