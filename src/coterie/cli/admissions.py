"""coterie admit, revoke: which clients may join a federation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import flags
from coterie.cli.output import document, note, result

if TYPE_CHECKING:
    from coterie.federation.network.admissions import Admissions
    from coterie.federation.network.admitted import Admitted


def admit(
    key: Annotated[
        Path,
        typer.Argument(
            metavar="KEY.pub",
            show_default=False,
            help="Public key of the client, made with `coterie keys client NAME`.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", show_default=False, help="Client id; default: the name in the key."),
    ] = None,
    cluster: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            show_default=False,
            help="True cluster of the client, from 0, if it is known. Used only to evaluate the clusters that are "
            "found.",
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Admit a key that was revoked.")] = False,
    folder: flags.FederationFolder = flags.FEDERATION,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """Let a client join the federation. A running server needs no restart.

    The client is recognized by its key, not by the name that it states. Compare the fingerprint with the one that the
    client sees.
    """
    from coterie.federation.network.admissions import Admissions

    admissions = Admissions(folder)
    made = admissions.admit(key, name, cluster, again=again)
    _note_damaged(admissions)
    if as_json:
        document(entry_data(made))
        return
    result(
        f"Admitted {made.client}, {made.fingerprint}",
        "Compare the fingerprint with the client. If it differs: "
        f"coterie revoke {made.client}{flags.folder_flag(folder)}",
    )


def revoke(
    which: Annotated[
        str,
        typer.Argument(
            metavar="NAME|KEY.pub|SHA256:…",
            show_default=False,
            help="Name of the client, file of its public key, or at least 8 characters of its fingerprint.",
        ),
    ],
    folder: flags.FederationFolder = flags.FEDERATION,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """Stop a client from taking part in the federation. A running server needs no restart.

    What the client has contributed to models so far stays in them.
    """
    from coterie.federation.network.admissions import Admissions

    admissions = Admissions(folder)
    gone = admissions.revoke(which)
    _note_damaged(admissions)
    if as_json:
        document(entry_data(gone))
        return
    result(
        f"Revoked {gone.client}, {gone.fingerprint}",
        "The key is refused from now on. To admit it once more: "
        f"coterie admit KEY.pub --again{flags.folder_flag(folder)}",
    )


def entry_data(entry: Admitted) -> dict[str, Any]:
    """A client that may join, or a revoked one, for JSON."""
    return {
        "client": entry.client,
        "fingerprint": entry.fingerprint,
        "public_key": entry.public_key,
        "admitted": entry.admitted.isoformat(),
        "revoked": None if entry.revoked is None else entry.revoked.isoformat(),
        "true_cluster": entry.cluster,
    }


def _note_damaged(admissions: Admissions) -> None:
    for file, reason in admissions.damaged.items():
        note(f"{file} is ignored: {reason}")
