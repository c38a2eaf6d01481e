"""A carrier that passes every value through the codec, both ways, as the network does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from coterie import codec
from coterie.federation.messages import ReplyBatch, Request, Transport, TransportWrapper
from coterie.models import Task


class Recoded(TransportWrapper):
    """Another carrier behind bytes."""

    def __init__(self, transport: Transport) -> None:
        """Put the codec before a carrier."""
        self._transport = transport

    def on(self, task: Task) -> Recoded:
        """The same with another task."""
        return Recoded(self._transport.on(task))

    def carry(self, order: Request) -> Iterator[ReplyBatch]:
        """The order as bytes and back, and so the replies."""
        for block in self._transport.carry(_recoded_order(order)):
            yield dataclasses.replace(block, answers=codec.decode(codec.encode(dict(block.answers))))


def _recoded_order(order: Request) -> Request:
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
