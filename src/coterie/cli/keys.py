"""coterie keys init, client, renew: certificates of a federation and key pairs of its clients."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import flags
from coterie.cli.output import document, facts, note, result

if TYPE_CHECKING:
    from coterie.federation.network.certificates import Certificate
    from coterie.federation.network.keys import KeyPair


def init(
    host: Annotated[
        list[str],
        typer.Option(
            metavar="NAME|IP",
            show_default=False,
            help="Host name or IP address under which clients reach the server; repeatable.",
        ),
    ],
    folder: flags.FederationFolder = flags.FEDERATION,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """Create a federation on the server: a certificate authority (CA) and the server's certificate.

    Clients trust only servers whose certificate this CA has signed. Nothing is replaced: if the folder has a CA, this
    is an error.
    """
    from coterie.federation.network.certificates import check_hosts, create_ca, create_server_certificate

    hosts = check_hosts(host)  # first, so that a mistyped name leaves no CA behind
    ca = create_ca(folder)
    server = create_server_certificate(folder, hosts)
    if as_json:
        document({"ca": _certificate_data(ca), "server": _certificate_data(server)})
        return
    shown = facts()
    shown.add_row(str(ca.certificate), f"certificate of the CA, valid until {ca.expires:%Y-%m-%d}; clients need it")
    shown.add_row(str(ca.key), "private key of the CA; never leaves this machine, except to an encrypted backup")
    shown.add_row(str(server.certificate), f"certificate of {', '.join(hosts)}, valid until {server.expires:%Y-%m-%d}")
    shown.add_row(str(server.key), "private key of the server; never leaves this machine")
    flag = flags.folder_flag(folder)
    result(
        shown,
        "",
        f"Fingerprint of {ca.certificate.name}: {ca.fingerprint}",
        "",
        "Next:",
        f"  1. Send {ca.certificate} to every client. No other file leaves this folder.",
        "  2. On each client: coterie keys client NAME. The client keeps NAME.key and sends you NAME.pub.",
        f"  3. Let it join: coterie admit NAME.pub{flag}, and compare the fingerprint with the client.",
        f"  4. Before {server.expires:%Y-%m-%d}: coterie keys renew{flag}",
    )


def client(
    name: Annotated[
        str, typer.Argument(metavar="NAME", show_default=False, help="Name of the client: letters, digits, . _ -")
    ],
    folder: Annotated[Path, typer.Option("--folder", metavar="DIR", help="Folder for the two files.")] = Path("."),
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """Create the key pair of a client. Run this on the client's own machine.

    The private key NAME.key never leaves that machine. The server needs the public key NAME.pub. Existing keys are not
    replaced.
    """
    from coterie.federation.network.keys import create_client_key

    made = create_client_key(folder, name)
    if as_json:
        document(_key_data(name, made))
        return
    shown = facts()
    shown.add_row(str(made.private_key), "private key; never leaves this machine, and is never sent")
    shown.add_row(str(made.public_key), "public key; send it to the server")
    result(
        shown,
        "",
        f"Fingerprint: {made.fingerprint}",
        "",
        "Next:",
        f"  1. Send {made.public_key} to the server's administrator, who runs: coterie admit {made.public_key.name}",
        "  2. Tell them the fingerprint in another way, such as by telephone: it proves that the key is yours.",
        "  3. Ask for ca.crt, the certificate by which this client recognizes the server.",
    )


def renew(
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|IP",
            show_default=False,
            help="Host name or IP address of the server; repeatable; default: those of the certificate that is "
            "replaced.",
        ),
    ] = None,
    folder: flags.FederationFolder = flags.FEDERATION,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """Renew the server's certificate for a year. The CA stays the same: clients need no change.

    The server's key is kept. To replace it, for example because it was stolen, remove server.key first.
    """
    from coterie.federation.network.certificates import create_server_certificate

    made = create_server_certificate(folder, host or ())
    if as_json:
        document(_certificate_data(made))
        return
    result(f"{made.certificate}: certificate of {', '.join(made.hosts)}, valid until {made.expires:%Y-%m-%d}")
    note("A running server uses the new certificate after a restart.")


def _certificate_data(made: Certificate) -> dict[str, Any]:
    return {
        "certificate": str(made.certificate),
        "key": str(made.key),
        "fingerprint": made.fingerprint,
        "expires": made.expires.isoformat(),
        "hosts": list(made.hosts),
    }


def _key_data(name: str, made: KeyPair) -> dict[str, str]:
    return {"client": name, **{key: str(value) for key, value in asdict(made).items()}}
