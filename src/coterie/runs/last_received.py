"""The model that each client last received for training. FlexCFL's published code evaluates clients with it.

It is the model of the client's cluster before the round, not the mean after it, and stays the same while the client is
not sampled. A client that never trained has the common initial model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from coterie import tree
from coterie.errors import SpecError
from coterie.methods.protocol import Placement
from coterie.types import Bank, ClientId, Params


class LastReceived:
    """Client → the model that it last received."""

    def __init__(self, first: Params) -> None:
        """Start with the common initial model for all clients."""
        self._banks: dict[int, Bank] = {0: tree.stack([first])}
        self._last: dict[ClientId, tuple[int, int]] = {}  # bank and row

    def copy(self) -> LastReceived:
        """Return a copy that later updates do not change."""
        other = copy.copy(self)
        other._last = dict(self._last)
        return other

    def update(self, bank: Bank, row: Mapping[ClientId, int]) -> None:
        """Record that clients received rows of a bank (client → row)."""
        number = max(self._banks) + 1
        self._banks[number] = bank
        self._last |= {client: (number, place) for client, place in row.items()}
        used = {0, *(each for each, _ in self._last.values())}
        self._banks = {each: kept for each, kept in self._banks.items() if each in used}

    def instead_of(self, placement: Placement, clients: Iterable[ClientId]) -> tuple[Bank, dict[ClientId, int]]:
        """Return the models that these clients last received instead of those of a placement: bank, client → row."""
        if placement.adapt is not None:
            raise SpecError(
                "run.eval_model='last_received' needs a method that serves cluster models, but in this one clients "
                "adapt their own models; use 'group'"
            )
        last = {client: self._last.get(client, (0, 0)) for client in clients}
        places = sorted({(0, 0), *last.values()})
        bank = tree.stack(tree.row(self._banks[number], place) for number, place in places)
        where = {each: row for row, each in enumerate(places)}
        return bank, {client: where[each] for client, each in last.items()}

    def save(self) -> dict[str, Any]:
        """Return plain data for a checkpoint."""
        last = {client: list(where) for client, where in self._last.items()}
        return {"banks": {str(number): bank for number, bank in self._banks.items()}, "last": last}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore saved data."""
        self._banks = {int(number): bank for number, bank in saved["banks"].items()}
        self._last = {client: (where[0], where[1]) for client, where in saved["last"].items()}
