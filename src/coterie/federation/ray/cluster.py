"""Ray: connection, actors, lost workers. The only module that imports it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from coterie.errors import Error, FederationError, SpecError
from coterie.federation.compilation import cores
from coterie.federation.ray.pool import WorkerLost
from coterie.federation.ray.settings import RaySettings
from coterie.federation.ray.shipping import Handle, MappedArray
from coterie.federation.ray.worker import Worker, cpu, versions
from coterie.types import Array

log = logging.getLogger(__name__)

#: Seconds to wait for the first worker, and then for the others, before a request is sent.
FIRST_WORKER, OTHER_WORKERS = 180.0, 20.0

#: Seconds between two looks at what the cluster has.
_LOOK = 1.0


def ray_package() -> Any:
    """The package `ray`.

    Raises:
        SpecError: If it is not installed.
    """
    # Read when Ray is imported or starts: no reports on its use, and quiet logs.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError as fault:
        raise SpecError("run.backend = 'ray' needs an extra: pip install 'coterie[ray]'") from fault
    return ray


def connect(settings: RaySettings) -> Any:
    """Connect to the cluster of these settings, or use the connection of this process; returns the package `ray`."""
    ray = ray_package()
    if ray.is_initialized():
        return ray
    local = settings.address == "local"
    wanted = settings.workers * settings.threads_per_worker
    options: dict[str, Any] = {"num_cpus": max(cores(), wanted), "include_dashboard": False} if local else {}
    try:
        ray.init(address=settings.address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as fault:
        raise FederationError(_refused(settings, str(fault))) from fault
    return ray


def _refused(settings: RaySettings, text: str) -> str:
    first = text.strip().split("\n")[0]
    if "ersion mismatch" in text:
        return (
            f"The Ray cluster at {settings.address!r} has other versions than this process: {' '.join(text.split())}. "
            "Install the same versions of Ray and Python on all machines"
        )
    if settings.address == "local":
        return f"Ray did not start on this machine: {first}"
    return (
        f"There is no Ray cluster at {settings.address!r}: {first}. Start one with ray start --head, or use "
        "ray.address = 'local'"
    )


class Actor:
    """A worker in a Ray actor. `Worker` itself knows nothing of Ray."""

    def __init__(self, threads: int, arrays: Mapping[str, MappedArray | Handle]) -> None:
        """Start the worker."""
        import ray

        self._worker = Worker(threads, arrays, ray.get)

    def hello(self) -> dict[str, Any]:
        """Versions and place of the worker."""
        import ray

        return {**self._worker.hello(), "node": ray.get_runtime_context().get_node_id()}

    def call(self, method: str, args: tuple[Any, ...]) -> Any:
        """Call a method of the worker."""
        return getattr(self._worker, method)(*args)


@dataclass
class _Started:
    """An actor that has not answered yet."""

    actor: Any
    hello: Any


class RayPool:
    """Workers in actors of a Ray cluster."""

    def __init__(self, settings: RaySettings) -> None:
        """Prepare; the connection is made when workers are needed first."""
        self._settings = settings
        self._ray: Any = None
        self._ready: list[Any] = []
        self._starting: list[_Started] = []
        self._sent: dict[str, Handle] = {}
        self._looked = 0.0
        self._cpus: set[str] = set()

    def workers(self, arrays: Mapping[str, Array]) -> Sequence[Any]:
        """The workers that can be used now; see `Pool.workers`."""
        first_time = self._ray is None
        if first_time:
            self._ray = connect(self._settings)
        if not self._ready or time.monotonic() - self._looked > _LOOK:
            self._looked = time.monotonic()
            self._start(arrays)
            self._welcome(arrays, 0.0)
        limit = time.monotonic() + FIRST_WORKER
        while not self._ready and time.monotonic() < limit:
            self._start(arrays)
            self._welcome(arrays, 1.0)
        if not self._ready:
            raise FederationError(
                f"No Ray worker was ready after {FIRST_WORKER:.0f} s; coterie ray status shows what the cluster has. "
                "Each worker needs ray.threads_per_worker cores"
            )
        if first_time:
            limit = time.monotonic() + OTHER_WORKERS
            while self._starting and time.monotonic() < limit:
                self._welcome(arrays, 1.0)
        return list(self._ready)

    def _start(self, arrays: Mapping[str, Array]) -> None:
        """Start as many actors as there is room for."""
        threads = self._settings.threads_per_worker
        room = int(self._ray.cluster_resources().get("CPU", 0)) // threads
        wanted = min(self._settings.workers, max(room, 1)) if self._settings.workers else max(room, 1)
        missing = wanted - len(self._ready) - len(self._starting)
        for _ in range(missing):
            actor = (
                self._ray.remote(Actor)
                .options(num_cpus=threads, max_restarts=0, scheduling_strategy="SPREAD")
                .remote(threads, self._opened(arrays))
            )
            self._starting.append(_Started(actor, actor.hello.remote()))

    def _opened(self, arrays: Mapping[str, Array]) -> dict[str, MappedArray | Handle]:
        """What new workers open: files where the examples are mapped from files."""
        return {name: MappedArray.of(array) or self._array(name, array) for name, array in arrays.items()}

    def _array(self, name: str, array: Array) -> Handle:
        """An array in the object store, from where it travels to each machine once."""
        if name not in self._sent:
            self._sent[name] = Handle(name, self.put(array))
        return self._sent[name]

    def _welcome(self, arrays: Mapping[str, Array], timeout: float) -> None:
        """Take the actors that have answered."""
        if not self._starting:
            return
        done, _ = self._ray.wait([each.hello for each in self._starting], num_returns=1, timeout=timeout)
        if done and len(self._starting) > 1:  # others that are done, too
            done, _ = self._ray.wait([e.hello for e in self._starting], num_returns=len(self._starting), timeout=0)
        for started in [each for each in self._starting if each.hello in done]:
            self._starting.remove(started)
            try:
                greeting = self.result(started.hello)
            except WorkerLost as fault:
                log.warning("A Ray worker could not start: %s", _first_line(str(fault)))
                if "ModuleNotFoundError" in str(fault) or "ImportError" in str(fault):
                    raise SpecError(
                        f"A Ray worker cannot import Coterie: {_first_line(str(fault))}. Install the same version of "
                        "Coterie on all machines of the cluster"
                    ) from fault
                continue
            check_versions(greeting)
            self._note_cpu(greeting)
            for name in greeting["missing"]:
                started.actor.call.remote("supply", (name, self._array(name, arrays[name])))
            self._ready.append(started.actor)

    def _note_cpu(self, greeting: Mapping[str, Any]) -> None:
        self._cpus.add(greeting["cpu"])
        if len(self._cpus) == 2:
            log.warning(
                "Machines of the Ray cluster have different processors (%s): the last bits of results may depend on "
                "which of them computes which client",
                "; ".join(sorted(self._cpus)),
            )

    def put(self, value: object) -> Any:
        """Store a value in the object store. Values that cannot be pickled are named."""
        try:
            return self._ray.put(value)
        except TypeError as fault:
            raise SpecError(
                f"This run cannot be sent to Ray workers: {_first_line(str(fault))}. Models, works and metrics of your "
                "own must be functions that Ray can pickle"
            ) from fault

    def submit(self, worker: Any, method: str, *args: object) -> Any:
        """Call a method of a worker."""
        return worker.call.remote(method, args)

    def wait(self, futures: Sequence[Any]) -> Sequence[Any]:
        """Wait until at least one future is done."""
        done: Sequence[Any] = self._ray.wait(list(futures), num_returns=1)[0]
        return done

    def result(self, future: Any) -> Any:
        """The result of a future; see `Pool.result`."""
        faults = self._ray.exceptions
        try:
            return self._ray.get(future)
        except faults.RayTaskError as fault:
            if isinstance(fault.cause, Error | MemoryError):
                raise fault.cause from None
            raise
        except faults.RayError as fault:  # the actor, its node or its objects are lost
            raise WorkerLost(_first_line(str(fault))) from fault

    def drop(self, worker: Any) -> None:
        """Forget a lost worker."""
        if worker in self._ready:
            self._ready.remove(worker)
            self._looked = 0.0
        with suppress(Exception):  # it is lost already
            self._ray.kill(worker)

    def close(self) -> None:
        """End all workers. Ray itself runs until this process ends, for the next run."""
        for actor in [*self._ready, *(each.actor for each in self._starting)]:
            with suppress(Exception):
                self._ray.kill(actor)
        self._ready.clear()
        self._starting.clear()
        self._sent.clear()


def check_versions(there: Mapping[str, Any]) -> None:
    """Raise SpecError if a worker has other versions than this process."""
    for name, here in versions().items():
        if there[name] != here:
            raise SpecError(
                f"The Ray worker on {there['host']} has {name} {there[name]}, this process has {here}; install the "
                "same version on all machines, because results depend on it"
            )


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
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
            seen, problem = {}, _first_line(str(fault))
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
    import socket

    return {**versions(), "host": socket.gethostname(), "cpu": cpu()}
