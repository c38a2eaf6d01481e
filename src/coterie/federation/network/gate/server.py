"""The gate as a server: TLS, and limits of connections that an ASGI application does not see."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from coterie.federation.network.gate.app import create_app
from coterie.federation.network.gate.config import GateConfig

#: Ciphers of TLS 1.2 with forward secrecy and authenticated encryption; those of TLS 1.3 all have both.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


def serve(config: GateConfig) -> None:
    """Run the gate until SIGTERM or SIGINT."""
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(config),
            host=config.host,
            port=config.port,
            http=protocol_class(config),
            ws="none",
            ssl_certfile=config.certificate,
            ssl_keyfile=config.key,
            ssl_ciphers=_CIPHERS,
            h11_max_incomplete_event_size=config.max_header_bytes,
            timeout_keep_alive=max(int(config.idle_timeout), 1),
            timeout_graceful_shutdown=3,
            proxy_headers=False,  # else anyone on this machine could choose the address that rates are counted for
            server_header=False,
            access_log=False,
            log_level="warning",
        )
    )
    with asyncio.Runner(loop_factory=lambda: _Loop(config.header_timeout)) as runner:
        runner.run(server.serve())


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that limits the time of TLS handshakes: uvicorn has no setting for it, the default is 60 s."""

    def __init__(self, handshake_timeout: float) -> None:
        super().__init__()
        self._handshake_timeout = handshake_timeout

    async def create_server(self, *args: Any, **kwargs: Any) -> asyncio.Server:
        if kwargs.get("ssl") is not None:
            kwargs.setdefault("ssl_handshake_timeout", self._handshake_timeout)
        return await super().create_server(*args, **kwargs)


def protocol_class(config: GateConfig) -> type[Any]:
    """HTTP/1.1 with limits: connections, also per address, and time for the headers of a request."""
    peers: Counter[str] = Counter()

    class Limited(H11Protocol):  # type: ignore[misc]
        """A connection."""

        _timer: asyncio.TimerHandle | None = None
        _peer: str | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._peer = self.client[0] if self.client else ""
            peers[self._peer] += 1
            if peers.total() > config.max_connections or peers[self._peer] > config.max_connections_per_peer:
                transport.abort()
                return
            self._expect_headers(config.header_timeout)

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel()
            if self._peer is not None:
                peers[self._peer] -= 1
                if not peers[self._peer]:
                    del peers[self._peer]
                self._peer = None
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._cancel()  # the headers are complete; the application limits the time of the body

        def on_response_complete(self) -> None:
            self._expect_headers(config.idle_timeout + config.header_timeout)
            super().on_response_complete()

        def _expect_headers(self, seconds: float) -> None:
            self._cancel()
            self._timer = self.loop.call_later(seconds, self.transport.abort)

        def _cancel(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Limited
