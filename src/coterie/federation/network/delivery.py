"""The end of a run: each client gets the model that it is served."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coterie.federation.network import wire
from coterie.federation.network.channel import Channel, Message
from coterie.federation.network.wire import WireError
from coterie.types import ClientId, Params

#: Limit of a confirmation after decompression, in bytes.
_MAX_BYTES = 1 << 16


@dataclass(frozen=True)
class Delivered:
    """A model that a client receives.

    Attributes:
        run: Id of the run.
        task: Recipe of the task.
        about: Method, data, rounds and the like, for its description.
        cluster: The cluster of the client; None: it has none, and the model is the fallback model.
        params: The parameters.
    """

    run: str
    task: Mapping[str, Any]
    about: Mapping[str, Any]
    cluster: int | None
    params: Params


def deliver(
    channel: Channel,
    run: str,
    task: Mapping[str, Any],
    about: Mapping[str, Any],
    models: Mapping[ClientId, tuple[int | None, Params]],
    deadline: float,
) -> tuple[ClientId, ...]:
    """Send each client its model.

    Args:
        channel: Reaches the clients.
        run: Id of the run.
        task: Recipe of the task.
        about: Further plain data for the description of the model.
        models: Client → its cluster, or None, and its model.
        deadline: Seconds after which a confirmation is late.

    Returns:
        The clients that have confirmed it, sorted.
    """
    common = wire.pack({"version": wire.VERSION, "kind": "model", "run": run, "task": task, "about": dict(about)})
    nonces = {client: secrets.token_hex(16) for client in models}
    messages = {
        client: Message(
            common, wire.pack({"client": client, "nonce": nonces[client], "cluster": cluster, "params": params})
        )
        for client, (cluster, params) in models.items()
    }
    confirmed = set()
    for client, reply, _ in channel.exchange(messages, deadline):
        if reply is None or client not in nonces:
            continue
        try:
            if wire.unpack(reply, _MAX_BYTES).get("nonce") == nonces[client]:
                confirmed.add(client)
        except WireError:
            continue
    return tuple(sorted(confirmed))


def delivered(common: Mapping[str, Any], own: Mapping[str, Any]) -> Delivered:
    """The client's half: the model in a message. It is checked by the caller against the task."""
    cluster = own["cluster"]
    return Delivered(
        str(common["run"]),
        dict(common["task"]),
        dict(common["about"]),
        None if cluster is None else int(cluster),
        own["params"],
    )
