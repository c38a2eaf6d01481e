"""Bytes ↔ the content of Flower messages.

Large values are split: each piece is an object of its own, so that one HTTP request carries at most `PIECE` bytes and
the gate can have a small limit. Pieces of a value that several clients get are stored once by the SuperLink.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from coterie.federation.network.wire import WireError

#: Largest piece, in bytes.
PIECE = 4 << 20


def pieces(name: str, data: bytes) -> dict[str, Any]:
    """The records of one value: `name.0`, `name.1` and so on."""
    starts = range(0, max(len(data), 1), PIECE)
    return {f"{name}.{place}": ConfigRecord({"b": data[start : start + PIECE]}) for place, start in enumerate(starts)}


def content(*records: Mapping[str, Any]) -> Any:
    """The content of a Flower message with these records."""
    return RecordDict({name: record for each in records for name, record in each.items()})


def value(records: Any, name: str) -> bytes:
    """One value of the content of a Flower message.

    Raises:
        WireError: If it is missing or malformed.
    """
    parts: list[bytes] = []
    while f"{name}.{len(parts)}" in records:
        record = records[f"{name}.{len(parts)}"]
        part = record.get("b") if isinstance(record, ConfigRecord) else None
        if not isinstance(part, bytes):
            raise WireError(f"A message cannot be read: its part {name!r} is malformed")
        parts.append(part)
    if not parts:
        raise WireError(f"A message cannot be read: it has no part {name!r}")
    return parts[0] if len(parts) == 1 else b"".join(parts)
