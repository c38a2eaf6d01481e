"""The server's half of every ask, written once: a federation is this desk with a carrier.

The desk numbers the asks, names to each client the memory that was accepted last, sends kept values once, counts the
bytes, checks each reply before a method sees it, adds replies up, and keeps the account that a checkpoint needs. The
carrier (sequential, vectorized, network) only brings orders to clients and replies back.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from coterie import codec, tree
from coterie.aggregation import Aggregation
from coterie.client_map import ClientMap
from coterie.clients import schema as schemas
from coterie.clients.schema import Model, Schema, Settings, Values
from coterie.clients.work import Work
from coterie.errors import Diverged, SpecError, TooFewReplies, unknown
from coterie.federation.cohort import Cohort
from coterie.federation.collect import NOT_FINITE, PLAIN, ReplyCollector, some
from coterie.federation.messages import LACKS, ReplyBatch, Request, Transport, carried
from coterie.federation.protocol import Adapt, Cached, Mean, PerClient
from coterie.federation.replies import Replies
from coterie.federation.traffic import Traffic
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import PARTS, Array, Bank, ClientId, Params, Part

log = logging.getLogger(__name__)

_HASH_BYTES = 16
_VERSION_BYTES = 8


@dataclasses.dataclass
class Account:
    """What the server knows about its clients; shared by the desks of all tasks of a federation.

    Attributes:
        traffic: Every byte.
        asks: How many asks there were; the next one's id.
        versions: Memory's name → client → the ask whose memory was accepted last.
        holdings: Hash of a kept value → the clients that confirmed having it.
        standing: `versions` before the round at hand.
        refused: Reason → how many replies were refused for it.
        seconds: Spent waiting for clients.
    """

    traffic: Traffic = dataclasses.field(default_factory=Traffic)
    asks: int = 0
    versions: dict[str, ClientMap[int]] = dataclasses.field(default_factory=dict)
    standing: dict[str, ClientMap[int]] = dataclasses.field(default_factory=dict)
    holdings: dict[str, set[ClientId]] = dataclasses.field(default_factory=dict)
    refused: dict[str, int] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0


class Server:
    """A federation whose clients a carrier reaches."""

    def __init__(
        self,
        transport: Transport,
        *,
        min_replies: int = 1,
        account: Account | None = None,
        evaluating: bool = False,
        aggregation: Aggregation = PLAIN,
    ) -> None:
        """Open a desk.

        Args:
            transport: Reaches the clients.
            min_replies: How many good replies an ask needs; fewer raise TooFewReplies.
            account: An account to go on with.
            evaluating: Whether all bytes of this desk are for evaluation.
            aggregation: How models are averaged.
        """
        self._transport = transport
        self._min_replies = min_replies
        self._account = account or Account()
        self._evaluating = evaluating
        self._aggregation = aggregation
        self._template: Params = transport.task.init(Seed(0))

    @property
    def clients(self) -> Sequence[ClientId]:
        """Their names, sorted."""
        return self._transport.clients

    @property
    def task(self) -> Task:
        """What the clients learn."""
        return self._transport.task

    @property
    def traffic(self) -> Traffic:
        """Bytes down and up."""
        return self._account.traffic

    @property
    def robust(self) -> bool:
        """Whether models are averaged by another rule than the plain mean."""
        return self._aggregation.rule != "mean"

    @property
    def seconds(self) -> float:
        """Spent waiting for clients so far."""
        return self._account.seconds

    @property
    def refused(self) -> Mapping[str, int]:
        """How many replies were refused so far, by reason."""
        return dict(self._account.refused)

    def on(self, task: Task) -> Server:
        """The same clients and the same account with another task."""
        return self._with(transport=self._transport.on(task))

    def evaluating(self) -> Server:
        """The same clients for scoring only: bytes count as evaluation, nothing that a client keeps counts as sent."""
        account = dataclasses.replace(
            self._account,
            holdings={key: set(clients) for key, clients in self._account.holdings.items()},
            versions=dict(self._account.versions),
        )
        return self._with(min_replies=0, account=account, evaluating=True)

    def placing(self) -> Server:
        """The same clients and the same account, where an ask may come back empty: who is lost is placed later."""
        return self._with(min_replies=0)

    def _with(self, **changes: Any) -> Server:
        same = {"transport": self._transport, "min_replies": self._min_replies, "account": self._account}
        return Server(**{**same, "evaluating": self._evaluating, "aggregation": self._aggregation, **changes})

    def average(self, bank: Bank, weights: Sequence[float] | Array) -> Params:
        """One model of several that were handed over; see `Federation.average`."""
        return self._aggregation.of(bank, np.asarray(weights))

    def begin(self) -> None:
        """A round begins: from here on, `undo` comes back to the memories as they are now."""
        self._account.standing = dict(self._account.versions)

    def undo(self) -> None:
        """A round is skipped: clients go on from what they remembered before it, whatever was accepted in it."""
        self._account.versions = dict(self._account.standing)

    def ask(
        self,
        cohort: Cohort | Iterable[ClientId],
        work: Work,
        seed: Seed,
        /,
        *,
        part: Part = "fit",
        reduce: Mean | None = None,
        deadline: float | None = None,
        after: Adapt | None = None,
        min_replies: int | None = None,
        **sent: Any,
    ) -> Replies:
        """Have each client of the cohort do a work, and gather the good replies; see `Federation.ask`."""
        order = self._order(cohort, work, seed, part, deadline, after, sent)
        t = cohort.t if isinstance(cohort, Cohort) else -1
        if reduce is not None:
            _check_reduction(order, reduce)
        collector = ReplyCollector(
            order, self._transport.task, self._template, reduce, self._check_sent(order), self._aggregation
        )
        # To be scored, nobody trains: whoever cannot be placed without lowers the coverage.
        if order.clients and not (self._evaluating and work.plan is not None):
            clock = time.perf_counter()
            self._count_down(t, order)
            lacking: list[ClientId] = []
            for block in carried(self._transport, order):
                if block.problem == LACKS:
                    lacking.extend(block.clients)
                    collector.hold()
                    continue
                self._take(t, block, collector)
            if lacking:
                self._resend(t, order, tuple(sorted(lacking)), collector)
            self._account.seconds += time.perf_counter() - clock
        return self._close(order, collector, self._min_replies if min_replies is None else min_replies)

    def _order(
        self,
        cohort: Cohort | Iterable[ClientId],
        work: Work,
        seed: Seed,
        part: Part,
        deadline: float | None,
        after: Adapt | None,
        sent: Mapping[str, Any],
    ) -> Request:
        if part not in PARTS:
            raise SpecError(unknown("part", part, PARTS))
        clients = cohort.clients if isinstance(cohort, Cohort) else tuple(sorted(set(cohort)))
        self._account.asks += 1
        number = self._account.asks
        ready = None if after is None else self._order(cohort, after.work, seed, "fit", deadline, None, after.sent)
        expected = set(work.takes) - ({"params"} if after is not None else set())
        if set(sent) != expected:
            raise SpecError(f"Work {work.name!r} takes {sorted(expected)}, was sent {sorted(sent)}")
        settings, shared, rows, once = {}, {}, {}, {}
        for name, value in sent.items():
            schema = work.takes[name]
            if isinstance(schema, Settings):
                if isinstance(value, PerClient | Cached):
                    raise SpecError(f"Work {work.name!r}: {name!r} are settings, which go to all alike; send them bare")
                settings[name] = value
            elif isinstance(value, PerClient):
                rows[name] = (value.bank, _rows_for(clients, value, f"Work {work.name!r}: {name!r}"))
            elif isinstance(value, Cached):
                shared[name] = value.value
                digest = hashlib.blake2b(codec.encode(value.value), digest_size=_HASH_BYTES).hexdigest()
                have = self._account.holdings.get(digest, set())
                once[name] = (digest, frozenset(client for client in clients if client not in have))
            else:
                shared[name] = value
        versions = self._account.versions.get(work.memory or "", ClientMap())
        standing = self._account.standing.get(work.memory or "", ClientMap())
        return Request(
            id=number,
            work=work,
            part=part,
            seed=seed,
            clients=clients,
            settings=settings,
            shared=shared,
            rows=rows,
            once=once,
            versions={client: versions[client] for client in clients if client in versions},
            standing={client: standing[client] for client in clients if client in standing},
            efforts=dict(cohort.efforts) if isinstance(cohort, Cohort) else {},
            deadline=deadline,
            after=ready,
            evaluating=self._evaluating,
        )

    def _check_sent(self, order: Request) -> dict[str, int]:
        """Refuse what the work does not take; the named dimensions of what was sent."""
        if order.after is not None:
            self._check_sent(order.after)
        dims: dict[str, int] = {}
        own = {name: tree.row(bank, 0) for name, (bank, _) in order.rows.items() if order.clients}
        for name, value in {**order.settings, **order.shared, **own}.items():
            fault = schemas.problem(order.work.takes[name], value, self._transport.task, self._template, dims)
            if fault:
                raise SpecError(f"Work {order.work.name!r}: what was sent as {name!r} {fault}")
        return dims

    def _count_down(self, t: int, order: Request) -> None:
        """Enter what goes to the clients."""
        traffic, many = self._account.traffic, len(order.clients)
        control = "evaluate" if self._evaluating else "control"
        for name, schema in order.work.takes.items():
            purpose = self._purpose(schema, order.work)
            if name in order.settings:
                traffic.add(t, "down", purpose, many * len(_settings_bytes(order.settings[name])))
            elif name in order.once:
                fresh = order.once[name][1].intersection(order.clients)
                traffic.add(t, "down", purpose, len(fresh) * _wire_bytes(order.shared[name]))
                traffic.add(t, "down", control, many * _HASH_BYTES)
            elif name in order.shared:
                traffic.add(t, "down", purpose, many * _wire_bytes(order.shared[name]))
            elif name in order.rows:
                bank, _ = order.rows[name]
                traffic.add(t, "down", purpose, many * (_wire_bytes(bank) // tree.rows(bank)))
        traffic.add(t, "down", control, len(order.versions) * _VERSION_BYTES)
        if order.after is not None:
            self._count_down(t, order.after)

    def _count_up(self, t: int, block: ReplyBatch, work: Work) -> None:
        for name, value in block.answers.items():
            if name in work.gives:
                self._account.traffic.add(t, "up", self._purpose(work.gives[name], work), _wire_bytes(value))

    def _purpose(self, schema: Schema, work: Work) -> str:
        return "evaluate" if self._evaluating else schemas.purpose_of(schema, work.purpose)

    def _take(self, t: int, block: ReplyBatch, collector: ReplyCollector) -> None:
        self._count_up(t, block, collector.order.work)
        for client, reason in collector.take(block):
            self._account.refused[reason] = self._account.refused.get(reason, 0) + 1
            log.warning("ask %d (%s): reply of %s refused: %s", block.order, collector.order.work.name, client, reason)

    def _resend(self, t: int, order: Request, lacking: tuple[ClientId, ...], collector: ReplyCollector) -> None:
        """The same ask again, with the kept values attached, for clients that turned out not to have them."""
        again = order.only(lacking).attached()
        for each in (again, again.after):
            for key, _ in each.once.values() if each is not None else ():
                self._account.holdings.get(key, set()).difference_update(lacking)
        self._count_down(t, again)
        for block in carried(self._transport, again):
            self._take(t, block, collector)

    def _close(self, order: Request, collector: ReplyCollector, min_replies: int) -> Replies:
        """Accept what came: memories, holdings; refuse an ask that went wrong as a whole."""
        accepted = collector.clients
        sick = sorted(client for client, reason in collector.lost.items() if reason == NOT_FINITE)
        # An ask that may come back empty is often one of few clients, whose majority says little.
        if len(sick) > (len(accepted) + len(sick)) / 2 and (min_replies or self._evaluating):
            raise Diverged(
                f"{len(sick)} of {len(accepted) + len(sick)} replies to {order.work.name!r} are not finite "
                f"({some(sick)}); lower the rate or look at their data"
            )
        if order.clients and len(accepted) < min(min_replies, len(order.clients)):
            raise TooFewReplies(
                f"{len(accepted)} of {len(order.clients)} clients replied to {order.work.name!r}; the minimum is "
                f"{min_replies}"
            )
        if order.work.memory is not None and not order.work.recalls and not order.evaluating:
            kept = self._account.versions.get(order.work.memory, ClientMap())
            self._account.versions[order.work.memory] = kept.set(dict.fromkeys(accepted, order.id))
        for each in (order, order.after):
            for key, _ in each.once.values() if each is not None else ():
                self._account.holdings.setdefault(key, set()).update(accepted)
        return collector.replies()

    def move(self, data: Any) -> None:
        """Give simulated clients other examples: the world has changed."""
        self._transport.move(data)

    def save(self) -> dict[str, Any]:
        """Account and simulated clients as plain data, for a checkpoint."""
        account = self._account
        return {
            "traffic": account.traffic.save(),
            "asks": account.asks,
            "versions": dict(account.versions),
            "holdings": {key: sorted(clients) for key, clients in account.holdings.items()},
            "refused": dict(account.refused),
            "transport": self._transport.save(),
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take over what was saved."""
        account = self._account
        account.traffic.load(saved["traffic"])
        account.asks = saved["asks"]
        account.versions = dict(saved["versions"])
        account.standing = dict(saved["versions"])
        account.holdings = {key: set(clients) for key, clients in saved["holdings"].items()}
        account.refused = dict(saved["refused"])
        self._transport.load(saved["transport"])


def _check_reduction(order: Request, how: Mean) -> None:
    """Refuse a sum that cannot be made."""
    gives, what = order.work.gives, f"Work {order.work.name!r}"
    schema = gives.get(how.of)
    if not isinstance(schema, Model) or schema.stack or schema.partial:
        raise SpecError(f"{what} gives no model {how.of!r} to reduce")
    if isinstance(how.by, str):
        group = gives.get(how.by)
        if not isinstance(group, Values) or group.shape or np.dtype(group.dtype).kind not in "iu":
            raise SpecError(f"{what} gives no whole number {how.by!r} to group by")
    elif how.by is not None:
        strays = [client for client in order.clients if not 0 <= how.by.get(client, -1) < how.groups]
        if strays:
            raise SpecError(f"{what} is reduced to groups 0 to {how.groups - 1}, but {some(strays)} are in none")


def _rows_for(clients: tuple[ClientId, ...], sent: PerClient, what: str) -> Array:
    """The row of each client, which must be there."""
    missing = [client for client in clients if client not in sent.row]
    if missing:
        raise SpecError(f"{what} was sent by rows, but has none for {some(missing)}")
    rows = np.array([sent.row[client] for client in clients], np.int64)
    if not clients:  # who asks nobody may have no models either
        return rows
    lengths = sorted({len(leaf) for leaf in tree.leaves(sent.bank)})
    if lengths[0] < 1 or len(lengths) > 1:
        raise SpecError(f"{what} is no stack: its arrays hold {some([str(n) for n in lengths])} rows")
    if not 0 <= rows.min() <= rows.max() < tree.rows(sent.bank):
        raise SpecError(f"{what} has rows 0 to {tree.rows(sent.bank) - 1}, was asked for {rows.min()} to {rows.max()}")
    return rows


def _wire_bytes(value: Any) -> int:
    return sum(_wire_bytes(item) for item in value) if isinstance(value, list) else tree.nbytes(value)


def _settings_bytes(settings: Any) -> bytes:
    return json.dumps(dataclasses.asdict(settings), separators=(",", ":")).encode()
