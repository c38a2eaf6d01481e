"""`SimulatedTransport`: base class of the transports to simulated clients.

Cached values, client memory, compression and `after` are handled here. A backend (sequential.py, vectorized.py) only
computes the answers of some clients from what they were sent and their memories.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from coterie import tree
from coterie.data.federated import FederatedData
from coterie.federation.client_store import ClientStore
from coterie.federation.compressed_replies import compress_answers
from coterie.federation.messages import MISSING, Answer, ReplyBatch, Request
from coterie.federation.privacy import clip_answers
from coterie.federation.turns import train_in_turn, trains_in_turn
from coterie.models import Task
from coterie.types import Array, Bank, ClientId, Params

#: One result of a backend: an answer, or the new memories of the clients.
Result: TypeAlias = Answer | list[Params]


class SimulatedTransport(ABC):
    """A transport to clients that are simulated in this process."""

    outlives_server = False

    def __init__(self, task: Task, store: ClientStore) -> None:
        """Create clients with this storage.

        Args:
            task: The task that the clients learn. It must fit their examples.
            store: Their storage.
        """
        data = store.data
        task.check(data.x, data.y, shape=data.shape, tokens=data.ids)
        self._task = task
        self._store = store
        self._clients = tuple(sorted(data.clients))

    @abstractmethod
    def _batch_size(self, request: Request) -> int:
        """Number of clients whose answers are computed together."""

    @abstractmethod
    def _run(self, request: Request, memories: Bank | None) -> tuple[dict[str, Result], Array]:
        """Compute the answers of the clients of a request, and their numbers of examples.

        If the work writes a memory, the answers include `memory`: a bank, or a list with one memory per client.
        """

    def _adapted(self, params: Bank) -> Bank:
        """The models returned by `after`, in the form that the backend needs. It may add rows, which are not read."""
        return params

    @property
    def clients(self) -> Sequence[ClientId]:
        """Client ids, sorted."""
        return self._clients

    @property
    def task(self) -> Task:
        """The task that the clients learn."""
        return self._task

    @property
    def _data(self) -> FederatedData:
        return self._store.data

    def send(self, request: Request) -> Iterator[ReplyBatch]:
        """Run the request and return replies in batches, in the order of client ids."""
        able, missing = self._store.receive(request)
        if missing:
            yield ReplyBatch(request.id, tuple(missing), np.zeros(len(missing), np.int64), problem=MISSING)
        yield from self.compute(request.only(able))

    def compute(self, request: Request) -> Iterator[ReplyBatch]:
        """Run a request whose clients have all cached values, and return replies in batches."""
        if request.clients and trains_in_turn(request):
            yield train_in_turn(request, self._side_by_side)
        else:
            yield from self._side_by_side(request)

    def _side_by_side(self, request: Request) -> Iterator[ReplyBatch]:
        size = self._batch_size(request)
        memories: list[Bank | list[Params]] = []
        for first in range(0, len(request.clients), size):
            batch = self._reply(request.only(request.clients[first : first + size]), memories)
            if memories and first + size >= len(request.clients):
                self._store.remember(request, _joined(memories))
            yield batch

    def _reply(self, request: Request, memories: list[Bank | list[Params]]) -> ReplyBatch:
        """Run a request whose clients fit into one batch.

        Args:
            request: The request.
            memories: The new memories of the clients are appended.
        """
        if request.after is not None:
            # Memory written by the first work is dropped: no later request uses it.
            answers, _ = self._run(request.after, self._store.memories(request.after, self._task))
            params = answers["params"]
            assert isinstance(params, dict)
            request = request.with_params(self._adapted(params))
        answers, samples = self._run(request, self._store.memories(request, self._task))
        if "memory" in answers:
            memories.append(cast("Bank | list[Params]", answers.pop("memory")))
        sent = clip_answers(request, request.clients, cast("dict[str, Answer]", answers))
        if not request.compressed:
            return ReplyBatch(request.id, request.clients, samples, sent)
        replies = compress_answers(request, sent, self._store.residuals(request))
        memories.append(replies.residuals)
        return ReplyBatch(request.id, request.clients, samples, replies.answers, coded=replies.coded)

    def set_data(self, data: FederatedData) -> None:
        """Replace the clients' examples."""
        self._store.set_data(data)

    def save(self) -> dict[str, Any]:
        """Return what the clients store, as plain data."""
        return self._store.save()

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned."""
        self._store.load(saved)


def _joined(memories: list[Bank | list[Params]]) -> Bank | list[Params]:
    """The memories of all batches of a request."""
    banks = [each for each in memories if isinstance(each, dict)]
    if len(banks) == len(memories):
        return tree.concatenate(banks)
    return [own for each in memories for own in (tree.unstack(each) if isinstance(each, dict) else each)]
