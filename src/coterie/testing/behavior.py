"""Checks of what a method does with its clients: whom it asks, for what, and what it makes of lost replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from coterie import codec
from coterie.federation import Faults
from coterie.methods.protocol import Method
from coterie.runs.session import Session, Step
from coterie.seeds import Seed
from coterie.testing.harness import NEWCOMERS, Harness
from coterie.testing.observation import Ask, Call, Observed
from coterie.testing.states import AGREEMENT, change_of, distance
from coterie.testing.transports import Losing
from coterie.types import ClientId

#: Random stream of the main local training of a round (`Work.stream`).
MAIN_TRAINING = "batches"


def asks_only_the_clients_of_the_round(harness: Harness) -> None:
    """Requests of a round go to the cohort or to clients drawn from it, never to `test`, with new batches each round.

    A method that asks all available clients says why in its attribute `asks_all`. Stragglers are left out, or do the
    part of the local training that the cohort says.
    """
    session, observed = observed_session(harness, stragglers=0.4)
    harness.finish(session)
    used: dict[tuple[Seed, ClientId], int] = {}
    for call in observed.calls:
        for ask in call.asks:
            assert ask.part != "test", (
                f"the work {ask.work.name!r} runs on the test examples; methods use 'fit', 'held' or 'rest'"
            )
            if call.cohort is not None:
                _check_clients(call, ask, getattr(observed.method, "asks_all", ""))
            if call.stage == "train" and ask.work.stream == MAIN_TRAINING and call.cohort is not None:
                for client in ask.clients:
                    earlier = used.setdefault((ask.seed, client), call.cohort.t)
                    assert earlier == call.cohort.t, (
                        f"client {client!r} trains with the same seed in rounds t={earlier} and t={call.cohort.t}, on "
                        "the same batches; use the seed that `round` gets"
                    )


def _check_clients(call: Call, ask: Ask, asks_all: str) -> None:
    cohort, what = call.cohort, f"the work {ask.work.name!r}"
    assert cohort is not None
    absent = sorted(set(ask.clients) - set(cohort.available))
    assert not absent, f"{what} is asked of clients that are not available: {absent}; use cohort.available"
    if call.stage == "prepare":
        return
    others = sorted(set(ask.clients) - set(cohort) - call.drawn)
    assert not others or asks_all, (
        f"in round t={cohort.t} {what} is asked of clients outside the cohort: {others}; ask the cohort, draw clients "
        "with cohort.draw, or say in the attribute `asks_all` of the method why all clients are asked"
    )
    if ask.work.stream == MAIN_TRAINING and not others:
        for client, effort in cohort.efforts.items():
            assert client not in ask.clients or ask.efforts.get(client) == effort, (
                f"the straggler {client!r} trains completely in round t={cohort.t}; pass the cohort to `ask`, or leave "
                "stragglers out: cohort.active()"
            )


def a_lost_reply_is_like_an_absent_client(harness: Harness) -> None:
    """A round in which all replies of a client are lost gives the same as a round without that client.

    A method that draws clients of its own may draw more of them for a larger cohort. Of such a round only the report is
    checked: it must not contain the lost client.
    """
    before = _second_round(harness)
    if before is None:
        return
    session, client = before
    (one, lost, drawn), (other, absent, _) = (
        _round_without_replies_of(client, harness, session.save(), absent=left_out) for left_out in ((), (client,))
    )
    if lost.round is not None:
        for name in ("assignment", "distances"):
            assert client not in getattr(lost.round, name), (
                f"Round.{name} of round t={lost.t} has client {client!r}, whose replies were lost; use the clients "
                "that replied: replies.clients"
            )
    if drawn:
        return
    assert (lost.skipped is None) == (absent.skipped is None), (
        f"round t={lost.t} is {'skipped' if lost.skipped else 'not skipped'} if the replies of client {client!r} are "
        "lost, unlike a round without that client"
    )
    if lost.round is None or absent.round is None:
        return
    found, expected = dict(lost.round.assignment), dict(absent.round.assignment)
    assert found == expected, (
        f"the replies of client {client!r} were lost in round t={lost.t}, and the clusters of the other clients differ "
        f"from those in a round without it: {found} and {expected}; index by replies.clients, not by the cohort"
    )
    difference, change = distance(one.state, other.state), change_of(one.state, session.state)
    assert difference <= AGREEMENT * max(change, 1e-12), (
        f"the replies of client {client!r} were lost in round t={lost.t}, and the state differs by {difference:.2e} "
        f"from that of a round without it, after a change of {change:.2e}; weights and means must be those of the "
        "replies to this request"
    )


def _second_round(harness: Harness) -> tuple[Session[Any], ClientId] | None:
    """A session before its second round, and a client of that round; None if the method has no second round.

    The client took part before, so that its earlier reply could be used by mistake. It is not the last one of the
    cohort: without it, others change their positions.
    """
    session = harness.session()
    sampler = harness.sampler(session.clients[:-NEWCOMERS])
    earlier: set[ClientId] = set()
    while not session.finished(harness.rounds):
        if session.stage == "train" and earlier:
            return session, min(earlier.intersection(sampler.cohort(session.t)))
        step = session.step()
        if step.stage == "train":
            earlier.update(step.cohort)
    return None


def _round_without_replies_of(
    client: ClientId, harness: Harness, saved: bytes, absent: tuple[ClientId, ...]
) -> tuple[Session[Any], Step[Any], set[ClientId]]:
    """The next round of a saved session with all replies of a client lost, and the clients that the method drew."""
    session, observed = observed_session(harness, wrap=lambda inner: Losing(inner, {client}), absent=absent)
    session.load(codec.decode(saved))
    step = session.step()
    return session, step, observed.calls[-1].drawn


def a_round_without_replies_changes_nothing(harness: Harness) -> None:
    """If no client replies, the round is skipped or the state stays the same. A skipped round changes no model."""
    session = harness.session(faults=Faults(drop=1.0))
    before = codec.encode(session.state)
    initial = session.state
    step = session.step()
    check_skipped(step, initial, session.state)
    assert step.skipped is not None or codec.encode(session.state) == before, "the state changed without replies"
    losing: list[Losing] = []
    session = harness.session(wrap=_collect(losing))
    trained = False
    for step in steps_of(harness, session):
        trained = trained or step.stage == "train"
        if trained and session.stage == "train":
            break
    if session.finished(harness.rounds):
        return
    losing[0].lost.update(session.clients)
    earlier = session.state
    step = session.step()
    check_skipped(step, earlier, session.state)
    assert distance(earlier, session.state) == 0, (
        f"no client replied in round t={step.t}, and the models in the state changed"
    )


def steps_of(harness: Harness, session: Session[Any]) -> Iterator[Step[Any]]:
    """Run a session to the end, and check of each step that is skipped that it changes no model."""
    earlier = session.state
    for step in harness.steps(session):
        check_skipped(step, earlier, session.state)
        yield step
        earlier = session.state


def check_skipped(step: Step[Any], before: object, after: object) -> None:
    """Check that a skipped step changes no array of floats in the state; counters may change."""
    assert step.skipped is None or distance(before, after) == 0, (
        f"round t={step.t} is reported as skipped ({step.skipped}), and the models in the state changed; return the "
        "old models, or leave Round.skipped at None"
    )


def observed_session(harness: Harness, **options: Any) -> tuple[Session[Any], Observed]:
    """A session with an observed method."""
    made: list[Observed] = []

    def observe(method: Method[Any]) -> Method[Any]:
        made.append(Observed(method))
        return made[0]

    return harness.session(observe=observe, **options), made[0]


def _collect(found: list[Losing]) -> Callable[[Any], Losing]:
    def wrap(transport: Any) -> Losing:
        found.append(Losing(transport))
        return found[-1]

    return wrap
