"""`Session`: runs a method on a federation step by step, evaluates it, and saves and restores its state.

The run loop, `estimate`, method cards, the contract suite and the tests all use `Session.steps`. A session writes no
files and prints nothing.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from coterie import codec, tree
from coterie.errors import Diverged, TooFewReplies
from coterie.federation import Averaging, Cohort, Server, Traffic
from coterie.federation.protocol import Federation
from coterie.federation.traffic import Direction
from coterie.methods.checks import check_method, checked_placement, checked_round, checked_stage, checked_state
from coterie.methods.protocol import Method, Placement, Round, Stage
from coterie.runs.last_received import LastReceived
from coterie.runs.metric_plan import MetricPlan
from coterie.runs.privacy import serve_large_clusters
from coterie.runs.sampling import ClientSampler
from coterie.runs.scoring import PLAIN, Scores, ScoreWith, evaluated
from coterie.seeds import Seed
from coterie.shift import DriftingData
from coterie.types import ClientId, Part

State = TypeVar("State")

#: Purpose → direction → bytes.
Purposes = Mapping[str, Mapping[str, int]]

#: Wraps the federation before it is passed to the method. Arguments: the federation; `prepare`, `train` or `place`; the
#: clients that take part.
Observer = Callable[[Federation, Literal["prepare", "train", "place"], Collection[ClientId]], Federation]

#: Maximum number of attempts at a preparation step when too few clients reply.
MAX_ATTEMPTS = 20

_DIRECTIONS: tuple[Direction, ...] = ("down", "up")


@dataclass(frozen=True)
class Newcomers:
    """Test results of clients that joined later, and the cost of placing them.

    Attributes:
        scores: Their test results.
        bytes: Direction → bytes sent to place them.
        seconds: Duration of their placement.
    """

    scores: Scores
    bytes: Mapping[Direction, int]
    seconds: float


@dataclass(frozen=True)
class Step(Generic[State]):
    """One preparation step or one round.

    Attributes:
        t: Number of the round; -1 for a preparation step.
        stage: `prepare` or `train`.
        cohort: Clients sampled for the step.
        round: Result of the method; None if the step was skipped, which leaves the state unchanged.
        skipped: Reason why the step was skipped, or None.
        shifted: Clients whose data changed before the step.
        newcomers: Clients that joined before the step, or None.
        last_newcomers: If the method finished with this step: the clients that had not joined yet, or None.
        traffic: Bytes of this step by purpose and direction.
        seconds: Duration, without the placement of newcomers.
        training: Part of `seconds` in which clients trained.
    """

    t: int
    stage: Stage
    cohort: Cohort
    round: Round[State] | None
    skipped: str | None = None
    shifted: tuple[ClientId, ...] = ()
    newcomers: Newcomers | None = None
    last_newcomers: Newcomers | None = None
    traffic: Purposes | None = None
    seconds: float = 0.0
    training: float = 0.0


class Session(Generic[State]):
    """A method, a federation and the state of the run.

    Attributes:
        state: The method's state.
        t: Number of rounds so far; skipped rounds count.
        prepared: Number of preparation steps so far.
    """

    def __init__(
        self,
        method: Method[State],
        fed: Server,
        seed: Seed,
        sampler: ClientSampler,
        drifting: DriftingData | None = None,
        *,
        eval_model: Literal["group", "last_received"] = "group",
        score_with: ScoreWith = "current",
        metrics: MetricPlan = PLAIN,
        state: State | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Start a session.

        Args:
            method: The method.
            fed: The federation.
            seed: Random seed of the run.
            sampler: Draws the clients of each round.
            drifting: Drift of the clients' data; None for no drift.
            eval_model: `group`: clients are evaluated with the model that they are served; `last_received`: with the
                one that they last received for training.
            score_with: How clients are assigned for an evaluation.
            metrics: The metrics of the run.
            state: State to start from; None for the method's initial state.
            observer: Wraps the federation before the method gets it.
        """
        check_method(method)
        self._drifting = drifting
        self._assigned: set[ClientId] = set()
        self._failed_attempts = 0
        self._method = method
        self._fed = fed
        self._seed = seed
        self._sampler = sampler
        self._observer = observer
        self._score_with: ScoreWith = score_with
        self._metrics = metrics
        self._received = LastReceived(fed.task.init(seed.fold("init"))) if eval_model == "last_received" else None
        self.state: State = checked_state(method, "start", method.start(fed.task, seed)) if state is None else state
        self.t = 0
        self.prepared = 0

    @property
    def clients(self) -> Sequence[ClientId]:
        """All clients, including those that never take part."""
        return self._fed.clients

    @property
    def parameters(self) -> int:
        """Number of parameters of the model."""
        return tree.size(self._fed.task.init(Seed(0)))

    @property
    def rejected(self) -> Mapping[str, int]:
        """Reason → number of replies rejected so far."""
        return self._fed.rejected

    @property
    def lost(self) -> int:
        """Number of replies so far that never arrived."""
        return self._fed.lost

    @property
    def averaging(self) -> Averaging:
        """How models are averaged, and the releases of noisy sums so far."""
        return self._fed.averaging

    @property
    def traffic(self) -> Traffic:
        """All bytes so far."""
        return self._fed.traffic

    @property
    def stage(self) -> Stage:
        """Stage of the next step."""
        return checked_stage(self._method, self._method.stage(self.state))

    def finished(self, rounds: int) -> bool:
        """Whether the run is over: all rounds are done, or the method has finished early."""
        stage = self.stage
        return stage == "done" or (stage == "train" and self.t >= rounds)

    def steps(self, rounds: int) -> Iterator[Step[State]]:
        """Run until all rounds are done or the method finishes; preparation steps do not count as rounds."""
        while not self.finished(rounds):
            yield self.step()

    def step(self) -> Step[State]:
        """Run one preparation step or one round.

        Newcomers of the round are placed first. If too few clients reply, the round is skipped: state and client
        memories stay unchanged, but the traffic counts.
        """
        newcomers = self._join()
        clock, trained = time.perf_counter(), self._fed.training_seconds
        stage = self.stage
        preparing = stage == "prepare"
        # All preparation steps share round -1 of the traffic.
        earlier = self.traffic.by_purpose(-1) if preparing else {}
        joined = max(self.t - 1, 0)  # newcomers of the next round join when it begins, after the preparation
        cohort = self._sampler.all_clients(self.prepared, joined) if preparing else self._sampler.cohort(self.t)
        shifted = () if preparing else self._shift()
        result, reason = self._round(stage, cohort)
        self._failed_attempts = self._failed_attempts + 1 if preparing and result is None else 0
        if self._failed_attempts == MAX_ATTEMPTS:
            raise TooFewReplies(f"Preparation failed {MAX_ATTEMPTS} times, too few clients replied: {reason}")
        if preparing:
            self.prepared += 1
        else:
            self.t += 1
        traffic = _difference(earlier, self.traffic.by_purpose(cohort.t))
        seconds, training = time.perf_counter() - clock, self._fed.training_seconds - trained
        last = self._join() if self.stage == "done" else None
        return Step(cohort.t, stage, cohort, result, reason, shifted, newcomers, last, traffic, seconds, training)

    def place(self, clients: Sequence[ClientId]) -> Placement:
        """Choose models for newcomers, which may involve training, and keep the choice.

        Clients that do not reply have no model of their own yet.
        """
        fed: Federation = self._fed.placing()
        if self._observer is not None:
            fed = self._observer(fed, "place", clients)
        state, placement = self._placed(fed, clients)
        if not codec.finite(state):
            raise Diverged(
                f"Round {self.t + 1}: the state after placing newcomers is not finite; lower the learning rate"
            )
        self.state = state
        return placement

    def frozen(self, *, travels_with_others: bool = True) -> Session[State]:
        """Return a copy that later steps do not change, to evaluate the state of this moment.

        Its traffic has a table of its own.

        Args:
            travels_with_others: Whether requests of the evaluation travel with those of the next rounds.
        """
        other = copy.copy(self)
        other._fed = self._fed.frozen(travels_with_others=travels_with_others)
        other._received = None if self._received is None else self._received.copy()
        return other

    def evaluate(self, clients: Sequence[ClientId] | None = None) -> Scores:
        """Evaluate clients on their test examples with the models that they are served. Evaluation never trains.

        Args:
            clients: Clients to evaluate; None: all that have joined and can be asked.
        """
        requested = self._sampler.reachable(self._joined()) if clients is None else tuple(clients)
        before = self._fed.asks
        fed = self._fed.evaluating(exchange=self._score_with == "current")
        placement = self._served(self._placed(fed, requested)[1])
        scores = self._scored(requested, placement, self._score_with, metrics=True)
        return replace(scores, asked=fed.asks > before)

    def validate(self, scores: Scores) -> Scores:
        """Evaluate the same clients with the same models on their validation examples."""
        return self._scored(scores.requested, scores.placement, scores.score_with, metrics=True, part="held")

    def evaluate_otherwise(self, scores: Scores) -> Scores | None:
        """Evaluate the same clients with the other rule of `run.score_with`; None if it assigns them equally."""
        if not scores.asked:
            return None
        other: ScoreWith = "assigned" if scores.score_with == "current" else "current"
        placement = self._served(self._place(scores.requested, other))
        changed = scores.changed_by(placement)
        if not changed or self._received is not None:
            return None
        return scores.updated(changed, self._scored(changed, placement, other))

    def evaluate_current_models(self, scores: Scores) -> Scores | None:
        """With `eval_model="last_received"`, evaluate the same clients with the models that they are served now."""
        if self._received is None:
            return None
        return self._scored(scores.requested, scores.placement, scores.score_with, received=False)

    def _round(self, stage: Stage, cohort: Cohort) -> tuple[Round[State] | None, str | None]:
        """Run the method's round. Returns its result and, if it was skipped, the reason."""
        preparing = stage == "prepare"
        when = "Preparation" if preparing else f"Round {self.t + 1}"  # as people count them
        seed = self._seed.fold("prepare", self.prepared) if preparing else self._seed.fold("round", self.t)
        served = None if self._received is None or preparing else self._place((), "assigned").bank
        fed: Federation = self._fed
        if self._observer is not None:
            fed = self._observer(fed, "prepare" if preparing else "train", cohort.clients)
        self._fed.begin()
        try:
            result = checked_round(self._method, self._method.round(self.state, fed, cohort, seed), self._fed.clients)
        except TooFewReplies as fault:
            # The state is unchanged, so the clients' memories must be, too.
            self._fed.undo()
            return None, str(fault)
        except Diverged as fault:
            raise Diverged(f"{when}: {fault}") from fault
        if not self.t and not self.prepared:  # once: what a method stores changes little from step to step
            checked_state(self._method, "round", result.state)
        if not codec.finite(result.state, known=self.state):
            raise Diverged(f"{when}: the new models are not finite; lower the learning rate. {_trained_by(cohort)}")
        self.state = result.state
        self._assigned.update(result.assignment)
        if self._received is not None and served is not None:
            members = set(cohort)
            self._received.update(served, {c: row for c, row in result.assignment.items() if c in members})
        return result, result.skipped

    def _shift(self) -> tuple[ClientId, ...]:
        if self._drifting is None:
            return ()
        shifted = self._drifting.step(self.t, self._assigned)
        if shifted:
            self._fed.set_data(self._drifting.data)
        return shifted

    def _join(self) -> Newcomers | None:
        """Place and evaluate the newcomers of the next round; once the method has finished, all that remain."""
        if self.stage == "prepare":
            return None
        new = self._sampler.joining(self.t, last=self.stage == "done")
        if not new:
            return None
        before = {way: self.traffic.total(way) for way in _DIRECTIONS}
        clock = time.perf_counter()
        placement = self._served(self.place(new))
        seconds = time.perf_counter() - clock
        sent = {way: self.traffic.total(way) - before[way] for way in _DIRECTIONS}
        return Newcomers(self._scored(new, placement, "current", received=False), sent, seconds)

    def _joined(self) -> tuple[ClientId, ...]:
        # Newcomers of the next round join when it starts. Once the method has finished, all have joined.
        clients = self._fed.clients
        return tuple(clients) if self.stage == "done" else self._sampler.present(clients, max(self.t - 1, 0))

    def _place(self, clients: Sequence[ClientId], score_with: ScoreWith) -> Placement:
        """The models that clients are served; what placing them has shown is dropped."""
        fed = self._fed.evaluating(exchange=score_with == "current")
        return self._placed(fed, clients)[1]

    def _placed(self, fed: Federation, clients: Sequence[ClientId]) -> tuple[State, Placement]:
        result = self._method.place(self.state, fed, clients, self._seed.fold("place", self.t))
        return checked_placement(self._method, result, self._fed.clients)

    def _served(self, placement: Placement) -> Placement:
        """The placement without the models of clusters that are too small to be served (`privacy.min_cluster_size`)."""
        minimum = self.averaging.privacy.min_cluster_size
        if not minimum:
            return placement
        others = self._place(self._joined(), "assigned").row
        return serve_large_clusters(placement, {**others, **placement.row}, minimum)

    def _scored(
        self,
        clients: tuple[ClientId, ...],
        placement: Placement,
        score_with: ScoreWith,
        *,
        received: bool = True,
        metrics: bool = False,
        part: Part = "test",
    ) -> Scores:
        """Test results with the models of a placement, or with `eval_model="last_received"` the last received ones."""
        seed = self._seed.fold("place", self.t)
        models = self._received if received else None
        fed, plan = self._fed.scoring(), self._metrics
        return evaluated(
            fed,
            seed,
            clients,
            placement,
            models,
            score_with,
            plan=plan,
            metrics=metrics and bool(plan.names),
            part=part,
        )

    def snapshot(self) -> dict[str, Any]:
        """Return everything needed to continue, as plain data: state of method, federation and simulated clients."""
        saved = {"state": self.state, "t": self.t, "prepared": self.prepared, "federation": self._fed.save()}
        saved["failed_attempts"] = self._failed_attempts
        if self._drifting is not None:
            saved |= {"drifting_data": self._drifting.save(), "assigned": sorted(self._assigned)}
        if self._received is not None:
            saved["last_received"] = self._received.save()
        return saved

    @staticmethod
    def include_traffic(snapshot: dict[str, Any], more: Traffic) -> None:
        """Add the bytes of an evaluation to a snapshot that was taken before it ended."""
        traffic = Traffic()
        traffic.load(codec.plain(snapshot["federation"]["traffic"]))
        traffic.include(more)
        snapshot["federation"]["traffic"] = traffic.save()

    @property
    def restarted(self) -> bool:
        """Whether an earlier start of this server has asked the same clients."""
        return self._fed.restarted

    def note_checkpoint(self) -> None:
        """Record that the snapshot of this moment will be a checkpoint."""
        self._fed.note_checkpoint()

    def save(self) -> bytes:
        """Return the snapshot, encoded."""
        return codec.encode(self.snapshot())

    def load(self, saved: Mapping[str, Any]) -> None:
        """Continue from a snapshot."""
        self.state = saved["state"]
        self.t = saved["t"]
        self.prepared = saved["prepared"]
        self._failed_attempts = saved.get("failed_attempts", 0)
        self._fed.load(saved["federation"])
        if self._drifting is not None:
            self._drifting.load(saved["drifting_data"])
            self._assigned = set(saved["assigned"])
            self._fed.set_data(self._drifting.data)
        if self._received is not None:
            self._received.load(saved["last_received"])


def _difference(earlier: Purposes, now: Purposes) -> dict[str, dict[str, int]]:
    """Bytes by purpose and direction between two counts; purposes without traffic are left out."""
    sent = {
        purpose: {way: count - earlier.get(purpose, {}).get(way, 0) for way, count in ways.items()}
        for purpose, ways in now.items()
    }
    return {purpose: ways for purpose, ways in sent.items() if any(ways.values())}


def _trained_by(cohort: Cohort) -> str:
    names = ", ".join(cohort.clients[:5])
    return f"Trained by {names}{' and others' if len(cohort) > 5 else ''}"
