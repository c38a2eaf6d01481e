"""`Server`: the implementation of `Federation`. `ask` prepares a request, sends it, and collects the replies.

    prepare.py     arguments of the call → checked `Request`
    transport      `Request` → `ReplyBatch`es (sequential.py, vectorized.py, wrapped by faults.py and attacks.py)
    collect.py     `ReplyBatch`es → `Replies`, each reply checked

`ServerState` is what the server knows about its clients between requests.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.aggregation import Aggregation
from coterie.clients.work import Work
from coterie.errors import Diverged, TooFewReplies
from coterie.federation.averaging import Averaging
from coterie.federation.cohort import Cohort
from coterie.federation.collect import NO_REPLY, NOT_FINITE, ReplyCollector
from coterie.federation.compression import Compression
from coterie.federation.merging import BatchTransport
from coterie.federation.messages import MISSING, ReplyBatch, Request
from coterie.federation.prepare import Preparation
from coterie.federation.protocol import Adapt, Mean, Then, means_of
from coterie.federation.replies import Replies
from coterie.federation.schema_checks import first_few
from coterie.federation.server_state import ServerState
from coterie.federation.traffic import Traffic
from coterie.federation.transport import Transport, send
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params, Part

if TYPE_CHECKING:
    from coterie.data.federated import FederatedData

#: The plain mean.
PLAIN = Aggregation()

#: Updates as they are.
UNCOMPRESSED = Compression()


class Server:
    """A federation whose clients are reached over a transport."""

    def __init__(
        self,
        transport: Transport,
        *,
        min_replies: int = 1,
        aggregation: Aggregation = PLAIN,
        averaging: Averaging | None = None,
        compression: Compression = UNCOMPRESSED,
        fit_part: Part = "fit",
    ) -> None:
        """Create a server.

        Args:
            transport: Reaches the clients.
            min_replies: Minimum number of valid replies to a request; with fewer, TooFewReplies is raised.
            aggregation: Rule by which models are averaged.
            averaging: The rule with clipping and noise, instead of `aggregation`.
            compression: How clients compress their updates.
            fit_part: The examples that requests for `fit` use: `rest` in runs that validate on `held`.
        """
        self._transport = transport
        self._fit_part: Part = fit_part
        self._min_replies = min_replies
        self._state = ServerState()
        self._evaluating = self._scoring = False
        self._exchanges = True
        self._averaging = averaging or Averaging(aggregation)
        self._compression = compression
        self._template: Params = transport.task.init(Seed(0))

    @property
    def clients(self) -> Sequence[ClientId]:
        """Client ids, sorted."""
        return self._transport.clients

    @property
    def task(self) -> Task:
        """The task that the clients learn."""
        return self._transport.task

    @property
    def traffic(self) -> Traffic:
        """Bytes sent down and up."""
        return self._state.traffic

    @property
    def robust(self) -> bool:
        """Whether models are averaged by a robust rule instead of the plain mean."""
        return self._averaging.aggregation.rule != "mean"

    @property
    def asks(self) -> int:
        """Number of requests so far."""
        return self._state.asks

    @property
    def training_seconds(self) -> float:
        """Duration so far of the requests in which clients train."""
        return self._state.training_seconds

    @property
    def rejected(self) -> Mapping[str, int]:
        """Reason → number of replies rejected so far."""
        return dict(self._state.rejected)

    @property
    def lost(self) -> int:
        """Number of replies so far that never arrived."""
        return self._state.lost

    @property
    def averaging(self) -> Averaging:
        """How models are averaged, and the releases so far."""
        return self._averaging

    def on(self, task: Task) -> Server:
        """Return a server with the same clients and state and another task."""
        other = copy.copy(self)
        other._transport = self._transport.on(task)
        other._template = task.init(Seed(0))
        return other

    def placing(self) -> Server:
        """Return a server without a minimum of replies: clients whose reply is lost are placed later."""
        other = copy.copy(self)
        other._min_replies, other._averaging = 0, self._averaging.placing()
        return other

    def evaluating(self, *, exchange: bool = True) -> Server:
        """Return a server with which a method places clients for an evaluation.

        Its traffic counts as evaluation, clients store nothing, and works that train get no reply.

        Args:
            exchange: Whether clients are reached at all; otherwise no request gets a reply.
        """
        other = self.placing()
        other._state, other._evaluating, other._exchanges = self._state.for_evaluation(), True, exchange
        return other

    def frozen(self, *, travels_with_others: bool = True) -> Server:
        """Return a server for one evaluation that keeps what is known now, with a traffic table of its own.

        Args:
            travels_with_others: Whether the requests of the evaluation travel with those of the next rounds.
        """
        other = copy.copy(self)
        other._state = self._state.frozen(travels_with_others=travels_with_others)
        return other

    def scoring(self) -> Server:
        """Return a server for the run's evaluation: it never trains, and it may ask for test examples."""
        other = self.evaluating()
        other._scoring = True
        return other

    def average(
        self,
        bank: Bank,
        weights: Sequence[float] | Array,
        *,
        clients: Sequence[ClientId] | None = None,
        start: Params | None = None,
    ) -> Params:
        """Average a bank of models; see `Federation.average`."""
        return self._averaging.average(bank, np.asarray(weights), clients, start)

    def begin(self) -> None:
        """Begin a round: `undo` restores the client memories of this moment."""
        self._state.begin_round()
        self._averaging.ledger.end_round()

    def note_checkpoint(self) -> None:
        """Record that the state of this moment is in a checkpoint: clients keep the memories that it names.

        Not needed where checkpoints contain the memories themselves, as those of simulations do.
        """
        if self._transport.outlives_server:
            self._state.note_checkpoint()

    def start_again(self, starts: int) -> None:
        """Use new request ids: the server was started `starts` times before, and clients remember those requests.

        Called after `load`: the clients keep the memories that the loaded state names.
        """
        self._state.starts = starts
        self._state.note_checkpoint()

    @property
    def restarted(self) -> bool:
        """Whether an earlier start of this server has asked the same clients."""
        return self._state.starts > 0

    def undo(self) -> None:
        """Skip the round: clients continue from their memories before it."""
        self._state.undo_round()

    def ask(
        self,
        cohort: Cohort | Iterable[ClientId],
        work: Work,
        seed: Seed,
        /,
        *,
        part: Part = "fit",
        reduce: Mean | Sequence[Mean] | None = None,
        deadline: float | None = None,
        after: Adapt | None = None,
        then: Then | None = None,
        min_replies: int | None = None,
        **sent: object,
    ) -> Replies:
        """Ask each client of a cohort to run a `Work`, and collect the valid replies; see `Federation.ask`."""
        prepare = Preparation(
            self._state, self.task, self._template, self._evaluating, self._scoring, self._compression, self._fit_part
        )
        request = prepare.request(cohort, work, seed, sent, part=part, deadline=deadline, after=after)
        second = None if then is None else prepare.second(request, then, seed, part=part, deadline=deadline)
        sampling = cohort.sampling if isinstance(cohort, Cohort) else None
        request, new_sums = self._averaging.sums(request, means_of(reduce), sampling, self._template)
        collector = ReplyCollector(request, self.task, self._template, reduce, new_sums)
        early: list[ReplyBatch] | None = None
        # Evaluation never trains: clients that would have to train give no reply.
        if request.clients and self._exchanges and not (self._evaluating and work.trains):
            early = self._exchange(request, collector, second)
        replies = self._accept(request, collector, self._min_replies if min_replies is None else min_replies)
        if second is None:
            return replies
        return dataclasses.replace(replies, then=self._second(second, replies, early))

    def _second(self, request: Request, first: Replies, early: list[ReplyBatch] | None) -> Replies:
        """The replies to the second of two requests, of the clients whose answers to the first one asked for it.

        Args:
            request: The second request.
            first: The replies to the first one.
            early: The replies that came in the same exchange; None: the request has not been sent.
        """
        assert request.when is not None
        wanted = {client for client, answer in first.by_client(request.when[1]).items() if answer} | request.always
        request = request.only([client for client in request.clients if client in wanted])
        collector = ReplyCollector(request, self.task, self._template)
        if request.clients or early:
            self._exchange(request, collector, received=early)
        return self._accept(request, collector, 0)

    def _exchange(
        self,
        request: Request,
        collector: ReplyCollector,
        second: Request | None = None,
        received: Iterable[ReplyBatch] | None = None,
    ) -> list[ReplyBatch] | None:
        """Send a request and collect the replies; send it again to clients that miss a cached value.

        Args:
            request: The request.
            collector: Collects the replies.
            second: A request that travels with it, if the transport can do that.
            received: The replies, if the request was already sent.

        Returns:
            The replies to `second`; None if it did not travel with the request.
        """
        start = time.perf_counter()
        early: list[ReplyBatch] | None = None
        if second is not None and isinstance(self._transport, BatchTransport):
            received, early = self._transport.send_all([request, second])
        missing: list[ClientId] = []
        if received is None:
            received = send(self._transport, request, collector.means)
        for batch in self._counted(request, received):
            if batch.problem == MISSING:
                missing.extend(batch.clients)
                collector.wait()
            else:
                self._state.reject(request, collector.take(batch))
        if missing:
            again = request.only(sorted(missing)).attached()
            self._state.forget(again)
            for batch in self._counted(again, send(self._transport, again)):
                self._state.reject(request, collector.take(batch))
        self._state.lost += sum(reason == NO_REPLY for reason in collector.lost.values())
        if request.work.trains or (early is not None and second is not None and second.work.trains):
            self._state.training_seconds += time.perf_counter() - start
        return early

    def _counted(self, request: Request, batches: Iterable[ReplyBatch]) -> Iterator[ReplyBatch]:
        """The replies to a request; counts the bytes of both."""
        self._state.count(request)
        for batch in batches:
            self.traffic.count_replies(request, batch)
            yield batch

    def _accept(self, request: Request, collector: ReplyCollector, min_replies: int) -> Replies:
        """Accept the valid replies; raise if there are too few, or if most replies are not finite."""
        work, accepted = request.work, collector.clients
        non_finite = sorted(client for client, reason in collector.lost.items() if reason == NOT_FINITE)
        replied = len(accepted) + len(non_finite)
        # Requests without a minimum often go to few clients, so a majority of these means little.
        if len(non_finite) > replied / 2 and (min_replies or self._evaluating):
            raise Diverged(
                f"{len(non_finite)} of {replied} replies to {work.name!r} are not finite ({first_few(non_finite)}); "
                "lower the learning rate or check the data of these clients"
            )
        minimum = min(min_replies, len(request.clients))
        if len(accepted) < minimum:
            raise TooFewReplies(
                f"{len(accepted)} of {len(request.clients)} clients replied to {work.name!r}; the minimum is {minimum}"
            )
        self._state.accept(request, accepted)
        return collector.replies()

    def set_data(self, data: FederatedData) -> None:
        """Replace the examples of simulated clients, as after a shift."""
        self._transport.set_data(data)

    def save(self) -> dict[str, Any]:
        """State of the server and of simulated clients as plain data, for a checkpoint."""
        saved = {**self._state.save(), "transport": self._transport.save()}
        if self._averaging.privacy.noise_multiplier:
            saved["privacy"] = self._averaging.ledger.save()
        return saved

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned."""
        self._state.load(saved)
        self._transport.load(saved["transport"])
        if self._transport.outlives_server:
            self.start_again(saved.get("starts", 0) + 1)
        if self._averaging.privacy.noise_multiplier:
            self._averaging.ledger.load(saved["privacy"])
