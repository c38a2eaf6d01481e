"""The proxy: which requests are passed to the SuperLink, and how."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from coterie.federation.network.gate.config import GateConfig
from coterie.federation.network.gate.keys import PUBLIC_KEY, AllowedKeys, Refused
from coterie.federation.network.gate.limits import InFlight, Rate

#: The calls of the Fleet API that a SuperNode with a key needs. It does not register itself.
CALLS = frozenset(
    {
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "pull-object",
        "push-object",
        "confirm-message-received",
        "get-run",
        "get-fab",
    }
)

#: Seconds for which it is remembered whether the SuperLink answers.
_REMEMBER_HEALTH = 2.0


def create_app(config: GateConfig, upstream: httpx.AsyncClient | None = None) -> Any:
    """The proxy as an ASGI application.

    Args:
        config: The settings.
        upstream: Client of the SuperLink; None: one according to the settings.
    """
    proxy = _Proxy(config, upstream if upstream is not None else _client(config))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with proxy.upstream:
            yield

    app = Starlette(
        routes=[
            Route("/health", proxy.health, methods=["GET"]),
            Route("/v1/fleet/{call}", proxy.fleet, methods=["POST"]),
        ],
        exception_handlers={Refused: _refused, 404: _not_found, 405: _not_found},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return _with_write_timeout(app, config.idle_timeout)


class _Proxy:
    def __init__(self, config: GateConfig, upstream: httpx.AsyncClient) -> None:
        self.config, self.upstream = config, upstream
        self._keys = AllowedKeys(Path(config.allowed_keys))
        self._peers = Rate(config.requests_per_second_per_peer, config.burst)
        self._rates = Rate(config.requests_per_second, config.burst)
        self._in_flight = InFlight(config.max_requests, config.max_bytes_in_flight, config.idle_timeout)
        self._healthy, self._checked = False, float("-inf")

    async def health(self, request: Request) -> Response:
        """Whether the SuperLink answers; for a signed request, also whether its key is admitted."""
        self._peers.check(_peer(request))
        content: dict[str, object] = {"ok": True, "superlink": await self._upstream_answers()}
        if PUBLIC_KEY in request.headers:
            try:
                self._keys.check(request.headers)
                content |= {"admitted": True, "about": json.loads(self.config.about)}
            except Refused as refused:
                content |= {"admitted": False, "reason": refused.reason}
        return JSONResponse(content)

    async def fleet(self, request: Request) -> Response:
        """Pass a request on. The order matters: what is cheap and needs no body is checked first."""
        self._peers.check(_peer(request))
        call = request.path_params["call"]
        if call not in CALLS:
            return _not_found(request, None)
        self._rates.check(self._keys.check(request.headers))
        length = request.headers.get("content-length")
        limit = self.config.max_body_bytes
        if length is not None and not length.isdecimal():
            raise Refused(400, "The length of the request is not a number")
        if length is not None and int(length) > limit:
            raise Refused(413, f"The request is larger than {limit} bytes")
        # Without a length the body may have any size up to the limit.
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._in_flight.room(limit if length is None else int(length)))
            response = await self._send(call, request, length)
            stack.push_async_callback(response.aclose)
            later = stack.pop_all()  # the room is held until the response has been sent
        return _Streamed(response, later)

    async def _send(self, call: str, request: Request, length: str | None) -> httpx.Response:
        # Of a repeated header the first is passed on, which is also the one that was checked.
        headers = {name: request.headers[name] for name in request.headers if _passes(name)}
        headers["accept-encoding"] = "identity"
        if length is not None:
            headers["content-length"] = length
        passed = self.upstream.build_request("POST", f"/v1/fleet/{call}", headers=headers, content=self._body(request))
        try:
            return await self.upstream.send(passed, stream=True)
        except (httpx.HTTPError, ClientDisconnect) as fault:
            raise Refused(502, "The SuperLink does not answer") from fault

    async def _body(self, request: Request) -> AsyncIterator[bytes]:
        """The body, piece by piece, within its limits."""
        end = time.monotonic() + self.config.body_timeout
        total, stream = 0, request.stream()
        while True:
            try:
                async with asyncio.timeout(min(self.config.idle_timeout, end - time.monotonic())):
                    piece = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError as fault:
                raise Refused(408, "The request is too slow") from fault
            total += len(piece)
            if total > self.config.max_body_bytes:
                raise Refused(413, f"The request is larger than {self.config.max_body_bytes} bytes")
            yield piece

    async def _upstream_answers(self) -> bool:
        """Whether the SuperLink answers; looked up at most every two seconds, however often strangers ask."""
        now = time.monotonic()
        if now - self._checked > _REMEMBER_HEALTH:
            self._checked = now
            try:
                self._healthy = (await self.upstream.get("/health", timeout=2.0)).status_code == 200
            except httpx.HTTPError:
                self._healthy = False
        return self._healthy


class _Streamed(StreamingResponse):  # type: ignore[misc]
    """The SuperLink's response, passed on as it comes."""

    def __init__(self, response: httpx.Response, held: AsyncExitStack) -> None:
        headers = {name: text for name, text in response.headers.items() if _passes(name) or name == "content-length"}
        super().__init__(response.aiter_raw(), response.status_code, headers)
        self._held = held

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async with self._held:
            await super().__call__(scope, receive, send)


def _passes(header: str) -> bool:
    """Whether a header is passed on: those of Flower, and the type of the content."""
    return header.startswith("flwr-") or header in ("content-type", "accept")


def _peer(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _refused(_: Request, refused: Exception) -> Response:
    assert isinstance(refused, Refused)
    # The rest of the body is not read, so the connection cannot be used again.
    return PlainTextResponse(refused.reason + "\n", refused.status, {"connection": "close"})


def _not_found(_: Request, __: Exception | None) -> Response:
    return PlainTextResponse("Not found\n", 404, {"connection": "close"})


def _client(config: GateConfig) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=f"https://{config.upstream}",
        verify=ssl.create_default_context(cafile=config.upstream_certificate),
        timeout=httpx.Timeout(config.upstream_timeout, pool=config.idle_timeout),
        limits=httpx.Limits(max_connections=config.max_requests + 1),
        trust_env=False,  # no proxy to a process on this machine
    )


def _with_write_timeout(app: Any, seconds: float) -> Any:
    """Limit the time that a client takes to accept a piece of a response."""

    async def limited(scope: Any, receive: Any, send: Callable[[Any], Any]) -> None:
        async def send_in_time(message: Any) -> None:
            async with asyncio.timeout(seconds):
                await send(message)

        await app(scope, receive, send_in_time if scope["type"] == "http" else send)

    return limited
