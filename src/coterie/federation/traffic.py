"""`Traffic`: an account of every byte sent, by round, direction and purpose."""

from __future__ import annotations

from typing import Any, Literal

Direction = Literal["down", "up"]

#: Scoring is the simulator's business, not the method's: counted, but outside the totals.
OUTSIDE = ("evaluate",)


class Traffic:
    """The bytes of a run: arrays as they are sent, without the framing of whichever transport carries them."""

    def __init__(self) -> None:
        """An empty account."""
        self._bytes: dict[tuple[int, str, str], int] = {}

    def add(self, t: int, direction: Direction, purpose: str, count: int) -> None:
        """Enter `count` bytes of round t."""
        if count:
            entry = (t, direction, purpose)
            self._bytes[entry] = self._bytes.get(entry, 0) + int(count)

    def total(self, direction: Direction | None = None, purpose: str | None = None, t: int | None = None) -> int:
        """Bytes of this direction, purpose and round; without a purpose, of all that count in the totals."""
        return sum(
            count
            for (when, way, what), count in self._bytes.items()
            if direction in (None, way)
            and (what == purpose if purpose is not None else what not in OUTSIDE)
            and t in (None, when)
        )

    def by_purpose(self, t: int | None = None) -> dict[str, dict[str, int]]:
        """Purpose → bytes down and up."""
        table: dict[str, dict[str, int]] = {}
        for (when, way, what), count in sorted(self._bytes.items()):
            if t in (None, when):
                row = table.setdefault(what, {"down": 0, "up": 0})
                row[way] += count
        return table

    def save(self) -> list[Any]:
        """The account as plain data."""
        return [[t, way, what, count] for (t, way, what), count in sorted(self._bytes.items())]

    def load(self, saved: list[Any]) -> None:
        """Take over an account that was saved."""
        self._bytes = {(t, way, what): count for t, way, what, count in saved}
