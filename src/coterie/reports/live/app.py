"""The pages and streams over HTTP. Requests need the token and the name of this machine as host.

/                    the list of runs; the page of the run, if the watched folder is the record of one
/events              stream of the list
/run/ID              the page of a run
/run/ID/events       stream of a run
"""

from __future__ import annotations

import asyncio
import hmac
from collections import OrderedDict
from pathlib import Path
from urllib.parse import parse_qs, quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from coterie.reports.live.channel import Channel
from coterie.reports.live.feeds import ListFeed, RunFeed
from coterie.reports.live.following import Directory

#: Names of this machine in an address. Another name means that a foreign page had it resolved to this machine.
_HOSTS = ("127.0.0.1", "localhost", "[::1]")

#: Streams at the same time, and pages of runs that are kept in memory.
MAX_STREAMS, MAX_PAGES = 64, 8

_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Site:
    """The pages of a folder, and who follows them."""

    def __init__(self, root: Path, token: str) -> None:
        """Prepare the pages.

        Args:
            root: Record of a run, or folder with records; it need not exist.
            token: Secret part of the address.
        """
        self._token = quote(token, safe="")
        self._directory = Directory(root)
        self._list = ListFeed(self._directory, self._address("/events"))
        self._list_channel = Channel(self._list)
        self._runs: OrderedDict[str, tuple[RunFeed, Channel]] = OrderedDict()
        routes = [
            Route("/", self._home),
            Route("/events", self._list_events),
            Route("/run/{key}", self._run),
            Route("/run/{key}/events", self._run_events),
        ]
        self.app: ASGIApp = Guard(Starlette(routes=routes), token)

    async def end(self, *, last: bool) -> None:
        """End all streams; `last`: after a last look at the records."""
        await asyncio.gather(*(each.end(last=last) for each in self._channels()))

    def _channels(self) -> list[Channel]:
        return [self._list_channel, *(channel for _, channel in self._runs.values())]

    def _address(self, path: str) -> str:
        return f"{path}?token={self._token}"

    async def _home(self, request: Request) -> Response:
        if (key := await asyncio.to_thread(self._directory.only)) is not None:
            return await self._page_of(key)
        return _page(await asyncio.to_thread(self._list.page))

    async def _run(self, request: Request) -> Response:
        return await self._page_of(request.path_params["key"])

    async def _page_of(self, key: str) -> Response:
        found = await self._feed(key)
        return _no_run() if found is None else _page(await asyncio.to_thread(found[0].page))

    async def _list_events(self, request: Request) -> Response:
        return self._stream(self._list_channel)

    async def _run_events(self, request: Request) -> Response:
        found = await self._feed(request.path_params["key"])
        return _no_run() if found is None else self._stream(found[1])

    async def _feed(self, key: str) -> tuple[RunFeed, Channel] | None:
        """The feed of a run; feeds without followers are dropped if there are many."""
        if key not in self._runs:
            follower = await asyncio.to_thread(self._directory.get, key)
            if follower is None:
                return None
            back = None if self._directory.only() == key else self._address("/")
            feed = RunFeed(follower, self._address(f"/run/{key}/events"), back)
            self._runs.setdefault(key, (feed, Channel(feed)))
        self._runs.move_to_end(key)
        for other in [each for each, (_, channel) in self._runs.items() if not channel.listeners and each != key]:
            if len(self._runs) > MAX_PAGES:
                del self._runs[other]
        return self._runs[key]

    def _stream(self, channel: Channel) -> Response:
        if sum(each.listeners for each in self._channels()) >= MAX_STREAMS:
            return PlainTextResponse("Too many pages are open; close some of them.", 503, _HEADERS)
        return StreamingResponse(channel.events(), media_type="text/event-stream", headers=_HEADERS)


class Guard:
    """Refuses requests without the token, with another host, or with another method than GET."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        """Guard an application.

        Args:
            app: The application.
            token: The secret that `token` in the address must be.
        """
        self._app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        refused = self._refused(scope)
        await (self._app if refused is None else refused)(scope, receive, send)

    def _refused(self, scope: Scope) -> Response | None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or _without_port(hosts[0]) not in _HOSTS:
            return PlainTextResponse("This server answers to 127.0.0.1 and localhost only.", 403, _HEADERS)
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
        if len(given) != 1 or not hmac.compare_digest(given[0].encode("utf-8", "replace"), self._token):
            text = "The address lacks its token. Use the address that `coterie watch` printed."
            return PlainTextResponse(text, 403, _HEADERS)
        if scope["method"] != "GET":
            return PlainTextResponse("Only GET is allowed.", 405, {**_HEADERS, "Allow": "GET"})
        return None


def _without_port(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdecimal() else host.lower()


def _page(text: str) -> Response:
    return HTMLResponse(text, headers=_HEADERS)


def _no_run() -> Response:
    return PlainTextResponse("There is no such run; it may have been deleted.", 404, _HEADERS)
