"""`RayPool`: workers in actors of a Ray cluster, as many as there is room for."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.errors import FederationError
from coterie.federation.ray.cluster import Actors, check_versions, ray_package
from coterie.federation.ray.pool import WorkerLost
from coterie.federation.ray.settings import RaySettings
from coterie.federation.ray.shipping import Handle, MappedArray
from coterie.federation.ray.worker import Worker
from coterie.types import Array

log = logging.getLogger(__name__)

#: Seconds to wait for the first worker, and then for the others, before the first request is sent.
FIRST_WORKER, OTHER_WORKERS = 180.0, 20.0

#: Number of workers in a row that may fail to start while there is none.
MAX_FAILED = 3

#: Seconds between two looks at what the cluster has.
_LOOK = 1.0


class WorkerActor:
    """A worker in a Ray actor. `Worker` itself does not depend on Ray."""

    def __init__(self, threads: int, arrays: Mapping[str, MappedArray | Handle]) -> None:
        """Start the worker."""
        self._worker = Worker(threads, arrays, ray_package().get)

    def hello(self) -> dict[str, Any]:
        """Versions and place of the worker."""
        return self._worker.hello()

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
        """Prepare; the connection is made when workers are first needed."""
        self._settings = settings
        self._connected: Actors | None = None
        self._ready: list[Any] = []
        self._starting: list[_Started] = []
        self._sent: dict[str, Handle] = {}
        self._looked = 0.0
        self._failed = 0
        self._processors: set[str] = set()

    @property
    def _actors(self) -> Actors:
        if self._connected is None:
            self._connected = Actors(self._settings)
        return self._connected

    def workers(self, arrays: Mapping[str, Array]) -> Sequence[Any]:
        """The workers that can be used now; see `Pool.workers`."""
        first_time = self._connected is None
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
        room = max(self._actors.cores // threads, 1)
        wanted = min(self._settings.workers or room, room)
        for _ in range(wanted - len(self._ready) - len(self._starting)):
            opened = {name: MappedArray.of(array) or self._array(name, array) for name, array in arrays.items()}
            actor = self._actors.start(WorkerActor, threads, opened, cores=threads)
            self._starting.append(_Started(actor, self._actors.submit(actor, "hello")))

    def _array(self, name: str, array: Array) -> Handle:
        """An array in the object store, from where it travels to each machine once."""
        if name not in self._sent:
            self._sent[name] = Handle(name, self.put(array))
        return self._sent[name]

    def _welcome(self, arrays: Mapping[str, Array], timeout: float) -> None:
        """Take the actors that have answered."""
        if not self._starting:
            return
        self._actors.wait([each.hello for each in self._starting], timeout)
        done = self._actors.wait([each.hello for each in self._starting], 0, every=True)
        for started in [each for each in self._starting if each.hello in done]:
            self._starting.remove(started)
            try:
                greeting = self.result(started.hello)
            except WorkerLost as fault:
                self._failed += 1
                if self._failed >= MAX_FAILED and not self._ready:
                    raise FederationError(
                        f"Ray workers cannot start: {fault}. Install the same version of Coterie on all machines of "
                        "the cluster; coterie ray status shows what they have"
                    ) from fault
                log.warning("A Ray worker could not start: %s", fault)
                continue
            self._failed = 0
            check_versions(greeting)
            self._note_processor(greeting["cpu"])
            for name in greeting["missing"]:
                self.submit(started.actor, "supply", name, self._array(name, arrays[name]))
            self._ready.append(started.actor)

    def _note_processor(self, name: str) -> None:
        known, self._processors = self._processors, self._processors | {name}
        if known and name not in known:
            log.warning(
                "Machines of the Ray cluster have different processors (%s): the last bits of results may depend on "
                "which of them computes which client",
                "; ".join(sorted(self._processors)),
            )

    def put(self, value: object) -> Any:
        """Store a value in the object store."""
        return self._actors.put(value)

    def submit(self, worker: Any, method: str, *args: object) -> Any:
        """Call a method of a worker."""
        return self._actors.submit(worker, "call", method, args)

    def wait(self, futures: Sequence[Any], timeout: float | None = None) -> Sequence[Any]:
        """Wait until at least one future is done, or for so many seconds."""
        return self._actors.wait(futures, timeout)

    def result(self, future: Any) -> Any:
        """The result of a future; see `Pool.result`."""
        return self._actors.result(future)

    def drop(self, worker: Any) -> None:
        """Forget a lost worker."""
        if worker in self._ready:
            self._ready.remove(worker)
            self._looked = 0.0
        self._actors.end(worker)

    def close(self) -> None:
        """End all workers. Ray itself runs until this process ends, for the next run."""
        for actor in [*self._ready, *(each.actor for each in self._starting)]:
            self._actors.end(actor)
        self._ready.clear()
        self._starting.clear()
        self._sent.clear()
