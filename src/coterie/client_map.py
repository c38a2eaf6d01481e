"""`ClientMap`: what a method keeps for each client, as an immutable mapping that shares what did not change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from coterie.types import ClientId

V = TypeVar("V")


class ClientMap(Mapping[ClientId, V], Generic[V]):
    """An immutable mapping client → value; `set` gives a new one at the price of what it changes.

    Layers of dicts, the newest first, each at least twice as large as the one before it: a round that changes twenty
    of a million clients copies about as many entries, and a look-up passes through a handful of layers.
    """

    __slots__ = ("_layers", "_size")

    def __init__(self, items: Mapping[ClientId, V] | None = None) -> None:
        """The mapping of these items."""
        self._layers: tuple[dict[ClientId, V], ...] = (dict(items),) if items else ()
        self._size = len(items) if items else 0

    def set(self, items: Mapping[ClientId, V]) -> ClientMap[V]:
        """This mapping with other values for these clients."""
        if not items:
            return self
        newest = dict(items)
        layers = list(self._layers)
        fresh = sum(1 for key in newest if key not in self)
        while layers and len(layers[0]) < 2 * len(newest):
            newest = {**layers.pop(0), **newest}
        result: ClientMap[V] = ClientMap()
        result._layers = (newest, *layers)
        result._size = self._size + fresh
        return result

    def __getitem__(self, key: ClientId) -> V:
        for layer in self._layers:
            if key in layer:
                return layer[key]
        raise KeyError(key)

    def __iter__(self) -> Iterator[ClientId]:
        seen: set[ClientId] = set()
        for layer in self._layers:
            yield from (key for key in layer if key not in seen)
            seen.update(layer)

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"Kept({dict(self)!r})"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Mapping) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]  # values may be arrays
