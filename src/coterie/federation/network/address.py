"""Addresses of servers, as users type them."""

from __future__ import annotations

import re
import socket

from coterie.errors import SpecError, shown

#: Default port of a server.
PORT = 9443

#: A host name or an IPv4 address; an IPv6 address in brackets; each with or without a port.
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\])(:(?P<port>[0-9]{1,5}))?")


def server_address(text: str) -> str:
    """HOST:PORT of a server; without a port the default one.

    Raises:
        SpecError: If the text is not an address.
    """
    found = _ADDRESS.fullmatch(text.strip())
    port = int(found["port"] or PORT) if found else 0
    if found is None or not 0 < port < 65536:
        raise SpecError(
            f"{shown(text)} is not the address of a server; allowed are HOST or HOST:PORT, such as "
            f"federation.example.org:{PORT}, with an IPv6 address in brackets, such as [2001:db8::1]:{PORT}"
        )
    return f"{found['host']}:{port}"


def check_port_is_free(host: str, port: int) -> None:
    """Check that a server can listen on an address.

    Raises:
        SpecError: If it cannot.
    """
    if not 0 < port < 65536:
        raise SpecError(f"--port must be between 1 and 65535, got {port}")
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, number) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of an earlier server may linger
            probe.bind(address)
    except OSError as fault:
        raise SpecError(
            f"The server cannot listen on port {port} of {host}: {fault.strerror or fault}. Choose another port "
            "(--port) or address of this machine (--host), or stop the program that uses it"
        ) from fault
