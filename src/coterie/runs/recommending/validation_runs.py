"""The runs of a recommendation: every method with every seed, on validation examples, within the time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from coterie.data.federated import FederatedData
from coterie.errors import Error, FederationError, SpecError
from coterie.runs.client_results import ClientResults
from coterie.runs.jobs import Job, carry_out
from coterie.runs.objects import Objects
from coterie.runs.recommending.panel import REFERENCE, VALIDATION_SHARE, Budget
from coterie.runs.recommending.rule import ClientScores
from coterie.runs.record import JsonObject, RunRecord
from coterie.runs.spec import Spec
from coterie.runs.worker import StopRun
from coterie.seeds import Seed
from coterie.types import Array

#: Called after each step of each run: (the run, line of the record).
OnStep = Callable[[Job, JsonObject], None]
#: Called when a run starts, and when it has finished or was given up.
OnJob = Callable[[Job, Literal["started", "finished"]], None]


@dataclass(frozen=True)
class ValidationRun:
    """One run of a method on validation examples.

    Attributes:
        summary: Summary of the run; what it calls a test is the validation.
        scores: (clients,) primary metric of each client of the data; NaN without validation examples.
        weights: (clients,) number of validation examples, or the sum of their weights.
        clusters: (clients,) row of the model that each client is served; -1 for the fallback model.
    """

    summary: JsonObject
    scores: Array
    weights: Array
    clusters: Array

    @classmethod
    def of(cls, record: RunRecord, metric: str, data: FederatedData) -> ValidationRun:
        """The run in a record; a client that was not evaluated, such as one that did not reply, has no score."""
        found, count = record.client_results(), len(data.clients)
        scores, weights, clusters = np.full(count, np.nan), np.zeros(count), np.full(count, -1)
        places = [data.position(client) for client in found.clients]
        scores[places] = np.where(found.total > 0, np.asarray(_values(found, metric), np.float64), np.nan)
        weights[places], clusters[places] = found.total, found.cluster
        return cls(record.summary, scores, weights, clusters)


@dataclass
class ValidationRuns:
    """Runs the methods of a panel.

    Attributes:
        specs: Method → what is run, with the seed of the first run.
        data: All examples; only the training examples are used.
        metric: The primary metric.
        budget: Number of seeds and time limit.
        objects: Task and metrics that replace parts of the specs.
        found: Method → its runs, by seed.
        left_out: Method → why it has no runs.
    """

    specs: Mapping[str, Spec]
    data: FederatedData
    metric: str
    budget: Budget
    objects: Objects
    on_step: OnStep
    on_job: OnJob
    found: dict[str, list[ValidationRun]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    _end: float | None = None
    _seconds: dict[str, float] = field(default_factory=dict)

    def run(self) -> None:
        """Run all methods with the first seed, then with the second, and so on.

        Raises:
            SpecError: If the time is not enough for the reference and one other method.
        """
        self._end = None if self.budget.seconds is None else _now() + self.budget.seconds
        for number in range(self.budget.seeds):
            validation = self._validation(number)
            for name, spec in self.specs.items():
                if name in self.left_out or len(self.found.get(name, ())) < number:
                    continue
                if number and self._remaining() < self._seconds[name]:
                    continue  # a later method may be faster
                seeded = spec.with_values({"run.seed": spec.run.seed + number})
                self._run(Job(name, seeded, objects=replace(self.objects, data=validation)))
        self._check()

    def _validation(self, number: int) -> FederatedData:
        """The data of a seed: training examples without its validation examples, and these in place of the test."""
        seed = Seed(self.specs[REFERENCE].run.seed + number).fold("validation")
        share = max(VALIDATION_SHARE, self.data.held_share)
        return self.data.with_validation_split(share, seed).for_validation()

    def _remaining(self) -> float:
        return np.inf if self._end is None else self._end - _now()

    def _run(self, job: Job) -> None:
        def step(row: JsonObject) -> None:
            self.on_step(job, row)
            if self._remaining() < 0 and row["t"] + 1 < job.spec.run.rounds:
                raise StopRun

        if self._remaining() <= 0:
            self._give_up(job, "no time was left for it")
            return
        started = _now()
        self.on_job(job, "started")
        try:
            done = ValidationRun.of(carry_out(job, on_round=step), self.metric, self.data)
            self.found.setdefault(job.label, []).append(done)
        except StopRun:
            self._give_up(job, "the time was over before its last round")
        except Error as fault:
            if job.label == REFERENCE:
                raise
            self._give_up(job, str(fault).removeprefix(f"{job.label}: "))
        finally:
            self._seconds[job.label] = _now() - started
        self.on_job(job, "finished")

    def _give_up(self, job: Job, reason: str) -> None:
        """A method without a complete run is left out; with one, it has fewer seeds."""
        if not self.found.get(job.label):
            self.found.pop(job.label, None)
            self.left_out[job.label] = reason

    def _check(self) -> None:
        if len(self.found) > 1 and REFERENCE in self.found:
            return
        reasons = "; ".join(f"{name}: {reason}" for name, reason in self.left_out.items())
        if self.budget.seconds is not None and self._remaining() <= 0:
            raise SpecError(
                f"{self.budget.seconds:g} seconds are not enough to compare two methods ({reasons}); give a larger "
                "budget, fewer rounds, or data with fewer clients"
            )
        raise FederationError(f"No method could be compared with {REFERENCE}: {reasons or 'there is no other method'}")


def _now() -> float:
    return time.perf_counter()


def scores_of(runs: list[ValidationRun]) -> ClientScores:
    """The scores of clients in the runs of a method, one row per run."""
    return ClientScores(np.stack([each.scores for each in runs]), np.stack([each.weights for each in runs]))


def _values(results: ClientResults, metric: str) -> Array:
    """The primary metric of each client."""
    if metric == "accuracy":
        return results.accuracy
    return results.loss if metric == "loss" else results.metrics[metric]
