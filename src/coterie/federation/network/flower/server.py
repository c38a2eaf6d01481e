"""The server's side: this process is the ServerApp of a run, and admits nodes.

The SuperLink runs with `--isolation process`, so it starts no process for a run. The run needs an app (FAB): it gets
one without code.
"""

from __future__ import annotations

import hashlib
import io
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from coterie.errors import FederationError, SpecError, shown
from coterie.federation.network.fingerprint import fingerprint, public_key_pem
from coterie.federation.network.flower.connection import Heartbeat, Retry, check_no_proxy, runtime_client
from coterie.federation.network.flower.internals import internals
from coterie.federation.network.flower.nodes import Grid

#: Seconds for which calls to the SuperLink are repeated before the run stops.
_RETRY = 60.0

#: The app of the run. Flower reads its settings; the components that it must name do not exist.
_APP = """\
[project]
name = "coterie"
version = "1.0.0"
description = "A run of Coterie; contains no code"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "coterie"

[tool.flwr.app.components]
serverapp = "none:none"
clientapp = "none:none"

[tool.flwr.app.config]
"""


class Control:
    """The Control API of a SuperLink on this machine: which nodes may connect, and runs."""

    def __init__(self, address: str, root_certificates: bytes | None) -> None:
        """Connect.

        Args:
            address: Host and port of the SuperLink.
            root_certificates: PEM of its certificate authority; None for HTTP without TLS.
        """
        check_no_proxy()
        flwr = internals()
        self._client = flwr.ControlHttpClient.from_server_address(
            address,
            root_certificates is None,
            root_certificates,
            [flwr.RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
            retry_invoker=Retry(_RETRY),
        )

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def registered(self) -> dict[str, int]:
        """Fingerprint → node, of the keys that may connect."""
        nodes = self._call("ListNodes", internals().ListNodesRequest()).nodes_info
        return {
            fingerprint(bytes(node.public_key)): int(node.node_id) for node in nodes if node.status != "unregistered"
        }

    def register(self, key: str | bytes, name: str = "") -> None:
        """Allow a key to connect; nothing happens if it may already.

        Args:
            key: The public key as an OpenSSH line, PEM or DER.
            name: A name for it, shown by Flower's tools.

        Raises:
            SpecError: If Flower refuses it, as it does with a key that was unregistered before.
        """
        if fingerprint(key) in self.registered():
            return
        request = internals().RegisterNodeRequest(public_key=public_key_pem(key), name=name or None)
        self._call("RegisterNode", request)

    def unregister(self, key: str) -> None:
        """Forbid a key to connect, for good; nothing happens if it may not.

        Flower never admits an unregistered key again. To revoke a key that may come back, remove it from the keys that
        the gate allows.

        Args:
            key: Its fingerprint.
        """
        node = self.registered().get(key)
        if node is not None:
            self._call("UnregisterNode", internals().UnregisterNodeRequest(node_id=node))

    def start_run(self) -> int:
        """Start a run; returns its number."""
        data = app_without_code()
        fab = internals().Fab(hash_str=hashlib.sha256(data).hexdigest(), content=data)
        started = self._call("StartRun", internals().StartRunRequest(fab=fab))
        if not started.HasField("run_id"):
            raise FederationError("The SuperLink does not start a run; its log says why")
        return int(started.run_id)

    def stop_runs(self) -> None:
        """Stop all runs, as after a server was killed.

        Flower does so itself a minute later. Until then a SuperNode that was sent a message of such a run asks for its
        content again and again, and takes no other message.
        """
        for run, about in self._call("ListRuns", internals().ListRunsRequest()).run_dict.items():
            if about.status.status != "finished":
                self._call("StopRun", internals().StopRunRequest(run_id=run))

    def _call(self, name: str, request: Any) -> Any:
        try:
            return getattr(self._client, name)(request)
        except httpx.HTTPStatusError as fault:
            hint = ". A key that was unregistered needs a new key pair" if fault.response.status_code == 412 else ""
            raise SpecError(f"The SuperLink refuses {name}: {shown(fault.response.text)}{hint}") from fault
        except httpx.HTTPError as fault:
            raise FederationError(f"The SuperLink does not answer: {shown(fault)}") from fault


@contextmanager
def server_grid(
    address: str, *, root_certificates: bytes | None, secret: bytes | None = None, timeout: float = 30.0
) -> Iterator[Grid]:
    """Start a run on a SuperLink and be its ServerApp; gives the grid of the run. Other runs are stopped.

    Args:
        address: Host and port of the SuperLink, which was started with `--isolation process`.
        root_certificates: PEM of its certificate authority; None for HTTP without TLS.
        secret: The secret that the SuperLink was started with.
        timeout: Seconds to wait for the task of the run.

    Raises:
        SpecError: If the installed flwr is not supported.
        FederationError: If the SuperLink does not answer.
    """
    flwr = internals()
    with Control(address, root_certificates) as control:
        control.stop_runs()
        run = control.start_run()
    token = _acquire(address, run, root_certificates, secret, timeout)
    grid = flwr.HttpGrid(address, insecure=root_certificates is None, root_certificates=root_certificates, token=token)
    grid._retry_invoker = Retry(_RETRY)  # Flower's own sends SIGINT to this process
    client = grid._runtime_client
    try:
        with Heartbeat(client):
            task = client.PullTaskInput(flwr.PullTaskInputRequest())
            grid.set_run(flwr.run_from_proto(task.run))
            flwr.TaskIdentity.task_id = task.task_id
            flwr.TaskIdentity.run_id = task.run.run_id
            flwr.TaskIdentity.node_id = task.context.node_id
            try:
                yield grid
            except BaseException as fault:
                _finish(client, "failed", type(fault).__name__)
                raise
            _finish(client, "completed", "")
    finally:
        grid.close()


def _acquire(address: str, run: int, root_certificates: bytes | None, secret: bytes | None, timeout: float) -> str:
    """The token of the task of a run. Tasks of other runs, left by a server that was killed, are ended."""
    request = internals().AcquireTaskRequest(supported_task_types=["flwr-serverapp"])
    client = runtime_client(
        address, "SuperExec", root_certificates=root_certificates, secret=secret, retry=Retry(timeout)
    )
    end = time.monotonic() + timeout
    try:
        while time.monotonic() < end:
            got = client.AcquireTask(request)
            if not (got.HasField("task") and got.token):
                time.sleep(0.1)
            elif got.task.run_id == run:
                return str(got.token)
            else:
                _end_other(address, got.token, root_certificates)
    except httpx.HTTPError as fault:
        raise FederationError(f"The SuperLink does not hand over the task of the run: {shown(fault)}") from fault
    finally:
        client.close()
    raise FederationError(f"The SuperLink did not hand over the task of the run within {timeout:g} seconds")


def _end_other(address: str, token: str, root_certificates: bytes | None) -> None:
    client = runtime_client(address, "flwr-serverapp", root_certificates=root_certificates, token=token)
    try:
        client.PullTaskInput(internals().PullTaskInputRequest())  # only a task that runs can be ended
        _finish(client, "failed", "Another run was started")
    finally:
        client.close()


def _finish(client: Any, status: str, details: str) -> None:
    """Tell Flower how the run ended. It does not matter if this fails: the run ends with the SuperLink."""
    try:
        client._retry_invoker = None
        client.PushTaskOutput(internals().PushTaskOutputRequest(sub_status=status, details=details))
    except httpx.HTTPError:
        return


def app_without_code() -> bytes:
    """A Flower app bundle (FAB) that contains only its settings."""
    settings = _APP.encode()
    manifest = f"pyproject.toml,{hashlib.sha256(settings).hexdigest()},{8 * len(settings)}"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in (("pyproject.toml", settings), (".info/CONTENT", manifest.encode())):
            bundle.writestr(zipfile.ZipInfo(name), text)  # a fixed date: the same app has the same hash
    return out.getvalue()
