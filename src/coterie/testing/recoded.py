"""A carrier that passes every value through the codec, both ways, as the network does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from coterie import codec
from coterie.federation.order import Block, Carrier, Order
from coterie.models import Task
from coterie.types import ClientId


class Recoded:
    """Another carrier behind bytes."""

    def __init__(self, carrier: Carrier) -> None:
        """Put the codec before a carrier."""
        self._carrier = carrier

    @property
    def clients(self) -> Sequence[ClientId]:
        """All clients, sorted."""
        return self._carrier.clients

    @property
    def task(self) -> Task:
        """What they learn."""
        return self._carrier.task

    def on(self, task: Task) -> Recoded:
        """The same with another task."""
        return Recoded(self._carrier.on(task))

    def move(self, data: Any) -> None:
        """Give the clients other examples."""
        self._carrier.move(data)

    def save(self) -> Any:
        """What the clients keep."""
        return self._carrier.save()

    def load(self, saved: Any) -> None:
        """Take over what was saved."""
        self._carrier.load(saved)

    def carry(self, order: Order) -> Iterator[Block]:
        """The order as bytes and back, and so the replies."""
        for block in self._carrier.carry(_recoded_order(order)):
            yield dataclasses.replace(block, answers=codec.decode(codec.encode(dict(block.answers))))


def _recoded_order(order: Order) -> Order:
    sent = {
        "settings": dict(order.settings),
        "shared": dict(order.shared),
        "rows": dict(order.rows),
        "versions": dict(order.versions),
        "efforts": dict(order.efforts),
        "seed": order.seed,
    }
    got = codec.decode(codec.encode(sent))
    after = None if order.after is None else _recoded_order(order.after)
    return dataclasses.replace(order, **got, after=after)
