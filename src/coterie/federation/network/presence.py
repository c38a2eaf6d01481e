"""`Presence`: the clients of a running server, in the file `clients.json` of its federation's folder.

The server writes the file at least every `interval` seconds; other processes read it. If the file is older than three
intervals, the server is not running.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args

from coterie.errors import FederationError
from coterie.federation.network import files
from coterie.types import ClientId

FILE = "clients.json"

#: joining: connected, its data are being checked; refused: it may not take part, with a reason.
State = Literal["present", "away", "joining", "refused"]

_VERSION = 1


@dataclass(frozen=True)
class ClientStatus:
    """A client, as its server sees it.

    Attributes:
        state: Whether it is present.
        since: Since when.
        last_seen: When it last sent something; None: never.
        answered: Number of requests that it answered.
        examples: Number of its training examples, as it states.
        cluster: The cluster that it is assigned to now: the row of its model; None: none yet.
        reason: Why it is refused or away.
    """

    state: State
    since: datetime
    last_seen: datetime | None = None
    answered: int = 0
    examples: int | None = None
    cluster: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Presence:
    """The clients of a server.

    Attributes:
        run: The run, such as the folder of its record.
        started: When the server started.
        written: When this was written.
        interval: Seconds after which it is written again, or sooner.
        clients: Client → status. A key that was not admitted has its fingerprint in place of a client id.
        stopped: Whether the server has ended.
    """

    run: str
    started: datetime
    written: datetime
    interval: float = 10.0
    clients: Mapping[ClientId, ClientStatus] = field(default_factory=dict)
    stopped: bool = False

    def is_running(self, now: datetime | None = None) -> bool:
        """Whether the server was running at this time; None: now."""
        age = (now or datetime.now(UTC)) - self.written
        return not self.stopped and age <= timedelta(seconds=3 * self.interval)


def write_presence(folder: Path, presence: Presence) -> None:
    """Replace the file atomically.

    Raises:
        SpecError: If it cannot be written.
    """
    content = {"version": _VERSION, **asdict(presence)}
    text = json.dumps(content, default=_time_text, indent=1, ensure_ascii=False)
    # Not forced to the disk: after a power failure there is no server whose state could be read.
    files.write_over(folder / FILE, f"{text}\n".encode(), files.PUBLIC, sync=False)


def read_presence(folder: Path) -> Presence | None:
    """Read the file; None if there is none.

    Raises:
        FederationError: If it is damaged.
    """
    file = folder / FILE
    try:
        content = json.loads(file.read_bytes())
        if content.pop("version") != _VERSION:
            raise ValueError("it was written by another version of Coterie")
        return _decoded(content)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise FederationError(f"{file} cannot be read: {fault.strerror or fault}") from fault
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        raise FederationError(
            f"{file} is damaged: {fault}. A running server writes it again; without a server, remove it"
        ) from fault


def _decoded(content: dict[str, Any]) -> Presence:
    clients = {ClientId(client): _status(given) for client, given in content.pop("clients").items()}
    presence = Presence(
        **content | {"started": _time(content["started"]), "written": _time(content["written"]), "clients": clients}
    )
    timedelta(seconds=3 * presence.interval)  # raises if it is not a number
    return presence


def _status(given: dict[str, Any]) -> ClientStatus:
    if given["state"] not in get_args(State):
        raise ValueError(f"the state of a client is {given['state']!r}")
    seen = given["last_seen"]
    return ClientStatus(**given | {"since": _time(given["since"]), "last_seen": None if seen is None else _time(seen)})


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return time


def _time_text(value: object) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"{type(value).__name__} cannot be written as JSON")
    return value.isoformat(timespec="seconds")
