"""`Traffic`: counts the bytes of messages by round, direction and purpose."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from coterie import tree
from coterie.clients.schema import Schema, purpose_of, settings_dict

if TYPE_CHECKING:
    from coterie.federation.messages import ReplyBatch, Request
    from coterie.types import Bank

Direction = Literal["down", "up"]

#: One entry of a saved table: round, direction, purpose, bytes.
Entry: TypeAlias = list[int | str]

#: Purpose of evaluation traffic. It is not part of the method, so it is counted but not included in totals.
OUTSIDE = ("evaluate",)

#: Bytes of the hash of a cached value, and of a memory version.
HASH_BYTES = 16
VERSION_BYTES = 8


class Traffic:
    """The bytes of a run: arrays as they are sent, without the framing of a transport."""

    def __init__(self) -> None:
        """Start with an empty table."""
        self._rounds: dict[int, dict[tuple[str, str], int]] = {}  # round → direction and purpose → bytes

    def add(self, t: int, direction: Direction, purpose: str, count: int) -> None:
        """Add `count` bytes to round t."""
        if count:
            table = self._rounds.setdefault(t, {})
            table[direction, purpose] = table.get((direction, purpose), 0) + int(count)

    def include(self, other: Traffic) -> None:
        """Add all bytes of another table."""
        for t, entries in other._rounds.items():
            table = self._rounds.setdefault(t, {})
            for key, count in entries.items():
                table[key] = table.get(key, 0) + count

    def total(self, direction: Direction | None = None, purpose: str | None = None, t: int | None = None) -> int:
        """Total bytes of a direction, purpose and round; None: all, without evaluation."""
        return sum(
            count
            for table in self._of(t)
            for (entry_direction, entry_purpose), count in table.items()
            if direction in (None, entry_direction)
            and (entry_purpose == purpose if purpose is not None else entry_purpose not in OUTSIDE)
        )

    def by_purpose(self, t: int | None = None) -> dict[str, dict[str, int]]:
        """Purpose → bytes down and up."""
        by_purpose: dict[str, dict[str, int]] = {}
        for table in self._of(t):
            for (direction, purpose), count in sorted(table.items()):
                row = by_purpose.setdefault(purpose, {"down": 0, "up": 0})
                row[direction] += count
        return by_purpose

    def _of(self, t: int | None) -> list[dict[tuple[str, str], int]]:
        """The table of a round, or those of all rounds, in order."""
        if t is None:
            return [self._rounds[each] for each in sorted(self._rounds)]
        return [self._rounds[t]] if t in self._rounds else []

    def copy(self) -> Traffic:
        """A copy that later messages do not change."""
        other = Traffic()
        other._rounds = {t: dict(table) for t, table in self._rounds.items()}
        return other

    def save(self) -> list[Entry]:
        """The table as plain data, sorted."""
        return [
            [t, direction, purpose, count]
            for t, table in sorted(self._rounds.items())
            for (direction, purpose), count in sorted(table.items())
        ]

    def load(self, saved: list[Entry]) -> None:
        """Restore what `save` returned."""
        self._rounds = {}
        for t, direction, purpose, count in cast("list[tuple[int, Direction, str, int]]", saved):
            self.add(t, direction, purpose, count)

    def count_request(self, request: Request) -> None:
        """Add the bytes of a request to all its clients."""
        for step in request.steps:
            self._count_step(step)

    def _count_step(self, request: Request) -> None:
        t, clients = request.t, len(request.clients)
        control = "evaluate" if request.evaluating else "control"
        for name, schema in request.work.takes.items():
            purpose = _purpose(schema, request)
            if name in request.settings:
                self.add(t, "down", purpose, clients * len(_settings_bytes(request.settings[name])))
            elif name in request.cached:
                attached = request.cached[name][1].intersection(request.clients)
                self.add(t, "down", purpose, len(attached) * _nbytes(request.shared[name]))
                self.add(t, "down", control, clients * HASH_BYTES)
            elif name in request.shared:
                self.add(t, "down", purpose, clients * _nbytes(request.shared[name]))
            elif name in request.per_client:
                bank, _ = request.per_client[name]
                self.add(t, "down", purpose, clients * (_nbytes(bank) // tree.rows(bank)))
        self.add(t, "down", control, len(request.versions) * VERSION_BYTES)

    def count_replies(self, request: Request, batch: ReplyBatch) -> None:
        """Add the bytes of replies; of compressed answers what is sent instead of them."""
        gives = request.work.gives
        if batch.summed is not None:
            for purpose, count in batch.summed.up_bytes.items():
                self.add(request.t, "up", purpose, count)
            return
        for name, value in batch.answers.items():
            if name in gives:
                compressed = name in request.compressed
                count = request.compression.nbytes(cast("Bank", value)) if compressed else _nbytes(value)
                self.add(request.t, "up", _purpose(gives[name], request), count)


def _purpose(schema: Schema, request: Request) -> str:
    return "evaluate" if request.evaluating else purpose_of(schema, request.work.purpose)


def _nbytes(value: object) -> int:
    return sum(_nbytes(item) for item in value) if isinstance(value, list) else tree.nbytes(value)


def _settings_bytes(settings: object) -> bytes:
    assert dataclasses.is_dataclass(settings)
    assert not isinstance(settings, type)
    sent = settings_dict(settings)
    plain = {name: value for name, value in dataclasses.asdict(settings).items() if name in sent}
    return json.dumps(plain, separators=(",", ":")).encode()
