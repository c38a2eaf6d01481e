"""Transports that change how requests and replies travel; the results of a method must not depend on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from coterie import codec
from coterie.federation.messages import ReplyBatch, Request
from coterie.federation.transport import Transport, TransportWrapper
from coterie.models import Task
from coterie.types import ClientId


class Losing(TransportWrapper):
    """A transport that loses all replies of some clients, outside of evaluation.

    Attributes:
        lost: These clients; may be changed between steps.
    """

    def __init__(self, transport: Transport, lost: set[ClientId] | None = None) -> None:
        """Lose the replies of these clients."""
        super().__init__(transport)
        self.lost = set() if lost is None else lost

    def on(self, task: Task) -> Losing:
        """Return the same transport with another task."""
        return Losing(self._transport.on(task), self.lost)

    def send(self, request: Request) -> Iterator[ReplyBatch]:
        """Send the request, and leave out the lost replies."""
        for batch in self._transport.send(request):
            places = [i for i, client in enumerate(batch.clients) if request.evaluating or client not in self.lost]
            if places:
                yield batch.take(places)


class HashedIds(TransportWrapper):
    """A transport whose client ids have fixed hashes, which decide the order of sets of clients."""

    def __init__(self, transport: Transport, *, backward: bool) -> None:
        """Wrap a transport; sets list the ids of `tiny_data` forward or backward."""
        super().__init__(transport)
        self._backward = backward

    def on(self, task: Task) -> HashedIds:
        """Return the same transport with another task."""
        return HashedIds(self._transport.on(task), backward=self._backward)

    @property
    def clients(self) -> Sequence[ClientId]:
        """Client ids, sorted."""
        return [self._hashed(client) for client in self._transport.clients]

    def send(self, request: Request) -> Iterator[ReplyBatch]:
        """Send the request with ordinary ids."""
        for batch in self._transport.send(_with_ordinary_ids(request)):
            yield dataclasses.replace(batch, clients=tuple(map(self._hashed, batch.clients)))

    def _hashed(self, client: ClientId) -> ClientId:
        return ClientId(_Backward(client) if self._backward else _Forward(client))


class _Forward(str):
    """A client id whose hash is its number."""

    def __hash__(self) -> int:
        return int(self)


class _Backward(str):
    """A client id whose hash falls as its number grows."""

    def __hash__(self) -> int:
        return 1023 - int(self)  # one less than a multiple of the sizes of hash tables: the order is exactly reversed


def _ordinary(client: ClientId) -> ClientId:
    return ClientId(str(client))


def _with_ordinary_ids(request: Request) -> Request:
    return dataclasses.replace(
        request,
        clients=tuple(map(_ordinary, request.clients)),
        cached={name: (key, frozenset(map(_ordinary, who))) for name, (key, who) in request.cached.items()},
        versions={_ordinary(client): version for client, version in request.versions.items()},
        versions_before_round={_ordinary(client): version for client, version in request.versions_before_round.items()},
        efforts={_ordinary(client): effort for client, effort in request.efforts.items()},
        after=None if request.after is None else _with_ordinary_ids(request.after),
    )


class Recoded(TransportWrapper):
    """A transport that encodes and decodes every request and reply, as a network does."""

    def __init__(self, transport: Transport) -> None:
        """Wrap a transport."""
        self._transport = transport

    def on(self, task: Task) -> Recoded:
        """Return the same transport with another task."""
        return Recoded(self._transport.on(task))

    def send(self, request: Request) -> Iterator[ReplyBatch]:
        """Send the recoded request, and recode the replies."""
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
    received = codec.decode(codec.encode(sent))
    after = None if request.after is None else _recoded(request.after)
    return dataclasses.replace(request, **received, after=after)
