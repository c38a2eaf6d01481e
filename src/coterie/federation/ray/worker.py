"""`Worker`: runs the vectorized transport on shares of requests, in a process of its own.

It keeps nothing that a run needs: data, works and client memories are sent to it, so a lost worker is replaced by any
other one.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from coterie.data.federated import FederatedData
from coterie.errors import FederationError
from coterie.federation.client_store import ClientStore
from coterie.federation.collect import ReplyCollector
from coterie.federation.messages import ReplyBatch, Request
from coterie.federation.ray.shares import whole_blocks
from coterie.federation.ray.shipping import Handle, MappedArray, PackedRequest, with_arrays
from coterie.federation.reduce import BlockReduction, KeptModels
from coterie.federation.traffic import Traffic
from coterie.federation.transport import guarded
from coterie.federation.vectorized import Vectorized
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params

#: Maximum number of cached values that a worker holds.
_MAX_CACHED = 32


@dataclass(frozen=True)
class Share:
    """The replies of a share of a request.

    Attributes:
        batches: The replies in the order of clients; valid replies only in those with sums. Without names of clients,
            which the server knows, unless they have sums and some replies were rejected.
        counts: Number of clients of each batch.
        memories: The new memory of each client; None: none is written.
        seconds: Duration.
    """

    batches: list[ReplyBatch]
    counts: list[int]
    memories: list[Params] | None
    seconds: float


class Worker:
    """A worker; all calls come from one thread."""

    def __init__(self, threads: int, arrays: Mapping[str, MappedArray | Handle], fetch: Callable[[Any], Any]) -> None:
        """Open the examples.

        Args:
            threads: Number of compiled calls that run at a time.
            arrays: The arrays of examples: files, or values.
            fetch: Returns the value that the pool's `put` was given.
        """
        self._threads, self._fetch_ref = threads, fetch
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="coterie")
        self._values: dict[str, Any] = {}
        self._arrays: dict[str, Array] = {}
        self._missing: list[str] = []
        for name, array in arrays.items():
            found = array.opened() if isinstance(array, MappedArray) else fetch(array.ref)
            if found is None:
                self._missing.append(name)
            else:
                self._arrays[name] = found
        self._layout = ""
        self._store: ClientStore | None = None
        self._everyone: tuple[ClientId, ...] = ()
        self._transports: dict[str, Vectorized] = {}
        self._kept: dict[tuple[str, int, int], KeptModels] = {}

    def hello(self) -> dict[str, Any]:
        """Versions and place of this worker, and the arrays whose files it does not have."""
        return {**versions(), "missing": self._missing, "host": socket.gethostname(), "pid": os.getpid(), "cpu": cpu()}

    def supply(self, name: str, array: Handle) -> None:
        """Receive an array whose file this machine does not have."""
        self._arrays[name] = self._fetch_ref(array.ref)

    def run(
        self,
        request: Handle,
        layout: Handle,
        share: tuple[int, int],
        memories: Mapping[str, list[Params | None]],
    ) -> Share:
        """Run a share of a request.

        Args:
            request: A `PackedRequest`.
            layout: The data without their examples.
            share: First client, and last client + 1.
            memories: What `ClientStore.lend` returned for the clients of the share.
        """
        started = time.perf_counter()
        store = self._open(layout)
        if request.key not in self._values:  # those of earlier requests are not used any more
            self._values = {key: value for key, value in self._values.items() if not key.startswith("request")}
            self._kept.clear()
        packed: PackedRequest = self._fetch(request)
        mine = packed.share(*share, self._everyone, self._fetch, bool(memories))
        store.borrow(mine.clients, memories)
        transport = self._transport(packed.task, store)
        batches = self._batches(packed, mine, share, transport, request.key)
        return Share(
            [_nameless(batch) for batch in batches],
            [len(batch.clients) + (0 if batch.summed is None else len(batch.summed.rejected)) for batch in batches],
            store.written(mine),
            time.perf_counter() - started,
        )

    def distances(self, request: Handle, first: int, mean: int, reference: Handle) -> Array | None:
        """Distances of the models of a share that were summed to the models of their groups.

        Args:
            request: The request.
            first: First client of the share.
            mean: Which of the means.
            reference: The bank of group models.

        Returns:
            None if this worker has not run the share.
        """
        kept = self._kept.get((request.key, first, mean))
        if kept is None:
            return None
        bank: Bank = self._fetch_ref(reference.ref)
        return kept.distances(bank)

    def _batches(
        self, packed: PackedRequest, mine: Request, share: tuple[int, int], transport: Vectorized, key: str
    ) -> list[ReplyBatch]:
        first, last = share
        start, end = whole_blocks(first, last, packed.count) if packed.means else (first, first)
        found: list[ReplyBatch] = []
        for low, high in ((first, start), (start, end), (end, last)):
            if low == high:
                continue
            part = mine.between(low - first, high - first)
            replies = guarded(transport.task, part, transport.compute(part))
            if (low, high) == (start, end) and start < end:
                found.append(self._summed(packed, part, replies, transport.task, (key, first), start))
            else:
                found += [replace(batch, coded={}) for batch in replies]
        return found

    def _summed(
        self,
        packed: PackedRequest,
        request: Request,
        replies: Any,
        task: Task,
        share: tuple[str, int],
        start: int,
    ) -> ReplyBatch:
        """The sums of whole blocks of clients, which begin at `start`; models are kept if distances are wanted."""
        means = [mean.over(start, request.clients) for mean in packed.means]
        template = task.init(Seed(0))
        collector = ReplyCollector(request, task, template, means, lambda mean: BlockReduction(mean, template))
        traffic = Traffic()
        for batch in replies:
            traffic.count_replies(request, batch)
            collector.take(batch)
        batch = collector.summed(traffic)
        assert batch.summed is not None
        sums = []
        for which, each in enumerate(batch.summed.sums):
            if each.kept is not None:
                self._kept[(*share, which)] = each.kept
            # Of the models that stay here, only the groups travel.
            sums.append(replace(each, kept=None if each.kept is None else Groups(each.kept.groups)))
        return replace(batch, summed=replace(batch.summed, sums=tuple(sums)))

    def _open(self, layout: Handle) -> ClientStore:
        """The store with the current lists of examples."""
        if self._store is None or layout.key != self._layout:
            if lacking := [name for name in self._missing if name not in self._arrays]:
                raise FederationError(
                    f"The Ray worker on {socket.gethostname()} has not received the examples ({', '.join(lacking)}): "
                    "its object store may be too small. Put the files of the data set at the same path on all "
                    "machines, or give Ray more memory (ray start --object-store-memory)"
                )
            without: FederatedData = self._fetch_ref(layout.ref)
            data = with_arrays(without, self._arrays)
            if self._store is None:
                self._store, self._everyone = ClientStore(data), tuple(sorted(data.clients))
            else:
                self._store.set_data(data)
            self._layout = layout.key
        return self._store

    def _transport(self, task: Handle, store: ClientStore) -> Vectorized:
        if task.key not in self._transports:
            built = self._fetch(task).built()
            made = Vectorized(store.data, built, threads=self._threads, store=store, pool=self._pool)
            self._transports[task.key] = made
        return self._transports[task.key]

    def _fetch(self, handle: Handle) -> Any:
        """The value of a handle, fetched once."""
        if handle.key not in self._values:
            cached = [key for key in self._values if key.startswith("value")]
            for key in cached[: max(0, len(cached) - _MAX_CACHED)]:
                del self._values[key]
            self._values[handle.key] = self._fetch_ref(handle.ref)
        return self._values[handle.key]


@dataclass(frozen=True)
class Groups:
    """The groups of models that a worker keeps."""

    groups: Array

    def distances(self, reference: Bank) -> Array:
        """Not used: `Worker.distances` measures the distances."""
        raise NotImplementedError("the models are kept by a worker")


def _nameless(batch: ReplyBatch) -> ReplyBatch:
    """A batch without names of clients, if the server can tell them."""
    named = batch.summed is not None and batch.summed.rejected
    return batch if named else replace(batch, clients=())


def versions() -> dict[str, str]:
    """The versions that must be the same in all processes of a run."""
    import jax
    import numpy as np

    return {
        "Coterie": sys.modules["coterie"].__version__,  # not imported: the package imports the layers above this one
        "JAX": jax.__version__,
        "NumPy": np.__version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def cpu() -> str:
    """The vector instructions of the processor: compiled code, and so the last bits of results, depend on them."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = next((line for line in file if line.startswith(("flags", "Features"))), "").split()
    except OSError:
        flags = []
    known: Sequence[str] = ("avx512f", "avx512_bf16", "amx_bf16", "avx2", "fma", "sve", "asimd")
    return " ".join([platform.machine(), *(name for name in known if name in flags)])
