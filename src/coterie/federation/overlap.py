"""Values that travel once although two requests contain them.

Requests of an evaluation travel with the requests of the next rounds (merging.py): its first request with the next one,
its second request with the one after that, and so on. If both requests send a client the same value, such as the model
of its cluster, it travels once and is counted once, as part of the round. The simulator counts in the same way.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie import tree
from coterie.federation.messages import Request
from coterie.federation.traffic import HASH_BYTES
from coterie.types import ClientId


@dataclass
class _Value:
    """A value that a request sends.

    Attributes:
        rows: The different values that clients get, or their hashes.
        clients: The recipients, sorted.
        row: Position in `rows` for each recipient; None: 0.
        bytes: Size of one value.
    """

    rows: list[object]
    clients: tuple[ClientId, ...]
    row: np.ndarray[Any, Any] | None
    bytes: int

    def of(self, client: ClientId) -> int | None:
        """The position of the value that a client gets; None if it gets none."""
        place = bisect_left(self.clients, client)
        if place == len(self.clients) or self.clients[place] != client:
            return None
        return 0 if self.row is None else int(self.row[place])


@dataclass
class Overlap:
    """Requests of evaluations that wait for the request with which they travel.

    Attributes:
        sent: Number of requests outside of evaluations so far.
        waiting: Number of a request → values of the evaluations that travel with it.
    """

    sent: int = 0
    waiting: dict[int, list[_Value]] = field(default_factory=dict)

    def add(self, request: Request, number: int) -> None:
        """Let a request of an evaluation travel with the request of this number."""
        if number > self.sent:
            self.waiting.setdefault(number, []).extend(_values(request))

    def bytes_saved(self, request: Request) -> int:
        """Bytes that are part of the next request and of evaluations that travel with it."""
        self.sent += 1
        waiting = self.waiting.pop(self.sent, [])
        if not waiting:
            return 0
        return sum(_saved(value, list(_values(request))) for value in waiting)

    def copy(self) -> Overlap:
        """A copy that later requests do not change."""
        return Overlap(self.sent, {number: list(values) for number, values in self.waiting.items()})

    def save(self) -> dict[str, Any]:
        """The waiting requests as plain data; values are replaced by their hashes."""
        waiting = {
            str(number): [
                {
                    "rows": [_hash(row) for row in value.rows],
                    "clients": value.clients,
                    "row": value.row,
                    "bytes": value.bytes,
                }
                for value in values
            ]
            for number, values in self.waiting.items()
        }
        return {"sent": self.sent, "waiting": waiting}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned."""
        self.sent = saved["sent"]
        self.waiting = {
            int(number): [
                _Value(list(value["rows"]), tuple(value["clients"]), value["row"], value["bytes"]) for value in values
            ]
            for number, values in saved["waiting"].items()
        }


def _values(request: Request) -> Iterator[_Value]:
    """The values of a request that are sent in full."""
    for name, value in request.shared.items():
        if name not in request.cached:
            yield _Value([value], request.clients, None, tree.nbytes(value))
    for bank, row in request.per_client.values():
        used, places = np.unique(row, return_inverse=True)
        rows: list[object] = [tree.row(bank, int(each)) for each in used]
        yield _Value(rows, request.clients, places, tree.nbytes(rows[0]) if rows else 0)


def _saved(waiting: _Value, sent: list[_Value]) -> int:
    """Bytes of a waiting value that the other request sends to the same clients."""
    count = 0
    for value in sent:
        if value.bytes != waiting.bytes:
            continue
        known: dict[tuple[int, int], bool] = {}
        for place, client in enumerate(value.clients):
            one = waiting.of(client)
            if one is None:
                continue
            other = 0 if value.row is None else int(value.row[place])
            if (one, other) not in known:
                known[one, other] = _equal(waiting.rows[one], value.rows[other])
            count += known[one, other]
    return count * waiting.bytes


def _equal(one: object, other: object) -> bool:
    if isinstance(one, str):  # a hash from a checkpoint
        return one == _hash(other)
    if one is other:
        return True
    if isinstance(one, Mapping) != isinstance(other, Mapping):
        return False
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    first, second = np.asarray(one), np.asarray(other)
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()


def _hash(value: object) -> str:
    if isinstance(value, str):
        return value
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    _update(digest, value)
    return digest.hexdigest()


def _update(digest: hashlib.blake2b, value: object) -> None:
    if isinstance(value, Mapping):
        for key in sorted(value):
            digest.update(f"{key}/".encode())
            _update(digest, value[key])
        return
    array = np.ascontiguousarray(value)
    digest.update(f"{array.dtype.str}{array.shape}".encode())
    digest.update(array.data)
