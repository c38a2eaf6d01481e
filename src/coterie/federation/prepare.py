"""First step of `Server.ask`: turn the arguments into a checked `Request`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import field

import numpy as np

from coterie import tree
from coterie.client_map import ClientMap
from coterie.clients.schema import Settings, Values
from coterie.clients.work import Work
from coterie.errors import SpecError, shown, unknown
from coterie.federation.cohort import Cohort
from coterie.federation.compression import Compression
from coterie.federation.messages import RESIDUAL, Request
from coterie.federation.protocol import Adapt, Cached, PerClient, Then
from coterie.federation.schema_checks import check_sent, first_few
from coterie.federation.server_state import ServerState
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import PARTS, Array, ClientId, Params, Part


@dataclasses.dataclass(frozen=True)
class Preparation:
    """Turns the arguments of `Server.ask` into requests.

    Attributes:
        state: What the server knows about its clients; it also numbers the requests.
        task: The task of the clients.
        template: A model of that task.
        evaluating: Whether the requests are only for evaluation.
        scoring: Whether they may use test examples.
        compression: How clients compress their updates.
        fit_part: The examples that a request for `fit` uses: `rest` in runs that validate on `held`.
    """

    state: ServerState
    task: Task
    template: Params
    evaluating: bool = False
    scoring: bool = False
    compression: Compression = field(default_factory=Compression)
    fit_part: Part = "fit"

    def request(
        self,
        cohort: Cohort | Iterable[ClientId],
        work: Work,
        seed: Seed,
        sent: Mapping[str, object],
        *,
        part: Part = "fit",
        deadline: float | None = None,
        after: Adapt | None = None,
    ) -> Request:
        """Create a request, with all sent values checked against what the work takes."""
        if not isinstance(work, Work):
            raise SpecError(
                f"ask takes a Work, got {shown(work)}; a function becomes one with Work(name, ..., body=function)"
            )
        if part not in PARTS:
            raise SpecError(unknown("part", part, PARTS))
        if part == "test" and not self.scoring:
            raise SpecError(
                f"Work {work.name!r} was asked for test examples, which only the run's evaluation may use; ask for "
                "part='held' to choose settings or clusters"
            )
        cohort = cohort if isinstance(cohort, Cohort) else Cohort(-1, tuple(cohort), seed, ())
        self.state.asks += 1
        request = Request(
            id=self.state.new_id(evaluating=self.evaluating),
            work=work,
            part=self.fit_part if part == "fit" else part,
            seed=seed,
            clients=cohort.clients,
            t=cohort.t,
            efforts=dict(cohort.efforts),
            deadline=deadline,
            task=self.task,
            evaluating=self.evaluating,
        )
        if after is not None:
            # The answers of the first work stay with the client.
            before = dataclasses.replace(self, compression=Compression())
            first = before.request(cohort, after.work, seed, after.sent, deadline=deadline)
            request = dataclasses.replace(request, after=first)
        request = self._with_versions(self._with_compression(request))
        request = self._with_sent(request, sent)
        return dataclasses.replace(request, dims=check_sent(request, self.task, self.template))

    def second(self, first: Request, then: Then, seed: Seed, *, part: Part, deadline: float | None) -> Request:
        """Create the second of two requests that travel together."""
        work, schema = then.work, first.work.gives.get(then.when)
        if not isinstance(schema, Values) or schema.shape:
            raise SpecError(f"Work {first.work.name!r} has no answer {then.when!r} with one number per client")
        if work.memory is not None and work.memory == first.work.memory:
            raise SpecError(f"Works {first.work.name!r} and {work.name!r} use the same memory; ask for them one by one")
        if others := set(then.cohort).difference(first.clients):
            raise SpecError(
                f"Work {work.name!r} follows {first.work.name!r}, which is not asked of {first_few(sorted(others))}"
            )
        request = self.request(then.cohort, work, seed, then.sent, part=part, deadline=deadline)
        return dataclasses.replace(request, when=(first.id, then.when), always=then.always)

    def _with_sent(self, request: Request, sent: Mapping[str, object]) -> Request:
        """Add the sent values to a request: settings, shared, per client or cached."""
        work = request.work
        expected = set(work.takes) - ({"params"} if request.after is not None else set())
        if set(sent) != expected:
            raise SpecError(f"Work {work.name!r} takes {sorted(expected)}, was sent {sorted(sent)}")
        settings, shared, per_client, cached = {}, {}, {}, {}
        for name, value in sent.items():
            if isinstance(work.takes[name], Settings):
                if isinstance(value, PerClient | Cached):
                    raise SpecError(f"Work {work.name!r}: {name!r} are settings; send them without PerClient or Cached")
                settings[name] = value
            elif isinstance(value, PerClient):
                rows = _rows(request.clients, value, f"Work {work.name!r}: {name!r}")
                per_client[name] = (value.bank, rows)
            elif isinstance(value, Cached):
                shared[name] = value.value
                digest = self.state.digest(value.value)
                cached[name] = (digest, self.state.without(digest, request.clients))
            else:
                shared[name] = value
        return dataclasses.replace(request, settings=settings, shared=shared, per_client=per_client, cached=cached)

    def _with_compression(self, request: Request) -> Request:
        """Name the answers that clients compress: none in evaluations, and none that start from their own models."""
        if request.evaluating or request.after is not None:
            return request
        names = self.compression.answers(request.work, self.template)
        if not names:
            return request
        # Tasks have their own residuals: their updates have different sizes.
        residual = f"{RESIDUAL}/{request.work.name}/{self.task.name}/{tree.size(trainable(self.template))}"
        return dataclasses.replace(request, compressed=names, compression=self.compression, residual=residual)

    def _with_versions(self, request: Request) -> Request:
        """Add the versions of the client memory that the request uses."""
        state, name, clients = self.state, request.memory, request.clients
        if name is None:
            return request
        versions = _versions(state.versions, name, clients)
        unchanged = state.versions.get(name) is state.versions_before_round.get(name)
        before = versions if unchanged else _versions(state.versions_before_round, name, clients)
        return dataclasses.replace(
            request,
            versions=versions,
            versions_before_round=before,
            versions_in_checkpoints=self._versions_in_checkpoints(name, clients),
        )

    def _versions_in_checkpoints(self, name: str, clients: Iterable[ClientId]) -> dict[ClientId, tuple[int, ...]]:
        """Client → versions of a memory that a checkpoint of the server names."""
        found: dict[ClientId, tuple[int, ...]] = {}
        for versions in [_versions(versions, name, clients) for versions in self.state.checkpoints]:
            for client, version in versions.items():
                found[client] = (*found.get(client, ()), version)
        return {client: tuple(sorted(set(versions))) for client, versions in found.items()}


def _versions(versions: Mapping[str, ClientMap[int]], name: str, clients: Iterable[ClientId]) -> dict[ClientId, int]:
    """Client → accepted version of a memory."""
    known: ClientMap[int] = versions.get(name, ClientMap())
    return known.among(clients)


def _rows(clients: tuple[ClientId, ...], sent: PerClient, value: str) -> Array:
    """The row of each client; raises if one is missing or out of range."""
    try:
        rows = np.array([sent.row[client] for client in clients], np.int64)
    except KeyError as fault:
        missing = [client for client in clients if client not in sent.row]
        raise SpecError(
            f"{value} is sent per client, but has no row for {first_few(missing)}. Clients whose reply was lost are "
            "not in `replies.clients`; ask those that have a row: cohort.of(row)"
        ) from fault
    if not clients:  # then the bank may be empty too
        return rows
    lengths = sorted({len(leaf) for leaf in tree.leaves(sent.bank)})
    if lengths[0] < 1 or len(lengths) > 1:
        raise SpecError(f"{value} is not a stack: its arrays have {first_few([str(n) for n in lengths])} rows")
    if not 0 <= rows.min() <= rows.max() < tree.rows(sent.bank):
        raise SpecError(f"{value} has rows 0 to {tree.rows(sent.bank) - 1}, got rows {rows.min()} to {rows.max()}")
    return rows
