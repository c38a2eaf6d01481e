"""A transport that passes every value through the codec in both directions, as the network does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from coterie import codec
from coterie.federation.messages import ReplyBatch, Request
from coterie.federation.transport import TransportWrapper
from coterie.models import Task


class Recoded(TransportWrapper):
    """Another transport behind the codec."""

    def on(self, task: Task) -> Recoded:
        """The same with another task."""
        return Recoded(self._transport.on(task))

    def send(self, request: Request) -> Iterator[ReplyBatch]:
        """Request and replies, encoded to bytes and decoded again."""
        for batch in self._transport.send(_recoded(request)):
            yield dataclasses.replace(batch, answers=codec.decode(codec.encode(dict(batch.answers))))


def _recoded(request: Request) -> Request:
    sent = {
        "settings": dict(request.settings),
        "shared": dict(request.shared),
        "per_client": dict(request.per_client),
        "versions": dict(request.versions),
        "efforts": dict(request.efforts),
        "seed": request.seed,
    }
    decoded = codec.decode(codec.encode(sent))
    after = None if request.after is None else _recoded(request.after)
    return dataclasses.replace(request, **decoded, after=after)
