"""`Roster`: the clients of a server. Which key is which client, who has joined, who is present.

A client is known by its key: an admission says which client id belongs to it, and the channel says which keys are
connected. Whatever a client says about itself is only about its data.

    admitted    its key may connect
    connected   the channel reaches it
    joined      it has agreed to the run, and its data fit the task
    present     joined, connected, and it has answered the last request
    away        joined, but not connected, or it has missed a deadline; it returns by answering a greeting
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from coterie.data.description import ClientFacts
from coterie.errors import TimedOut, message_text
from coterie.types import ClientId

State = Literal["admitted", "joining", "refused", "present", "away"]

#: Seconds between two looks at the connected clients while waiting.
PAUSE = 0.5


@dataclass
class Entry:
    """What the server knows about one client.

    Attributes:
        key: Fingerprint of its key.
        connected: Whether the channel reaches it.
        facts: What it stated about its data when it joined; None: it has not joined.
        answered: Whether it answered the last request or greeting.
        introduced: Whether it takes part in rounds: it was there from the start, or it was placed as a newcomer.
        problem: Why it has not joined, or is away.
        since: When its state changed last, in seconds since the epoch.
        last_seen: When it answered last; None: never.
        replies: Number of replies.
        row: The model that it is served; None: none yet.
    """

    key: str
    connected: bool = False
    facts: ClientFacts | None = None
    answered: bool = True
    introduced: bool = False
    problem: str = ""
    since: float = 0.0
    last_seen: float | None = None
    replies: int = 0
    row: int | None = None

    @property
    def state(self) -> State:
        """Its state in one word."""
        if self.facts is not None:
            return "present" if self.connected and self.answered else "away"
        return "refused" if self.connected and self.problem else "joining" if self.connected else "admitted"


#: Client id → fingerprint of its key, for all clients that may join; read again and again.
Admitted = Callable[[], Mapping[ClientId, str]]

#: Fingerprints of the keys that are connected now.
Connected = Callable[[], Sequence[str]]


class Roster:
    """The clients of a server."""

    def __init__(
        self,
        admitted: Admitted,
        connected: Connected,
        *,
        minimum: int = 1,
        wait: float = 3600.0,
        on_change: Callable[[Roster], None] | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Start without clients.

        Args:
            admitted: Which clients may join.
            connected: Which keys are connected.
            minimum: Number of clients that must be present for a round.
            wait: Seconds to wait for them.
            on_change: Called after each `refresh`, for displays and status files.
            clock: The time, in seconds since the epoch.
            sleep: Waits some seconds.
        """
        self._admitted, self._connected = admitted, connected
        self._minimum, self._wait = minimum, wait
        self._on_change, self._clock, self._sleep = on_change, clock, sleep
        self.entries: dict[ClientId, Entry] = {}
        self.greet: Callable[[], None] | None = None
        self.initial: tuple[ClientId, ...] = ()

    # ---------------------------------------------------------------------------------------------------- who is there

    def refresh(self) -> None:
        """Look at admissions and connections."""
        admitted, connected = self._admitted(), set(self._connected())
        for client, key in admitted.items():
            entry = self.entries.get(client)
            if entry is None or (entry.key != key and entry.facts is None):
                self.entries[client] = entry = Entry(key, since=self._clock())
            self._set(entry, connected=entry.key == key and key in connected)
        for client, entry in self.entries.items():
            if client not in admitted:  # revoked
                self._set(entry, connected=False)
        if self._on_change is not None:
            self._on_change(self)

    @property
    def clients(self) -> Sequence[ClientId]:
        """All clients that have joined, sorted, also those that are away."""
        return tuple(sorted(client for client, entry in self.entries.items() if entry.facts is not None))

    @property
    def present(self) -> Sequence[ClientId]:
        """Clients that can be asked, sorted."""
        return tuple(client for client in self.clients if self.entries[client].state == "present")

    @property
    def to_greet(self) -> Sequence[ClientId]:
        """Connected clients that have not joined, or that missed a deadline, sorted."""
        return tuple(
            sorted(
                client
                for client, entry in self.entries.items()
                if entry.connected and (entry.facts is None or not entry.answered)
            )
        )

    def facts(self, clients: Sequence[ClientId]) -> dict[ClientId, ClientFacts]:
        """What clients that have joined stated about their data."""
        known = {client: self.entries[client].facts for client in clients}
        return {client: facts for client, facts in known.items() if facts is not None}

    # ------------------------------------------------------------------------------------------------- what they answer

    def join(self, client: ClientId, facts: ClientFacts) -> None:
        """Record that a client has joined, or that it has returned."""
        entry = self.entries[client]
        self._set(entry, facts=facts, answered=True, problem="")
        entry.last_seen = self._clock()

    def refuse(self, client: ClientId, reason: str) -> None:
        """Record why a client cannot join, or cannot return."""
        self._set(self.entries[client], problem=_one_line(reason))

    def dismiss(self, client: ClientId, reason: str) -> None:
        """Record that a client that had joined before the run began cannot take part."""
        self._set(self.entries[client], facts=None, problem=_one_line(reason))

    def see(self, client: ClientId) -> None:
        """Record that a client has replied."""
        entry = self.entries.get(client)
        if entry is not None:
            self._set(entry, answered=True)
            entry.last_seen = self._clock()
            entry.replies += 1

    def miss(self, client: ClientId, reason: str = "missed a deadline") -> None:
        """Record that a client has not done what it was asked: it is away until it answers a greeting."""
        if client in self.entries:
            self._set(self.entries[client], answered=False, problem=reason)

    def served(self, row: Mapping[ClientId, int]) -> None:
        """Record which model each client is served."""
        for client, place in row.items():
            if client in self.entries:
                self.entries[client].row = int(place)

    # ------------------------------------------------------------------------------------------------------ in the run

    def begin(self) -> None:
        """Begin the run with the clients that are present."""
        self.initial = tuple(self.present)
        self.introduce(self.clients)

    def trainable(self) -> tuple[ClientId, ...]:
        """The clients that are present and have training examples, sorted; waits until there are enough.

        Raises:
            TimedOut: If there are not enough after the time to wait.
        """
        return self.wait_for(self._minimum)

    def wait_for(self, number: int) -> tuple[ClientId, ...]:
        """Wait until so many clients with training examples are present; returns them, sorted.

        Raises:
            TimedOut: If there are fewer after the time to wait.
        """
        end = self._clock() + self._wait
        while True:
            self.refresh()
            found = self._trainable()
            if len(found) < number and self.greet is not None and self.to_greet:
                self.greet()
                found = self._trainable()
            if len(found) >= number:
                return found
            if self._clock() >= end:
                raise TimedOut(
                    f"{len(found)} clients with training examples are present after {self._wait:g} seconds, "
                    f"{number} are needed{self._why()}"
                )
            self._sleep(PAUSE)

    def wait_for_return(self, seconds: float) -> None:
        """Wait until all clients that have joined and are still admitted are present, at most so many seconds."""
        end = self._clock() + seconds
        while True:
            self.refresh()
            if self.greet is not None and self.to_greet:
                self.greet()
            admitted = self._admitted()
            if all(client in self.present for client in self.clients if client in admitted):
                return
            if self._clock() >= end:
                return
            self._sleep(PAUSE)

    def _trainable(self) -> tuple[ClientId, ...]:
        facts = self.facts(self.present)
        return tuple(client for client in self.present if facts[client].fit)

    def newcomers(self) -> tuple[ClientId, ...]:
        """The clients that have joined since the run began and were not returned before, sorted."""
        self.refresh()
        new = tuple(client for client in self._trainable() if not self.entries[client].introduced)
        self.introduce(new)
        return new

    def introduce(self, clients: Sequence[ClientId]) -> None:
        """Record that these clients take part: they are not newcomers."""
        for client in clients:
            self.entries[client].introduced = True

    # ------------------------------------------------------------------------------------------------------- checkpoint

    def save(self) -> dict[str, Any]:
        """The clients that have joined, as plain data."""
        joined = {}
        for client in self.clients:
            entry = self.entries[client]
            assert entry.facts is not None
            joined[client] = {"key": entry.key, "facts": entry.facts.to_dict(), "introduced": entry.introduced}
        return {"joined": joined, "initial": list(self.initial)}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned; clients that had joined are away until they answer a greeting.

        That they are connected is not enough: the channel takes a client that is gone for connected for a while.
        """
        self.initial = tuple(saved["initial"])
        for client, about in saved["joined"].items():
            now = self.entries.get(client)
            entry = Entry(about["key"], since=self._clock())
            if now is not None and now.key == entry.key:
                entry = now
            facts = ClientFacts.from_dict(about["facts"])
            if entry.facts is None:
                entry.facts, entry.answered = facts, False
            entry.introduced = about["introduced"]
            self.entries[client] = entry

    def _set(self, entry: Entry, **fields: Any) -> None:
        before = entry.state
        for name, value in fields.items():
            setattr(entry, name, value)
        if entry.state != before:
            entry.since = self._clock()

    def _why(self) -> str:
        """Reasons why clients have not joined, for an error."""
        reasons = [f"{client}: {entry.problem}" for client, entry in sorted(self.entries.items()) if entry.problem]
        return f" ({'; '.join(reasons[:5])})" if reasons else ""


def _one_line(reason: str) -> str:
    """A reason, which may come from a client, as the end of a line in a log."""
    return message_text(" ".join(reason.split())[:300])
