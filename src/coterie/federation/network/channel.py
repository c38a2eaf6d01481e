"""`Channel`: takes messages from the server to clients and brings their replies back, as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from coterie.types import ClientId


@dataclass(frozen=True)
class Message:
    """What the server sends to one client.

    Attributes:
        common: The part that several clients get; the same object for all of them, so that it is encoded once.
        own: The part for this client alone.
    """

    common: bytes
    own: bytes


class Delivery(NamedTuple):
    """What came back from one client.

    Attributes:
        client: The client, identified by its key, not by what the reply says.
        reply: Its reply; None if there is none.
        problem: Why there is no reply; empty if there is one.
    """

    client: ClientId
    reply: bytes | None
    problem: str = ""


class Channel(Protocol):
    """Reaches clients."""

    def exchange(self, messages: Mapping[ClientId, Message], deadline: float) -> Iterator[Delivery]:
        """Send each client its message and yield what comes back, in any order.

        Clients that cannot be reached are yielded at once, with the reason; clients that do not reply within `deadline`
        seconds are left out. Late replies to earlier exchanges are dropped.
        """


class InProcessChannel:
    """Clients in this process, for tests: client id → the function that answers its messages."""

    def __init__(self, sites: Mapping[ClientId, Callable[[Message], bytes]]) -> None:
        """Reach these clients."""
        self.sites = dict(sites)

    def exchange(self, messages: Mapping[ClientId, Message], deadline: float) -> Iterator[Delivery]:
        """Answer in reverse order: a channel promises no order."""
        for client in reversed(list(messages)):
            if client not in self.sites:
                yield Delivery(client, None, "not connected")
            else:
                yield Delivery(client, self.sites[client](messages[client]))
