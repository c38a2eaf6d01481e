"""`ClientMap`: an immutable mapping from clients to values, for the state of methods."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import Any, Generic, TypeVar

from coterie.types import ClientId

V = TypeVar("V")


class ClientMap(Mapping[ClientId, V], Generic[V]):
    """An immutable mapping client → value. `set` returns a new mapping that shares the unchanged entries.

    Entries are stored in layers of dicts, the newest first, each at least twice as large as the one before. A round
    that changes 20 of a million clients copies about 20 entries, and a lookup searches a few layers.
    """

    __slots__ = ("_layers", "_size")

    def __init__(self, items: Mapping[ClientId, V] | None = None) -> None:
        """Create a mapping with these items."""
        self._layers: tuple[dict[ClientId, V], ...] = (dict(items),) if items else ()
        self._size = len(items) if items else 0

    def set(self, items: Mapping[ClientId, V]) -> ClientMap[V]:
        """Return a new mapping with the values of these clients replaced or added."""
        if not items:
            return self
        newest = dict(items)
        layers = list(self._layers)
        new = set(newest)
        for layer in layers:
            new -= layer.keys()
        added = len(new)
        while layers and len(layers[0]) < 2 * len(newest):
            newest = {**layers.pop(0), **newest}
        result: ClientMap[V] = ClientMap()
        result._layers = (newest, *layers)
        result._size = self._size + added
        return result

    def __getitem__(self, key: ClientId) -> V:
        for layer in self._layers:
            if key in layer:
                return layer[key]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        for layer in self._layers:  # noqa: SIM110  # a loop takes half of the time of any()
            if key in layer:
                return True
        return False

    def among(self, clients: Iterable[ClientId]) -> dict[ClientId, V]:
        """The values of those of these clients that have one."""
        asked = list(clients)
        if len(self._layers) == 1 or len(asked) > self._size // 4:  # for many clients one dict is faster than layers
            merged = self._layers[0] if len(self._layers) == 1 else self.to_dict()
            return {client: merged[client] for client in asked if client in merged}
        found: dict[ClientId, V] = {}
        for client in asked:
            for layer in self._layers:
                if client in layer:
                    found[client] = layer[client]
                    break
        return found

    def to_dict(self) -> dict[ClientId, V]:
        """All entries, in the order of iteration."""
        merged: dict[ClientId, V] = {}
        for layer in self._layers:
            merged.update(layer if not merged else {key: layer[key] for key in layer if key not in merged})
        return merged

    def items(self) -> ItemsView[ClientId, V]:
        """Pairs of client and value."""
        return self.to_dict().items()

    def values(self) -> ValuesView[V]:
        """The values, in the order of iteration."""
        return self.to_dict().values()

    def __iter__(self) -> Iterator[ClientId]:
        seen: set[ClientId] = set()
        for layer in self._layers:
            yield from (key for key in layer if key not in seen)
            seen.update(layer)

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"ClientMap({dict(self)!r})"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Mapping) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]  # values may be arrays
