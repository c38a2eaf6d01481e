"""Last step of `Server.ask`: check replies as they arrive, keep or reject each, and average them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from coterie import tree
from coterie.clients.schema import Model, Schema, Values
from coterie.federation.messages import Answer, ReplyBatch, Request, Summed, take
from coterie.federation.privacy import clip_answers
from coterie.federation.protocol import Mean, means_of
from coterie.federation.reduce import BlockReduction, Reduction
from coterie.federation.replies import Replies
from coterie.federation.schema_checks import check_mean, reply_problem
from coterie.federation.traffic import Traffic
from coterie.models import Task
from coterie.types import Array, ClientId, Params

#: Reason for rejecting a reply that contains NaN or infinity.
NOT_FINITE = "not finite"

#: Reason of a client whose reply never arrived.
NO_REPLY = "no reply"


class ReplyCollector:
    """Collects the replies to one request.

    Attributes:
        lost: Client without a valid reply so far → reason.
    """

    def __init__(
        self,
        request: Request,
        task: Task,
        template: Params,
        reduce: Mean | Sequence[Mean] | None = None,
        new_sums: Callable[[Mean], Reduction] | None = None,
    ) -> None:
        """Start without replies.

        Args:
            request: The request.
            task: The task of the clients.
            template: A model of that task.
            reduce: How to average replies; None: keep each of them.
            new_sums: Creates the sums of a mean; None: sums of the plain mean.
        """
        means = means_of(reduce)
        for mean in means:
            check_mean(mean, request, template)
        self.lost: dict[ClientId, str] = dict.fromkeys(request.clients, NO_REPLY)
        self._request = request
        self._task = task
        self._template = template
        self._reductions = [Reduction(mean, template) if new_sums is None else new_sums(mean) for mean in means]
        self._reduced = {mean.of for mean in means}
        self._batches: list[ReplyBatch] = []
        self._seen: set[ClientId] = set()
        self._asked = dict(zip(request.clients, range(len(request.clients)), strict=True))
        self._dims = dict(request.dims)
        self._waits = False

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """Clients with a valid reply so far, in the order of arrival."""
        if len(self._batches) == 1:
            return self._batches[0].clients
        return tuple(client for batch in self._batches for client in batch.clients)

    @property
    def means(self) -> tuple[Mean, ...]:
        """The means that another process may sum: all, or none if this process needs the models."""
        means = tuple(each.how for each in self._reductions)
        plain = all(type(each) is Reduction for each in self._reductions)
        # With `first`, the weight of a client depends on the replies before it.
        return means if plain and not self._waits and all(mean.weights != "first" for mean in means) else ()

    def wait(self) -> None:
        """Average only at the end, because some replies arrive out of order: models are added in the order of ids."""
        self._waits = bool(self._reductions)

    def take(self, batch: ReplyBatch) -> list[tuple[ClientId, str]]:
        """Keep the valid replies of a batch; returns the clients of rejected replies, with reasons."""
        if batch.summed is not None:
            return self._take_sums(batch, batch.summed)
        dims = {**self._dims, "replies": len(batch.clients)}
        rejected = self._rejected(batch, dims)
        for place, reason in rejected.items():
            if batch.clients[place] in self._asked and reason not in ("repeated", "of another ask"):
                self.lost[batch.clients[place]] = reason
        if len(rejected) < len(batch.clients):
            self._dims = dims  # the first valid reply fixes the dimensions that the work leaves open
            valid = [place for place in range(len(batch.clients)) if place not in rejected] if rejected else None
            self._keep(batch if valid is None else batch.take(valid))
        return [(batch.clients[place], reason) for place, reason in sorted(rejected.items())]

    def _take_sums(self, batch: ReplyBatch, summed: Summed) -> list[tuple[ClientId, str]]:
        self._dims |= summed.dims
        self.lost |= summed.rejected
        for each, sums in zip(self._reductions, summed.sums, strict=True):
            each.add_sums(sums)
        for client in batch.clients:
            self._seen.add(client)
            del self.lost[client]
        self._batches.append(dataclasses.replace(batch, summed=None))
        return sorted(summed.rejected.items())

    def summed(self, traffic: Traffic) -> ReplyBatch:
        """The replies with the sums of their models, for the process that adds them up.

        The sums must be `BlockReduction`s.

        Args:
            traffic: Has counted the replies.
        """
        clients, samples, answers = self._joined()
        up = {purpose: ways["up"] for purpose, ways in traffic.by_purpose().items()}
        sums = tuple(each.sums() for each in self._reductions if isinstance(each, BlockReduction))
        return ReplyBatch(
            self._request.id, clients, samples, answers, summed=Summed(sums, dict(self.lost), up, self._dims)
        )

    def _rejected(self, batch: ReplyBatch, dims: dict[str, int]) -> dict[int, str]:
        """Position in the batch → reason for rejection; `dims` collects the named dimensions."""
        problem = batch.problem or ("late" if batch.late else None)
        problem = problem or reply_problem(batch, self._request.work, self._task, self._template, dims)
        rejected: dict[int, str] = {}
        in_batch: set[ClientId] = set()
        # Replies of exactly the clients that were asked need no look at each.
        expected = batch.request == self._request.id and batch.clients == self._request.clients and not self._seen
        for place, client in enumerate(() if expected and not problem else batch.clients):
            if batch.request != self._request.id:
                rejected[place] = "of another ask"
            elif client not in self._asked:
                rejected[place] = "not asked"
            elif client in self._seen or client in in_batch:
                rejected[place] = "repeated"
            elif problem:
                rejected[place] = problem
            in_batch.add(client)
        if not problem:
            for place in np.flatnonzero(~_finite_rows(batch)).tolist():
                rejected.setdefault(place, NOT_FINITE)
            for place in np.flatnonzero(~self._has_group(batch)).tolist():
                rejected.setdefault(place, "no such group")
        return rejected

    def _has_group(self, batch: ReplyBatch) -> Array:
        """Which replies have a valid group; all of them if the group is not part of the reply."""
        valid = np.ones(len(batch.clients), bool)
        for each in self._reductions:
            if isinstance(each.how.by, str):
                groups = np.asarray(batch.answers[each.how.by])
                valid &= (groups >= 0) & (groups < each.how.groups)
        return valid

    def _keep(self, batch: ReplyBatch) -> None:
        self._seen.update(batch.clients)
        if len(batch.clients) == len(self.lost):  # the common case: all that were asked reply in one batch
            self.lost.clear()
        for client in batch.clients if self.lost else ():
            del self.lost[client]
        batch = dataclasses.replace(batch, coded={}) if batch.coded else batch  # not needed any more
        if self._reductions and not self._waits:
            self._reduce(batch.clients, batch.answers, batch.samples)
            rest = {name: value for name, value in batch.answers.items() if name not in self._reduced}
            batch = dataclasses.replace(batch, answers=rest)
        self._batches.append(batch)

    def _reduce(self, clients: tuple[ClientId, ...], answers: Mapping[str, Answer], samples: Array) -> None:
        answers = clip_answers(self._request, clients, answers)  # again: a malicious client may not have clipped
        places = [self._asked[client] for client in clients]
        for each in self._reductions:
            each.add(clients, answers, samples, places)

    def replies(self) -> Replies:
        """All valid replies, in the order of client ids."""
        clients, samples, answers = self._joined()
        in_order = clients == self._request.clients  # which are sorted
        order = [] if in_order else sorted(range(len(clients)), key=clients.__getitem__)
        if order != list(range(len(order))):
            assert not self._reductions or self._waits, "a transport must return replies in the order of client ids"
            clients = tuple(clients[place] for place in order)
            samples = samples[order]
            answers = {name: take(value, order) for name, value in answers.items()}
        if self._waits:
            if clients:
                self._reduce(clients, answers, samples)
            answers = {name: value for name, value in answers.items() if name not in self._reduced}
        return Replies(clients, samples, answers, tuple(each.result() for each in self._reductions), dict(self.lost))

    def _joined(self) -> tuple[tuple[ClientId, ...], Array, dict[str, Answer]]:
        """The clients with a valid reply, in the order of arrival, their numbers of examples, and their answers."""
        batches, gives = self._batches, self._request.work.gives
        samples = np.concatenate([np.zeros(0, np.int64), *(batch.samples for batch in batches)])
        names = [name for name in gives if self._waits or name not in self._reduced]
        answers = {
            name: _join([batch.answers[name] for batch in batches]) if batches else self._empty(gives[name])
            for name in names
        }
        return self.clients, samples, answers

    def _empty(self, schema: Schema) -> Answer:
        """An answer with zero rows; dimensions that no sent value fixes are 0."""
        if isinstance(schema, Model):
            return tree.map(lambda leaf: np.zeros((0, *leaf.shape), leaf.dtype), self._template)
        if isinstance(schema, Values):
            known = {"classes": self._task.classes or 0, **self._dims}
            shape = (size if isinstance(size, int) else known.get(size, 0) for size in schema.shape)
            return np.zeros((0, *shape), schema.dtype)
        return []


def _finite_rows(batch: ReplyBatch) -> Array:
    """Which replies contain only finite numbers; fast if all do."""
    finite = np.ones(len(batch.clients), bool)
    for value in batch.answers.values():
        if isinstance(value, list):
            finite &= np.array([all(tree.finite(array) for array in arrays) for arrays in value], bool)
            continue
        for leaf in tree.leaves(value):
            if leaf.dtype.kind != "f":
                continue
            with np.errstate(over="ignore"):  # the square of a large finite number may overflow
                square = np.dot(leaf.reshape(-1), leaf.reshape(-1))
            if not np.isfinite(square):
                finite &= np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)
    return finite


def _join(values: list[Answer]) -> Answer:
    """Concatenate the answers of several batches."""
    if isinstance(values[0], list):
        return [arrays for value in values if isinstance(value, list) for arrays in value]
    return tree.concatenate(values)
