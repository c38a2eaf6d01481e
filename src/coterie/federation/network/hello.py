"""Greetings: the server says what it will ask, and the client says whether it takes part and what its data are like.

A greeting is answered by `{"facts": ...}` (see `ClientFacts`), `{"refused": reason}` or `{"waiting": reason}`, for
example until its owner has agreed. Clients that are away return by answering a greeting. Greetings travel with the
exchanges of rounds, or alone (`Greeter.exchange`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from coterie.data.description import ClientFacts
from coterie.errors import Error
from coterie.federation.network import wire
from coterie.federation.network.channel import Channel, Message
from coterie.federation.network.roster import Roster
from coterie.federation.network.wire import WireError
from coterie.types import ClientId

#: Limit of a reply to a greeting after decompression, in bytes.
MAX_BYTES = 64 << 20

#: Whether a client may join, given what it states: None, or the reason why not.
Fits = Callable[[ClientId, ClientFacts], str | None]


class Greeter:
    """Greets the clients of a roster that have not joined or are away.

    Attributes:
        content: The greeting, as plain data. It may change while the run goes on.
    """

    def __init__(self, roster: Roster, content: Mapping[str, Any], fits: Fits) -> None:
        """Create a greeter.

        Args:
            roster: The clients.
            content: The greeting.
            fits: Decides who may join.
        """
        self.content = content
        self._roster = roster
        self._fits = fits
        self._nonces: dict[ClientId, str] = {}

    def messages(self) -> dict[ClientId, Message]:
        """A greeting for each client that needs one."""
        clients = self._roster.to_greet
        if not clients:
            return {}
        common = wire.pack({**self.content, "version": wire.VERSION, "kind": "hello"})
        self._nonces = {client: secrets.token_hex(16) for client in clients}
        return {
            client: Message(common, wire.pack({"client": client, "nonce": nonce}))
            for client, nonce in self._nonces.items()
        }

    def receive(self, client: ClientId, data: bytes | None, problem: str = "") -> None:
        """Take the reply of a client: it joins, returns, or is refused with a reason."""
        nonce = self._nonces.pop(client, None)
        if nonce is None:
            return
        if data is None:
            self._roster.refuse(client, problem or "no reply to the greeting")
            return
        try:
            facts = _facts(data, nonce)
        except Error as fault:
            self._roster.refuse(client, str(fault))
            return
        reason = facts if isinstance(facts, str) else self._fits(client, facts)
        if reason is not None:
            self._roster.refuse(client, reason)
        elif isinstance(facts, ClientFacts):
            self._roster.join(client, facts)

    def exchange(self, channel: Channel, deadline: float) -> None:
        """Greet in an exchange of its own."""
        messages = self.messages()
        if messages:
            for client, data, problem in channel.exchange(messages, deadline):
                self.receive(client, data, problem)


def _facts(data: bytes, nonce: str) -> ClientFacts | str:
    """What a client states about its data, or why it does not join."""
    reply = wire.unpack(data, MAX_BYTES)
    if reply.get("version") != wire.VERSION or reply.get("nonce") != nonce:
        raise WireError("The reply answers another message, or has another version of the format")
    for word in ("refused", "waiting"):
        if word in reply:
            return f"{word}: {str(reply[word])[:200]}"
    facts = reply.get("facts")
    if not isinstance(facts, Mapping):
        raise WireError("The reply does not say what the data are like")
    return ClientFacts.from_dict(facts)
