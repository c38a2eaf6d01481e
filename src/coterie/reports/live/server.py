"""The server of live pages: on this machine only, from its start to its end."""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
from pathlib import Path
from typing import Any

import uvicorn

from coterie.errors import SpecError
from coterie.reports.live.app import Site

HOST = "127.0.0.1"

#: Seconds for the last look at the records, and for streams to end.
_LAST_LOOK, _GRACE = 8.0, 2


class LiveServer:
    """Serves the pages of a folder on loopback.

    Attributes:
        address: Address of the first page, with its token.
    """

    def __init__(self, root: Path, port: int = 0) -> None:
        """Take the port; requests wait until `run`.

        Args:
            root: Record of a run, or folder with records; it need not exist.
            port: Port; 0: a free one.

        Raises:
            SpecError: If the port cannot be used.
        """
        self._socket = _bound(port)
        token = secrets.token_urlsafe(16)
        self.address = f"http://{HOST}:{self._socket.getsockname()[1]}/?token={token}"
        site = Site(root, token)
        config = uvicorn.Config(
            site.app,
            http="h11",
            ws="none",
            lifespan="off",
            limit_concurrency=256,
            h11_max_incomplete_event_size=16 * 1024,
            timeout_graceful_shutdown=_GRACE,
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_config=None,
        )
        self._server = _Server(config, site)

    def run(self) -> None:
        """Serve until `stop`, SIGINT or SIGTERM; the last two raise KeyboardInterrupt where Python does."""
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        finally:
            self._socket.close()

    def stop(self, *, last: bool = False) -> None:
        """End, from any thread; `last`: browsers first get the records as they are now."""
        self._server.last = last
        self._server.should_exit = True


class _Server(uvicorn.Server):  # type: ignore[misc]
    """Ends streams before it waits for connections."""

    last = False

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site

    async def shutdown(self, *args: Any, **kwargs: Any) -> None:
        try:
            await asyncio.wait_for(self._site.end(last=self.last), _LAST_LOOK)
        except TimeoutError:
            await self._site.end(last=False)
        await super().shutdown(*args, **kwargs)


def _bound(port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise SpecError(f"--port must be between 0 and 65535, got {port}")
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HOST, port))
        made.listen(128)  # an address that was printed is answered, even before the server has started
    except OSError as fault:
        made.close()
        advice = "choose another with --port, or leave it out for a free one"
        if fault.errno == errno.EADDRINUSE:
            raise SpecError(f"Port {port} is in use; {advice}") from fault
        raise SpecError(f"Port {port} cannot be used ({fault.strerror}); {advice}") from fault
    return made
