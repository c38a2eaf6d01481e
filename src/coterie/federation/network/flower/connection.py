"""HTTP clients of the SuperLink and of a SuperNode, for use in this process.

Flower's own retries and heartbeats send SIGINT to their process when the other side refuses them: they are written for
processes that do nothing else. These raise an exception, or set an event.
"""

from __future__ import annotations

import logging
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import httpx

from coterie.errors import SpecError
from coterie.federation.network.flower.internals import internals
from coterie.federation.network.loopback import HOST

log = logging.getLogger(__name__)

#: Seconds between two heartbeats. Flower gives up a task after 60 seconds without one.
HEARTBEAT = 10.0

#: The only call that the secret shared with SuperLink or SuperNode protects: others need the token of a task.
_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


class Retry:
    """Repeats calls that fail because the other side cannot be reached, with growing pauses."""

    def __init__(self, seconds: float, stop: threading.Event | None = None) -> None:
        """Repeat calls for this many seconds, or until `stop` is set."""
        self._seconds = seconds
        self._stop = threading.Event() if stop is None else stop

    def invoke(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function; its last exception is raised when time is up, or at once if a repetition cannot help."""
        end, pause = time.monotonic() + self._seconds, 0.1
        while True:
            try:
                return target(*args, **kwargs)
            except httpx.HTTPError as fault:
                if not is_temporary(fault) or time.monotonic() + pause > end or self._stop.wait(pause):
                    raise
            pause = min(2 * pause, 5.0)


def is_temporary(fault: Exception) -> bool:
    """Whether a call may succeed later: the other side cannot be reached, or says so."""
    if isinstance(fault, httpx.HTTPStatusError):
        return fault.response.status_code in (429, 502, 503, 504)
    return isinstance(fault, httpx.TransportError) and "certificate" not in str(fault).lower()


def check_no_proxy() -> None:
    """Check that calls to this machine do not go through a proxy. Flower's clients follow the usual variables.

    Raises:
        SpecError: If they would.
    """
    if urllib.request.getproxies().keys() & {"http", "https", "all"} and not urllib.request.proxy_bypass(HOST):
        raise SpecError(
            f"An HTTP proxy is set, and calls to {HOST} would go through it. Add {HOST} to the variable NO_PROXY"
        )


def runtime_client(
    address: str,
    component: str,
    *,
    root_certificates: bytes | None,
    token: str | None = None,
    secret: bytes | None = None,
    retry: Retry | None = None,
) -> Any:
    """A client of the Runtime API of a SuperLink or SuperNode.

    Args:
        address: Its host and port.
        component: As which component of Flower to call.
        root_certificates: PEM of the certificate authority; None for HTTP without TLS.
        token: Token of a task, for calls that concern it.
        secret: Secret that protects the acquisition of tasks.
        retry: Repeats failed calls.

    Raises:
        SpecError: If the installed flwr is not supported, or if calls would go through a proxy.
    """
    check_no_proxy()
    flwr = internals()
    interceptors = [flwr.RuntimeVersionHttpInterceptor(component_name=component)]
    if token is not None:
        interceptors.append(flwr.RuntimeTokenHttpInterceptor(token=token))
    if secret is not None:
        interceptors.append(flwr.SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=[_ACQUIRE]))
    return flwr.RuntimeHttpClient.from_server_address(
        address, root_certificates is None, root_certificates, interceptors, retry_invoker=retry
    )


class Heartbeat:
    """Tells Flower, until it is closed, that a task is being worked on.

    Attributes:
        lost: Set when Flower has given up the task.
    """

    def __init__(self, client: Any) -> None:
        """Start with the client of a task."""
        self.lost = threading.Event()
        self._client = client
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._closed.set()
        self._thread.join(timeout=HEARTBEAT)

    def __enter__(self) -> Heartbeat:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _beat(self) -> None:
        request = internals().SendTaskHeartbeatRequest()
        while not self._closed.is_set():
            try:
                if not self._client.SendTaskHeartbeat(request).success:
                    self.lost.set()
            except httpx.HTTPStatusError as fault:
                if not is_temporary(fault):
                    self.lost.set()
            except Exception as fault:  # no connection; the next heartbeat may succeed
                log.debug("Heartbeat failed: %s", fault)
            if self.lost.is_set():
                log.warning("Flower has given up a task that is being worked on")
                return
            self._closed.wait(HEARTBEAT)
