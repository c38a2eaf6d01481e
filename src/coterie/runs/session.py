"""A method at play with a federation: one step at a time, scored, saved and restored. No files, no clock, no output."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from coterie import codec, tree
from coterie.clients import score
from coterie.errors import Diverged, TooFewReplies
from coterie.federation import Cohort, PerClient, Server, Traffic
from coterie.federation.traffic import Direction
from coterie.methods.protocol import Method, Placement, Round, Stage
from coterie.runs.last_received import LastReceived
from coterie.runs.sampling import Sampler
from coterie.seeds import Seed
from coterie.shift import DriftingData
from coterie.types import Array, ClientId

State = TypeVar("State")
#: How often preparing is tried again when too few clients answer.
PATIENCE = 20
WAYS: tuple[Direction, ...] = ("down", "up")


@dataclass(frozen=True)
class Step(Generic[State]):
    """What a step was.

    Attributes:
        t: The round; -1 while preparing.
        stage: `prepare` or `train`.
        cohort: Who was to take part.
        round: What it gave; None where it was skipped without a trace.
        skipped: Why nobody trained in it, or None.
        shifted: The clients whose data changed before it.
    """

    t: int
    stage: Stage
    cohort: Cohort
    round: Round[State] | None
    skipped: str | None = None
    shifted: tuple[ClientId, ...] = ()


@dataclass(frozen=True)
class Scores:
    """How clients fare with the models they are served.

    Attributes:
        clients: Who could be placed and scored.
        rows: The model of each.
        correct: Right answers of each.
        total: Test examples of each.
        loss: Summed loss of each.
        everyone: Who was to be scored, with a model or without.
        coverage: The share of them that have a model.
        placement: Which model each is served.
    """

    clients: tuple[ClientId, ...]
    rows: Array
    correct: Array
    total: Array
    loss: Array
    everyone: tuple[ClientId, ...]
    coverage: float
    placement: Placement


@dataclass(frozen=True)
class Welcome:
    """How newcomers were taken in.

    Attributes:
        scores: How they fare with the models they are served.
        bytes: What their placing sent, down and up.
        seconds: What it took.
    """

    scores: Scores
    bytes: Mapping[Direction, int]
    seconds: float


class Session(Generic[State]):
    """A method, a federation, and how far they are."""

    def __init__(
        self,
        method: Method[State],
        fed: Server,
        seed: Seed,
        sampler: Sampler,
        drifting: DriftingData | None = None,
        *,
        eval_model: Literal["group", "last_received"] = "group",
    ) -> None:
        """Before the first step.

        Args:
            method: What is played.
            fed: With whom.
            seed: Of the run.
            sampler: Who takes part when.
            drifting: What happens to the clients' data meanwhile; None for nothing.
            eval_model: Clients are scored with the model that they are served, or that they last received.
        """
        self._drifting = drifting
        self._assigned: set[ClientId] = set()
        self._unanswered = 0
        self._method = method
        self._fed = fed
        self._seed = seed
        self._sampler = sampler
        self._received = LastReceived(fed.task.init(seed.fold("init"))) if eval_model == "last_received" else None
        self.state: State = method.start(fed.task, seed)
        self.t = 0
        self.prepared = 0

    @property
    def clients(self) -> Sequence[ClientId]:
        """Everyone, whether they take part or not."""
        return self._fed.clients

    @property
    def parameters(self) -> int:
        """Numbers in a model."""
        return tree.size(self._fed.task.init(Seed(0)))

    @property
    def asking(self) -> float:
        """Seconds spent waiting for clients so far."""
        return self._fed.seconds

    @property
    def refused(self) -> Mapping[str, int]:
        """Replies that were refused so far, by reason."""
        return self._fed.rejected

    @property
    def traffic(self) -> Traffic:
        """Every byte so far."""
        return self._fed.traffic

    @property
    def stage(self) -> Stage:
        """What comes next."""
        return self._method.stage(self.state)

    def step(self) -> Step[State]:
        """Prepare, or play a round; a round that too few answered is skipped and leaves no trace but its bytes."""
        stage = self.stage
        preparing = stage == "prepare"
        cohort = self._sampler.everyone(self.prepared, self.t) if preparing else self._sampler.cohort(self.t)
        seed = self._seed.fold("prepare", self.prepared) if preparing else self._seed.fold("round", self.t)
        when = "While preparing" if preparing else f"Round {self.t}"
        shifted = () if preparing else self._shift()
        result: Round[State] | None = None
        reason = None
        sent = None if self._received is None or preparing else self._place(()).bank
        self._fed.begin()
        try:
            result = self._method.round(self.state, self._fed, cohort, seed)
        except TooFewReplies as fault:
            # The method forgets what it learned in this round, so clients go back, too: they tell it again.
            self._fed.undo()
            reason = str(fault)
        except Diverged as fault:
            raise Diverged(f"{when}: {fault}") from fault
        if result is not None:
            if not codec.finite(result.state):
                raise Diverged(f"{when}: the new models are not finite; lower the learning rate. {_who(cohort)}")
            self.state, reason = result.state, result.skipped
            self._assigned.update(result.assignment)
            if self._received is not None and sent is not None:
                self._received.note(sent, {c: row for c, row in result.assignment.items() if c in set(cohort)})
        self._unanswered = self._unanswered + 1 if preparing and result is None else 0
        if self._unanswered == PATIENCE:
            raise TooFewReplies(f"Preparing was tried {PATIENCE} times and too few clients answered: {reason}")
        if preparing:
            self.prepared += 1
        else:
            self.t += 1
        return Step(cohort.t, stage, cohort, result, reason, shifted)

    def _shift(self) -> tuple[ClientId, ...]:
        if self._drifting is None:
            return ()
        shifted = self._drifting.step(self.t, self._assigned)
        if shifted:
            self._fed.set_data(self._drifting.data)
        return shifted

    def welcome(self) -> Welcome | None:
        """Take in those who join in the round that comes next, whatever their placing costs; None for nobody.

        Once the method is done no round will come, and all who were to join later do it now.
        """
        new = self._sampler.joining(self.t, last=self.stage == "done")
        if not new or self.stage == "prepare":
            return None
        before = {way: self.traffic.total(way) for way in WAYS}
        clock = time.perf_counter()
        placement = self.place(new)
        spent = time.perf_counter() - clock
        sent = {way: self.traffic.total(way) - before[way] for way in WAYS}
        return Welcome(self._scored(new, placement, self._fed.evaluating()), sent, spent)

    def place(self, clients: Sequence[ClientId]) -> Placement:
        """Serve these clients a model, whatever it costs: for newcomers. Who does not answer is not placed."""
        return self._method.place(self.state, self._fed.placing(), clients, self._seed.fold("place", self.t))

    def evaluate(self, clients: Sequence[ClientId] | None = None) -> Scores:
        """Score the clients on their test examples with the models they are served; nobody trains for it."""
        everyone = self._present() if clients is None else tuple(clients)
        return self._scored(everyone, self._place(everyone), self._fed.evaluating(), self._received)

    def _present(self) -> tuple[ClientId, ...]:
        # Who was to join in a round that will not come counts in the end, like everyone.
        everyone = self._fed.clients
        return tuple(everyone) if self.stage == "done" else self._sampler.present(everyone, self.t)

    def _place(self, clients: Sequence[ClientId]) -> Placement:
        return self._method.place(self.state, self._fed.evaluating(), clients, self._seed.fold("place", self.t))

    def _scored(
        self, everyone: tuple[ClientId, ...], placement: Placement, fed: Server, received: LastReceived | None = None
    ) -> Scores:
        seed = self._seed.fold("place", self.t)
        placed = tuple(client for client in everyone if client in placement.row)
        if placement.adapt is None or received is not None:
            served = placement if received is None else received.instead_of(placement)
            got = fed.ask(placed, score, seed, part="test", params=PerClient(served.bank, served.row))
        else:
            got = fed.ask(placed, score, seed, part="test", after=placement.adapt)
        rows = np.array([placement.row[client] for client in got.clients], np.int64)
        coverage = len(placed) / len(everyone) if everyone else 0.0
        return Scores(got.clients, rows, got["correct"], got.samples, got["loss"], everyone, coverage, placement)

    def snapshot(self) -> dict[str, Any]:
        """All that is needed to go on, as plain data: method, federation, simulated clients."""
        kept = {"state": self.state, "t": self.t, "prepared": self.prepared, "federation": self._fed.save()}
        if self._drifting is not None:
            kept |= {"world": self._drifting.save(), "assigned": sorted(self._assigned)}
        if self._received is not None:
            kept["received"] = self._received.save()
        return kept

    def save(self) -> bytes:
        """The same as bytes."""
        return codec.encode(self.snapshot())

    def load(self, kept: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self.state = kept["state"]
        self.t = kept["t"]
        self.prepared = kept["prepared"]
        self._fed.load(kept["federation"])
        if self._drifting is not None:
            self._drifting.load(kept["world"])
            self._assigned = set(kept["assigned"])
            self._fed.set_data(self._drifting.data)
        if self._received is not None:
            self._received.load(kept["received"])


def _who(cohort: Cohort) -> str:
    names = ", ".join(cohort.clients[:5])
    return f"Trained by {names}{' and others' if len(cohort) > 5 else ''}"
