"""`serve_in_process`: a run as `coterie serve` makes it, with clients in this process."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from coterie import methods
from coterie.data.description import ClientFacts, described
from coterie.data.federated import FederatedData
from coterie.federation import Cohort
from coterie.federation.messages import ReplyBatch, Request
from coterie.federation.network.channel import InProcessChannel
from coterie.federation.network.remote import Connection, Remote, Sent
from coterie.federation.network.roster import Roster
from coterie.federation.network.site import Site
from coterie.federation.network.wire import Held
from coterie.federation.transport import TransportWrapper
from coterie.models import Task
from coterie.runs.build import build_server, server_spec
from coterie.runs.loop import run_built
from coterie.runs.record import RunRecord
from coterie.runs.resolve import complete
from coterie.runs.sampling import LiveSampler
from coterie.runs.spec import Named, Spec, SpecLike
from coterie.seeds import Seed
from coterie.types import ClientId

#: Called when a step begins: number of the round, or -1 for a preparation step, and what was sent before it.
OnStep = Callable[[int, Sent], None]


def serve_in_process(
    spec: SpecLike, data: FederatedData, *, alone: bool = False, on_step: OnStep | None = None
) -> tuple[RunRecord, Sent]:
    """Run a spec over the network code, with clients in this process: every message is encoded and decoded.

    The result is that of `coterie.run(spec, data=data)`, to the byte if `run.threads` is 1. Use it to see what a method
    costs between machines: there each exchange takes seconds, whatever is sent in it.

        record, sent = serve_in_process({"method": "ifca", "run": {"rounds": 10}}, coterie.data.load("digits"))
        print(sent.exchanges, "exchanges,", sent.down + sent.up, "bytes")

    Args:
        spec: What to run; [data] is replaced by `data`.
        data: The data of all clients.
        alone: Whether each request travels in an exchange of its own. Otherwise requests of evaluations travel with
            those of the next rounds, and the second request of an `ask(then=...)` with the first one.
        on_step: Called when a step begins.

    Returns:
        The record of the run, and what the server has sent and received.
    """
    given = dataclasses.replace(Spec.of(spec), data=Named(data.name, {"held_share": data.held_share}))
    if alone:
        given = dataclasses.replace(given, network=dataclasses.replace(given.network, merge=False))
    about = described(data)
    resolved, task = complete(server_spec(given), about)
    roster = _joined(data)
    run = resolved.run
    with tempfile.TemporaryDirectory(prefix="coterie-") as folder:
        sites = _sites(data, Path(folder), run.threads or None)
        channel = InProcessChannel({client: site.answer for client, site in sites.items()})
        held = Held(data.held_share, data.held_seed)
        connection = Connection(channel, roster, "in-process", backend=run.backend, held=held)
        remote = Remote(connection, task)
        live = LiveSampler(roster, run.clients_per_round, Seed(run.seed), run.sampler, run.stragglers)
        sampler = live if on_step is None else _Observed(live, on_step, remote.sent)
        transport = _OneByOne(remote) if alone else remote
        # `build_server` sends requests one by one over a transport that cannot send several.
        built = build_server(resolved, about, task, transport, sampler)  # type: ignore[arg-type]
        return run_built(built), remote.sent


def _joined(data: FederatedData) -> Roster:
    """All clients, present from the start."""
    keys = {client: str(client) for client in data.clients}
    roster = Roster(lambda: keys, lambda: list(keys.values()))
    roster.refresh()
    for client in data.clients:
        roster.join(client, ClientFacts.of(data.only(client)))
    roster.begin()
    return roster


def _sites(data: FederatedData, folder: Path, threads: int | None) -> dict[ClientId, Site]:
    for name in methods.names():  # a client runs the works that it knows, whatever method they belong to
        methods.method_class(name)
    return {
        client: Site(data.only(client), folder / str(place), threads=threads)
        for place, client in enumerate(data.clients)
    }


class _OneByOne(TransportWrapper):
    """A transport that cannot send several requests in one exchange."""

    def on(self, task: Task) -> _OneByOne:
        """Return the same transport with another task."""
        return _OneByOne(self._transport.on(task))

    @property
    def sent(self) -> Sent:
        """What was sent so far."""
        assert isinstance(self._transport, Remote)
        return self._transport.sent

    def send(self, request: Request) -> Iterator[ReplyBatch]:
        """Send a request."""
        return self._transport.send(request)


@dataclass(frozen=True)
class _Observed:
    """A sampler that reports when a step begins."""

    sampler: LiveSampler
    on_step: OnStep
    sent: Sent

    def cohort(self, t: int) -> Cohort:
        """Return the cohort of round t."""
        self.on_step(t, self.sent)
        return self.sampler.cohort(t)

    def all_clients(self, step: int, t: int = 0) -> Cohort:
        """Return all clients that are present, for a preparation step."""
        self.on_step(-1, self.sent)
        return self.sampler.all_clients(step, t)

    def present(self, clients: Sequence[ClientId], t: int) -> tuple[ClientId, ...]:
        """Return the clients that have joined."""
        return self.sampler.present(clients, t)

    def joining(self, t: int, *, last: bool = False) -> tuple[ClientId, ...]:
        """Return the clients that have joined since the last step."""
        return self.sampler.joining(t, last=last)
