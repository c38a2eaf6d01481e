"""Ray: connection, processes, machines. The only module that imports it."""

from __future__ import annotations

import logging
import os
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from coterie.errors import Error, FederationError, SpecError
from coterie.federation.compilation import cores
from coterie.federation.ray.pool import WorkerLost
from coterie.federation.ray.settings import RaySettings
from coterie.federation.ray.worker import cpu, versions

log = logging.getLogger(__name__)

#: Seconds to wait for a connection to the address of a cluster.
_REACHABLE = 10.0

#: Ray's words if the process for a client did not start in time; how often to try then, and seconds between.
_NOT_STARTED = "Starting Ray client server failed"
_TRIES, _PAUSE = 3, 5.0


def check_installed() -> None:
    """Raise SpecError if Ray is not installed."""
    if find_spec("ray") is None:
        raise SpecError("run.backend = 'ray' needs an extra: pip install 'coterie[ray]'")


def ray_package(*, local: bool = False) -> Any:
    """The package `ray`.

    Args:
        local: Whether Ray will be started on this machine alone. Then it listens on the loopback address only, unless
            the package was imported before.

    Raises:
        SpecError: If it is not installed.
    """
    check_installed()
    # Read when Ray is imported or starts: no reports on its use, and quiet logs.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if local:
        # The name is that of the systems on which 0 is the default; it means the same on Linux.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray
    import ray.exceptions

    return ray


def connect(settings: RaySettings) -> Any:
    """Connect to the cluster of these settings, or use the connection of this process; returns the package `ray`."""
    local = settings.address == "local"
    ray = ray_package(local=local)
    if ray.is_initialized():
        return ray
    _check_reachable(settings)
    wanted = settings.workers * settings.threads_per_worker
    options: dict[str, Any] = {"num_cpus": max(cores(), wanted), "include_dashboard": False} if local else {}
    faults = (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError, ImportError, ray.exceptions.RayError)
    try:
        with warnings.catch_warnings():
            # Ray starts its processes with fork and exec, which JAX warns about; the fork runs no JAX code.
            warnings.filterwarnings("ignore", message="os.fork", category=RuntimeWarning)
            warnings.filterwarnings("ignore", message="Ray Client connection timed out")  # the error says it
            _init(ray, address=settings.address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except faults as fault:
        raise FederationError(_refused(settings, str(fault))) from fault
    return ray


def _init(ray: Any, **options: Any) -> None:
    """Connect. The process that a head starts for a client may take longer than Ray waits, if its machine is busy."""
    for more in range(_TRIES - 1, -1, -1):
        try:
            ray.init(**options)
        except ConnectionError as fault:
            if not more or _NOT_STARTED not in str(fault):
                raise
            log.warning("The Ray cluster did not start a process for this client in time; trying again")
            time.sleep(_PAUSE)
        else:
            return


def _check_reachable(settings: RaySettings) -> None:
    """Raise an error if nothing listens at an address, or if Ray cannot use it; Ray itself would try for minutes."""
    if settings.address in ("local", "auto"):
        return
    if settings.address.startswith("ray://") and find_spec("grpc") is None:
        raise SpecError("ray.address = 'ray://...' needs an extra: pip install 'coterie[ray]'")
    host, _, port = settings.address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_REACHABLE):
            pass
    except (OSError, ValueError, OverflowError) as fault:
        raise FederationError(_refused(settings, str(fault))) from fault


def _refused(settings: RaySettings, text: str) -> str:
    first = text.strip().split("\n")[0].rstrip(".")
    if "ersion mismatch" in text:
        return (
            f"The Ray cluster at {settings.address!r} has other versions than this process: {' '.join(text.split())}. "
            "Install the same versions of Ray and Python on all machines"
        )
    if settings.address == "local":
        return f"Ray did not start on this machine: {first}"
    if _NOT_STARTED in text:
        return (
            f"The Ray cluster at {settings.address!r} did not start a process for this client in time, {_TRIES} times. "
            "Its machine may be busy; the log ray_client_server_*.err on it says more"
        )
    token = ""
    if settings.address != "auto" and os.environ.get("RAY_AUTH_MODE") != "token":
        token = ". If the cluster wants a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
    return (
        f"There is no Ray cluster at {settings.address!r}: {first}. Start one with ray start --head, or use "
        f"ray.address = 'local'{token}"
    )


class Actors:
    """Processes of a Ray cluster, each with an object whose methods can be called."""

    def __init__(self, settings: RaySettings) -> None:
        """Connect."""
        self._ray = connect(settings)

    @property
    def cores(self) -> int:
        """Number of cores that the cluster has now."""
        return int(self._ray.cluster_resources().get("CPU", 0))

    def start(self, kind: type, *args: object, cores: int) -> Any:
        """Start a process with an object of a class, on a machine with this many free cores."""
        options = {"num_cpus": cores, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        return self._ray.remote(kind).options(**options).remote(*args)

    def put(self, value: object) -> Any:
        """Store a value in the object store, from where it travels to each machine once."""
        try:
            return self._ray.put(value)
        except TypeError as fault:
            raise SpecError(
                f"This run cannot be sent to Ray workers: {_reason(fault)}. Models, works and metrics of your own must "
                "be functions that Ray can pickle"
            ) from fault

    def submit(self, actor: Any, method: str, *args: object) -> Any:
        """Call a method of the object; returns a future."""
        return getattr(actor, method).remote(*args)

    def wait(self, futures: Sequence[Any], timeout: float | None = None, *, every: bool = False) -> Sequence[Any]:
        """Wait until one future is done, or every one; returns those that are."""
        count = len(futures) if every else 1
        done: Sequence[Any] = self._ray.wait(list(futures), num_returns=count, timeout=timeout)[0]
        return done

    def result(self, future: Any) -> Any:
        """The result of a future that is done; `WorkerLost` if its process was lost."""
        faults = self._ray.exceptions
        try:
            return self._ray.get(future)
        except faults.RayTaskError as fault:
            if isinstance(fault.cause, Error | MemoryError):
                raise fault.cause from None
            if "ModuleNotFoundError" in str(fault):  # raised while a worker unpickled something
                raise SpecError(
                    f"A Ray worker cannot load a part of this run: {_reason(fault)}. What models, works and metrics of "
                    "your own import must be installed on all machines"
                ) from fault
            raise
        except faults.RayError as fault:  # the process, its machine or its objects are lost
            raise WorkerLost(_reason(fault)) from fault

    def end(self, actor: Any) -> None:
        """End a process."""
        with suppress(Exception):  # it may be lost already
            self._ray.kill(actor)


def check_versions(there: Mapping[str, Any]) -> None:
    """Raise SpecError if a worker has other versions than this process."""
    for name, here in versions().items():
        if there[name] != here:
            raise SpecError(
                f"The Ray worker on {there['host']} has {name} {there[name]}, this process has {here}; install the "
                "same version on all machines, because results depend on it"
            )


def _reason(fault: Exception) -> str:
    """The line of an error of Ray that says most: that of the exception in a worker, otherwise the first one."""
    lines = [line.strip() for line in str(fault).strip().splitlines() if line.strip()]
    named = [line for line in lines if "Error:" in line]
    return (named or lines or ["no reason was given"])[-1 if named else 0]


def nodes(settings: RaySettings) -> list[dict[str, Any]]:
    """The machines of a cluster: cores, memory, and the versions of Coterie there or why there is none."""
    ray = connect(settings)
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive = [node for node in ray.nodes() if node["Alive"]]
    look: Any = ray.remote(_look)
    asked = [
        look.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in alive
    ]
    found = []
    for node, future in zip(alive, asked, strict=True):
        try:
            seen, problem = ray.get(future, timeout=60), ""
            check_versions(seen)
        except SpecError as fault:
            problem = str(fault)
        except ray.exceptions.RayError as fault:
            seen, problem = {}, _reason(fault)
        found.append(
            {
                "host": seen.get("host", node["NodeManagerHostname"]),
                "cores": int(node["Resources"].get("CPU", 0)),
                "memory_bytes": int(node["Resources"].get("memory", 0)),
                "object_store_bytes": int(node["Resources"].get("object_store_memory", 0)),
                "versions": {name: seen.get(name) for name in versions()},
                "cpu": seen.get("cpu"),
                "problem": problem or None,
            }
        )
    return found


def _look() -> dict[str, str]:
    return {**versions(), "host": socket.gethostname(), "cpu": cpu()}
