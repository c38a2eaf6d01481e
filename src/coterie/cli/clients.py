"""coterie clients: which clients may join a federation, and which are present."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from coterie.cli import flags
from coterie.cli.admissions import entry_data
from coterie.cli.output import document, note, result, table
from coterie.errors import message_text

if TYPE_CHECKING:
    from rich.table import Table

    from coterie.federation.network.presence import Presence
    from coterie.types import ClientId

#: Characters of a fingerprint in the table, which are enough for `coterie revoke`.
_FINGERPRINT = len("SHA256:") + 8


def clients(
    folder: flags.FederationFolder = flags.FEDERATION,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """List the clients that may join, with their state if a server is running.

    States: present, away (it does not reply), joining (its data are being checked), refused (with the reason). The
    number of examples is stated by the client; the cluster is the one that it is assigned to now.
    """
    from coterie.errors import FederationError
    from coterie.federation.network.admissions import Admissions
    from coterie.federation.network.presence import read_presence

    admissions = Admissions(folder)
    admitted = admissions.clients()
    presence, problem = None, ""
    try:
        presence = read_presence(folder)
    except FederationError as fault:
        problem = str(fault)
    entries = {client: entry_data(entry) for client, entry in admitted.items()}
    for client in presence.clients if presence else ():
        entries.setdefault(client, {"client": client})  # refused: its key is not admitted, or was revoked
    running = presence is not None and presence.is_running()
    rows = [{**_EMPTY, **entry, **_status(client, presence, running=running)} for client, entry in entries.items()]
    damaged = {str(file): reason for file, reason in admissions.damaged.items()}
    if as_json:
        document({"server": _server(presence, running=running), "clients": rows, "damaged": damaged})
    for text in (*(f"{file} is ignored: {reason}" for file, reason in damaged.items()), problem):
        if text:
            note(text)
    if as_json:
        return
    if rows:
        result(_table(rows))
        result(*(f"{row['client']} is {row['state']}: {message_text(row['reason'])}" for row in rows if row["reason"]))
    else:
        result(f"No client is admitted in {folder}. To admit one: coterie admit KEY.pub{flags.folder_flag(folder)}")
    result(_server_text(presence, running=running))


_EMPTY: dict[str, Any] = dict.fromkeys(
    ("client", "fingerprint", "public_key", "admitted", "revoked", "true_cluster", "state", "since", "last_seen")
)


def _status(client: ClientId, presence: Presence | None, *, running: bool) -> dict[str, Any]:
    """State of a client for JSON; without a server, only what stays true: when it was last seen, its examples."""
    found = presence.clients.get(client) if presence else None
    if found is None:
        return {
            "state": "not seen" if running else None,
            "answered": 0,
            "examples": None,
            "cluster": None,
            "reason": "",
        }
    return {
        "state": found.state if running else None,
        "since": found.since.isoformat() if running else None,
        "last_seen": None if found.last_seen is None else found.last_seen.isoformat(),
        "answered": found.answered,
        "examples": found.examples,
        "cluster": found.cluster,
        "reason": found.reason if running else "",
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    names = ("client", "key", "admitted on", "state", "since", "last seen", "examples", "cluster")
    shown = table(*names, left=6)
    for row in rows:
        fingerprint = row["fingerprint"]
        shown.add_row(
            message_text(row["client"]),
            "not admitted" if fingerprint is None else f"{fingerprint[:_FINGERPRINT]}…",
            "–" if row["admitted"] is None else row["admitted"][:10],
            row["state"] or "–",
            _ago(row["since"]),
            _ago(row["last_seen"]),
            *("–" if row[key] is None else f"{row[key]:,}" for key in ("examples", "cluster")),
        )
    return shown


def _server(presence: Presence | None, *, running: bool) -> dict[str, Any] | None:
    if presence is None:
        return None
    times = {"started": presence.started.isoformat(), "written": presence.written.isoformat()}
    return {"running": running, "run": presence.run, **times}


def _server_text(presence: Presence | None, *, running: bool) -> str:
    if presence is None:
        return "No server is running."
    if not running:
        return f"No server is running; the last one, of {presence.run}, ended {_ago(presence.written.isoformat())}."
    return f"The server of {presence.run} is running; it started {_ago(presence.started.isoformat())}."


def _ago(time: str | None) -> str:
    """How long ago a time was, such as "5 min ago"."""
    if time is None:
        return "–"
    seconds = max(0, int((datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()))
    for unit, length in (("day", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}{'s' if unit == 'day' else ''} ago"
    return f"{seconds} s ago"
