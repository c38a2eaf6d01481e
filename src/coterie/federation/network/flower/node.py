"""The node of a client that was killed: Flower lets it connect again only after it was declared offline."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from coterie.federation.network.flower.internals import internals

log = logging.getLogger(__name__)

#: Seconds to wait for the server.
_TIMEOUT = 5.0


def deactivate_node(server: str, node: int, *, private_key: Path, root_certificates: Path) -> None:
    """Declare a client's own node offline.

    A SuperNode that is stopped does this itself. After one was killed, Flower takes it for online for another minute,
    and refuses the next SuperNode with the same key until then. Nothing happens if the server does not answer or does
    not know the node.

    Args:
        server: Host and port of the gate.
        node: The node.
        private_key: File with the client's private key.
        root_certificates: File with the certificate of the authority that signed the gate's certificate.
    """
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    flwr = internals()
    try:
        key = load_ssh_private_key(Path(private_key).read_bytes(), None)
        client = flwr.FleetHttpClient(
            f"https://{server}",
            interceptors=[flwr.NodeAuthHttpInterceptor(key, key.public_key())],
            verify=ssl.create_default_context(cafile=str(root_certificates)),
            timeout=_TIMEOUT,
        )
        try:
            client.DeactivateNode(flwr.DeactivateNodeRequest(node_id=node))
        finally:
            client.close()
    except Exception as fault:  # the SuperNode that is started next says what is wrong
        log.debug("The node was not declared offline: %s", fault)
