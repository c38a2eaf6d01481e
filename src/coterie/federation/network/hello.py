"""The first exchange with a client: the server says what it will ask, the client says what its data are like."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from coterie.federation.network import wire
from coterie.federation.network.channel import Channel, Message
from coterie.federation.network.wire import WireError
from coterie.types import ClientId

#: Limit of a reply to a greeting after decompression, in bytes.
MAX_BYTES = 64 << 20


def greet(
    channel: Channel, clients: Sequence[ClientId], content: Mapping[str, Any], deadline: float
) -> dict[ClientId, Mapping[str, Any]]:
    """Send a greeting to clients.

    Args:
        channel: Takes messages to clients.
        clients: The clients.
        content: The greeting, as plain data. Sites pass it to their `on_hello`.
        deadline: Seconds after which a reply is late.

    Returns:
        Client → its reply. Clients that did not reply are missing; an unreadable reply is `{"refused": reason}`.
    """
    common = wire.pack({**content, "version": wire.VERSION, "kind": "hello"})
    nonces = {client: secrets.token_hex(16) for client in clients}
    messages = {client: Message(common, wire.pack({"client": client, "nonce": nonces[client]})) for client in clients}
    replies: dict[ClientId, Mapping[str, Any]] = {}
    for client, data, problem in channel.exchange(messages, deadline):
        if client not in nonces or client in replies:
            continue
        if data is None:
            replies[client] = {"refused": problem}
            continue
        try:
            reply = wire.unpack(data, MAX_BYTES)
            if reply.get("version") != wire.VERSION or reply.get("nonce") != nonces[client]:
                raise WireError("it answers another message, or has another version of the format")
            replies[client] = {key: value for key, value in reply.items() if key not in ("version", "nonce")}
        except WireError as fault:
            replies[client] = {"refused": f"The reply cannot be read: {fault}"}
    return replies
