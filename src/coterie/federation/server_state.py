"""`ServerState`: what the server knows about its clients between two requests. It is part of a checkpoint."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from coterie import codec
from coterie.client_map import ClientMap
from coterie.codec import Lazy, plain
from coterie.federation.messages import Request
from coterie.federation.overlap import Overlap
from coterie.federation.traffic import HASH_BYTES, OUTSIDE, Traffic
from coterie.types import ClientId

log = logging.getLogger(__name__)

#: Ids of requests: each start of a server has its own range of this length.
IDS_PER_START = 1 << 40

#: Number of checkpoints whose memory versions clients keep: two are on the disk, and others may be about to be written.
CHECKPOINTS = 4

#: Number of cached values whose hashes are remembered.
DIGESTS = 4


@dataclass
class Count:
    """A number that several servers share."""

    value: int = 0


@dataclass
class ServerState:
    """What the server knows about its clients; shared by the servers of all tasks of a federation.

    Attributes:
        traffic: Bytes sent.
        asks: Number of requests so far.
        starts: How often the server of this run was started before. Simulated clients are restored with the server, so
            that it is 0 for them.
        evaluations: Number of requests of evaluations since the server was started.
        overlap: Values that travel once although two requests contain them.
        slots: In an evaluation whose requests travel with others: the number of the request with which its last one
            travels. None: they travel alone.
        versions: Name of a memory → client → id of the request whose memory was accepted last.
        versions_before_round: `versions` before the current round.
        checkpoints: `versions` in the last checkpoints.
        holdings: Hash of a cached value → the clients known to have it.
        rejected: Reason → number of replies rejected for this reason.
        lost: Number of replies that never arrived; without those to evaluations.
        training_seconds: Duration of the requests in which clients train.
        digests: The last cached values, with their hashes.
    """

    traffic: Traffic = field(default_factory=Traffic)
    asks: int = 0
    starts: int = 0
    evaluations: Count = field(default_factory=Count)
    overlap: Overlap = field(default_factory=Overlap)
    slots: Count | None = None
    versions: dict[str, ClientMap[int]] = field(default_factory=dict)
    versions_before_round: dict[str, ClientMap[int]] = field(default_factory=dict)
    checkpoints: list[dict[str, ClientMap[int]]] = field(default_factory=list)
    holdings: dict[str, set[ClientId]] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    training_seconds: float = 0.0
    digests: deque[tuple[object, str]] = field(default_factory=lambda: deque(maxlen=DIGESTS))

    def new_id(self, *, evaluating: bool) -> int:
        """The id of the next request, after `asks` was increased.

        Ids are unique over all starts of the server. Those of evaluations are negative and have a count of their own:
        evaluations do not change the ids of other requests.
        """
        first = self.starts * IDS_PER_START
        if not evaluating:
            return first + self.asks
        self.evaluations.value += 1
        return -first - self.evaluations.value

    def note_checkpoint(self) -> None:
        """Record that a checkpoint names the current memory versions."""
        self.checkpoints = [*self.checkpoints, dict(self.versions)][-CHECKPOINTS:]

    def for_evaluation(self) -> ServerState:
        """Return a copy with its own memory versions and holdings, but the same traffic table."""
        holdings = {key: set(clients) for key, clients in self.holdings.items()}
        return dataclasses.replace(self, holdings=holdings, versions=dict(self.versions))

    def frozen(self, *, travels_with_others: bool) -> ServerState:
        """Return a copy for one evaluation, with a traffic table of its own."""
        slots = Count(self.overlap.sent) if travels_with_others else None
        return dataclasses.replace(self.for_evaluation(), traffic=Traffic(), slots=slots)

    def count(self, request: Request) -> None:
        """Count the bytes of a request to all its clients. What also travels for an evaluation is counted once."""
        self.traffic.count_request(request)
        if not request.evaluating:
            if request.when is None:
                self.traffic.add(-1, "down", OUTSIDE[0], -self.overlap.bytes_saved(request))
        elif self.slots is not None:
            self.slots.value += 1
            self.overlap.add(request, self.slots.value)

    def begin_round(self) -> None:
        """Save the memory versions for `undo_round`."""
        self.versions_before_round = dict(self.versions)

    def undo_round(self) -> None:
        """Restore the memory versions before the round."""
        self.versions = dict(self.versions_before_round)

    def digest(self, value: object) -> str:
        """The hash of a cached value. The last ones are remembered, because values stay the same for many rounds."""
        for known, digest in self.digests:
            if known is value:
                return digest
        digest = hashlib.blake2b(codec.encode(value), digest_size=HASH_BYTES).hexdigest()
        self.digests.append((value, digest))
        return digest

    def without(self, digest: str, clients: Iterable[ClientId]) -> frozenset[ClientId]:
        """The clients that are not known to have a cached value."""
        return frozenset(clients).difference(self.holdings.get(digest, ()))

    def forget(self, request: Request) -> None:
        """Record that the clients of a request do not have its cached values."""
        for step in request.steps:
            for digest, _ in step.cached.values():
                self.holdings.get(digest, set()).difference_update(request.clients)

    def accept(self, request: Request, clients: Sequence[ClientId]) -> None:
        """Record valid replies: these clients have the cached values, and their new memory is accepted."""
        if request.writes_memory and request.memory is not None:
            versions = self.versions.get(request.memory, ClientMap())
            self.versions[request.memory] = versions.set(dict.fromkeys(clients, request.id))
        for step in request.steps:
            for digest, _ in step.cached.values():
                self.holdings.setdefault(digest, set()).update(clients)

    def reject(self, request: Request, replies: Iterable[tuple[ClientId, str]]) -> None:
        """Count and log rejected replies: (client, reason)."""
        for client, reason in replies:
            self.rejected[reason] = self.rejected.get(reason, 0) + 1
            log.warning("ask %d (%s): reply of %s rejected: %s", request.id, request.work.name, client, reason)

    def save(self) -> dict[str, Any]:
        """The state as plain data; what takes time is computed when it is encoded."""
        return {
            "traffic": Lazy(self.traffic.copy().save),
            "asks": self.asks,
            **({"starts": self.starts} if self.starts else {}),
            "versions": dict(self.versions),
            "checkpoints": [dict(versions) for versions in self.checkpoints if versions],
            "holdings": {key: Lazy(partial(sorted, set(clients))) for key, clients in self.holdings.items()},
            "refused": dict(self.rejected),
            "lost": self.lost,
            "overlap": Lazy(self.overlap.copy().save),
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned."""
        self.traffic.load(plain(saved["traffic"]))
        self.asks = saved["asks"]
        self.versions = dict(saved["versions"])
        self.versions_before_round = dict(saved["versions"])
        self.checkpoints = [dict(versions) for versions in saved.get("checkpoints", ())]
        self.holdings = {key: set(plain(clients)) for key, clients in saved["holdings"].items()}
        self.rejected = dict(saved["refused"])
        self.lost = saved.get("lost", 0)
        if "overlap" in saved:
            self.overlap.load(plain(saved["overlap"]))
