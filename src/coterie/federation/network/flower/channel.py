"""`FlowerChannel`: a `Channel` over Flower, with its public interface only."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from flwr.app import Message as FlowerMessage

from coterie.errors import FederationError, shown
from coterie.federation.network.channel import Delivery, Message
from coterie.federation.network.flower.content import content, pieces, value
from coterie.federation.network.flower.nodes import Grid
from coterie.federation.network.wire import WireError
from coterie.types import ClientId

#: Seconds by which a message outlives its deadline, so that the deadline is ours to keep.
_GRACE = 5.0

#: Largest number of threads that wait for replies.
_THREADS = 16


class FlowerChannel:
    """Reaches clients through a Flower grid.

    Flower's own `send_and_receive` waits three seconds between two looks. And `pull_messages` waits, for up to three
    minutes, for a reply whose sender has not uploaded all of it. So each reply is pulled by a call of its own, in
    threads: a client that stops in the middle of a reply delays no other, and no deadline.
    """

    def __init__(
        self,
        grid: Grid,
        nodes_of: Callable[[Collection[ClientId]], Mapping[ClientId, int]],
        *,
        message_type: str = "train",
        pause: float = 0.2,
    ) -> None:
        """Reach the clients of a grid.

        Args:
            grid: The grid of the run.
            nodes_of: Clients → node of each client that is connected; see `Nodes.of`.
            message_type: Flower's type of the messages.
            pause: Seconds between two looks for the reply of a client.
        """
        self._grid = grid
        self._nodes_of = nodes_of
        self._message_type = message_type
        self._pause = pause
        self._late: dict[str, float] = {}  # id of a message without a reply → when it expires

    def exchange(self, messages: Mapping[ClientId, Message], deadline: float) -> Iterator[Delivery]:
        """Send each client its message and yield what comes back; see `Channel`.

        Raises:
            FederationError: If the SuperLink does not answer.
        """
        started = time.monotonic()
        nodes = self._nodes_of(tuple(messages))
        sent = self._push({client: messages[client] for client in messages if client in nodes}, nodes, deadline)
        waiting = dict(sent)  # id → client; those not yet yielded
        found: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        closed = threading.Event()
        try:
            reached = set(sent.values())
            yield from [Delivery(client, None, "not connected") for client in messages if client not in reached]
            self._start_pulling([*sent, *self._still_late()], found, closed)
            while waiting:
                try:
                    key, reply = found.get(timeout=max(started + deadline - time.monotonic(), 0))
                except queue.Empty:
                    return
                if isinstance(reply, Exception):
                    raise FederationError(f"The SuperLink does not answer: {shown(reply)}") from reply
                self._late.pop(key, None)
                client = waiting.pop(key, None)
                if client is not None:  # else: the late reply to an earlier exchange
                    yield _delivery(client, nodes[client], key, reply)
        finally:
            closed.set()
            self._late.update(dict.fromkeys(waiting, started + deadline + _GRACE))

    def _push(
        self, messages: Mapping[ClientId, Message], nodes: Mapping[ClientId, int], deadline: float
    ) -> dict[str, ClientId]:
        """Send messages; returns message id → client of those whose node is there."""
        common: dict[int, dict[str, Any]] = {}  # id of the bytes → their records, made once
        out = []
        for client, message in messages.items():
            shared = common.setdefault(id(message.common), {})
            if not shared:
                shared.update(pieces("common", message.common))
            records = content(shared, pieces("own", message.own))
            out.append(FlowerMessage(records, nodes[client], self._message_type, ttl=deadline + _GRACE))
        if not out:
            return {}
        try:
            keys = list(self._grid.push_messages(out))
        except Exception as fault:
            raise FederationError(f"The SuperLink does not answer: {shown(fault)}") from fault
        return {key: client for key, client in zip(keys, messages, strict=False) if key}

    def _still_late(self) -> list[str]:
        """Messages of earlier exchanges whose reply may still come: it is pulled too, so that Flower can delete it."""
        now = time.monotonic()
        self._late = {key: expires for key, expires in self._late.items() if expires > now}
        return list(self._late)

    def _start_pulling(
        self, keys: list[str], found: queue.SimpleQueue[tuple[str, Any]], closed: threading.Event
    ) -> None:
        """Start threads that look for replies until the exchange is closed."""
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for key in keys:
            waiting.put(key)

        def pull() -> None:
            while not closed.is_set():
                try:
                    key = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    replies = list(self._grid.pull_messages([key]))
                except Exception as fault:
                    found.put((key, fault))
                    return
                if replies:
                    found.put((key, replies[0]))
                else:
                    waiting.put(key)
                    closed.wait(self._pause)

        for _ in range(min(len(keys), _THREADS)):
            threading.Thread(target=pull, name="replies", daemon=True).start()


def _delivery(client: ClientId, node: int, key: str, reply: Any) -> Delivery:
    """What a reply says. Its sender is checked; error replies come from Flower itself."""
    if reply.metadata.reply_to_message_id != key:
        return Delivery(client, None, "answers another message")
    if reply.has_error():
        return Delivery(client, None, f"error {reply.error.code}: {_short(reply.error.reason)}")
    if reply.metadata.src_node_id != node:
        return Delivery(client, None, "comes from another node")
    try:
        return Delivery(client, value(reply.content, "reply"))
    except WireError as fault:
        return Delivery(client, None, str(fault))


def _short(reason: object) -> str:
    """The beginning of a text from another machine, in printable characters."""
    return "".join(each if each.isprintable() else " " for each in str(reason)[:200])
