"""Data and requests as they travel to workers.

Arrays of examples are opened by each worker as memory maps, if the file exists on its machine; otherwise they travel
once to each machine. What changes when data drift, the lists of examples of each client, travels once per change.
Works, tasks and cached values travel once per worker. Requests name clients by position and travel once per machine;
workers take their own shares from them.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.clients.work import Work
from coterie.data.federated import FederatedData
from coterie.federation.messages import Request
from coterie.federation.protocol import Mean
from coterie.models import Task
from coterie.models.library import from_recipe
from coterie.models.recipe import Recipe
from coterie.types import Array, Bank, ClientId

#: The arrays of `FederatedData` that have one row per example, or per token.
ARRAYS = ("x", "y", "weights", "table")

_PIECES, _PIECE = 16, 4096


@dataclass(frozen=True)
class MappedArray:
    """An array in a file that another machine may have, too.

    Attributes:
        path: The file.
        offset: Position of the array in the file, in bytes.
        dtype: Its dtype.
        shape: Its shape.
        digest: Hash of the size of the file and of pieces of it.
    """

    path: str
    offset: int
    dtype: str
    shape: tuple[int, ...]
    digest: str

    @classmethod
    def of(cls, array: Array) -> MappedArray | None:
        """Where an array is mapped from; None if it is not a memory map of a file."""
        base: Any = array
        while base is not None and not isinstance(base, np.memmap):
            base = getattr(base, "base", None)
        if base is None or base.filename is None or not array.flags.c_contiguous:
            return None
        root = base
        while isinstance(root.base, np.memmap):  # a slice of a map has the offset of the whole
            root = root.base
        offset = root.offset + array.ctypes.data - root.ctypes.data
        path = Path(base.filename)
        return cls(str(path), offset, array.dtype.str, array.shape, _digest(path))

    def opened(self) -> Array | None:
        """The array, mapped; None if this machine does not have the file, or another version of it."""
        path = Path(self.path)
        try:
            if _digest(path) != self.digest:
                return None
            return np.asarray(np.memmap(path, self.dtype, "r", self.offset, self.shape))
        except (OSError, ValueError):
            return None


def _digest(path: Path) -> str:
    """Hash of the size of a file and of pieces of it; the whole of a large file would take minutes."""
    size = path.stat().st_size
    digest = hashlib.blake2b(str(size).encode(), digest_size=16)
    with path.open("rb") as file:
        for piece in range(_PIECES):
            file.seek(piece * max(size - _PIECE, 0) // (_PIECES - 1))
            digest.update(file.read(_PIECE))
    return digest.hexdigest()


def arrays_of(data: FederatedData) -> dict[str, Array]:
    """The arrays of examples of a data set."""
    found = {name: getattr(data, name) for name in ARRAYS}
    return {name: array for name, array in found.items() if array is not None}


def without_arrays(data: FederatedData) -> FederatedData:
    """A copy of a data set without its examples: names of clients, lists of examples, transforms."""
    return _with(data, dict.fromkeys(ARRAYS))


def with_arrays(data: FederatedData, arrays: Mapping[str, Array]) -> FederatedData:
    """A copy with examples. They are not checked again, which would read all of them."""
    return _with(data, {name: arrays.get(name) for name in ARRAYS})


def _with(data: FederatedData, changes: Mapping[str, Any]) -> FederatedData:
    new = copy.copy(data)
    new.__dict__.pop("_positions", None)  # computed again when it is needed
    new.__dict__.update(changes)
    return new


@dataclass(frozen=True)
class Handle:
    """A value that a worker fetches when it needs it and does not have it.

    Attributes:
        key: Name of the value, unique in the transport.
        ref: What the pool's `put` returned.
    """

    key: str
    ref: Any


@dataclass(frozen=True)
class PackedTask:
    """A task: as a recipe, or if it has none as an object, which Ray pickles."""

    recipe: Recipe | None
    task: Task | None

    @classmethod
    def of(cls, task: Task) -> PackedTask:
        """Pack a task."""
        return cls(task.recipe, None if task.recipe is not None else task)

    def built(self) -> Task:
        """The task."""
        if self.task is not None:
            return self.task
        assert self.recipe is not None
        return from_recipe(self.recipe, allowed=[self.recipe["name"]])  # it comes from the run that this worker serves


@dataclass(frozen=True)
class PackedMean:
    """A mean that workers sum.

    Attributes:
        mean: The mean, without `by` if that is a mapping, and without `reference`, which only the server needs.
        groups: The group of each client of the request; None: the mean says it.
    """

    mean: Mean
    groups: Array | None

    @classmethod
    def of(cls, mean: Mean, clients: Sequence[ClientId]) -> PackedMean:
        """Pack a mean over the replies of some clients."""
        by = mean.by
        if by is None or isinstance(by, str):
            return cls(replace(mean, reference=None), None)
        groups = np.fromiter((by[client] for client in clients), np.int64, len(clients))
        return cls(replace(mean, by=None, reference=None), groups)

    def over(self, first: int, clients: Sequence[ClientId]) -> Mean:
        """The mean over a share of the clients, which begins at `first`."""
        if self.groups is None:
            return self.mean
        groups = self.groups[first : first + len(clients)].tolist()
        return replace(self.mean, by=dict(zip(clients, groups, strict=True)))


@dataclass(frozen=True)
class PackedRequest:
    """A request without works, tasks and names of clients.

    Attributes:
        work: The work.
        task: The task.
        clients: Position of each client among all clients; None: all clients.
        count: Number of clients.
        fields: The other fields of the request that workers need.
        cached: Name of a cached value → the value.
        after: The request that runs first.
        means: What workers sum.
    """

    work: Handle
    task: Handle
    clients: Array | None
    count: int
    fields: Mapping[str, Any]
    cached: Mapping[str, Handle]
    after: PackedRequest | None = None
    means: tuple[PackedMean, ...] = field(default=())

    def share(
        self, first: int, last: int, everyone: Sequence[ClientId], fetch: Callable[[Handle], Any], remembers: bool
    ) -> Request:
        """The request for a share of the clients.

        Args:
            first: First client of the share.
            last: Last client of the share + 1.
            everyone: All clients, sorted.
            fetch: Returns the value of a handle.
            remembers: Whether the clients' memories were sent with the share; their version is 0.
        """
        places = range(first, last) if self.clients is None else self.clients[first:last]
        clients = tuple(everyone[place] for place in places)
        fields = dict(self.fields)
        cached = {name: fetch(handle) for name, handle in self.cached.items()}
        per_client: Mapping[str, tuple[Bank | Array, Array]] = fields.pop("per_client")
        return Request(
            work=fetch(self.work),
            clients=clients,
            shared={**fields.pop("shared"), **cached},
            per_client={name: (bank, rows[first:last]) for name, (bank, rows) in per_client.items()},
            versions=dict.fromkeys(clients, 0) if remembers else {},
            after=None if self.after is None else self.after.share(first, last, everyone, fetch, remembers),
            **fields,
        )


#: Fields of a request that workers get as they are. The others only the server needs, or `PackedRequest` has them.
_FIELDS = (
    *("id", "part", "seed", "t", "settings", "per_client", "dims", "efforts", "evaluating"),
    *("clipped", "max_update_norm", "compressed", "compression", "residual"),
)


def packed(
    request: Request,
    positions: Array | None,
    work: Callable[[Work], Handle],
    task: Handle,
    value: Callable[[str, object], Handle],
    means: Sequence[Mean] = (),
) -> PackedRequest:
    """Pack a request.

    Args:
        request: The request.
        positions: Position of each of its clients among all clients; None: all clients.
        work: Returns the handle of a work.
        task: The handle of the task.
        value: Returns the handle of a cached value, given its hash.
        means: The means over the replies that workers sum.
    """
    cached = {name: value(digest, request.shared[name]) for name, (digest, _) in request.cached.items()}
    fields: dict[str, Any] = {name: getattr(request, name) for name in _FIELDS}
    fields["shared"] = {name: each for name, each in request.shared.items() if name not in cached}
    return PackedRequest(
        work=work(request.work),
        task=task,
        clients=positions,
        count=len(request.clients),
        fields=fields,
        cached=cached,
        after=None if request.after is None else packed(request.after, positions, work, task, value),
        means=tuple(PackedMean.of(mean, request.clients) for mean in means),
    )
