"""The trials of a study: asked from Optuna, run here or in processes, pruned by round, and told to Optuna."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from coterie import data as datasets
from coterie.errors import FederationError
from coterie.runs.early_stopping import primary_value
from coterie.runs.jobs import Job, carry_out
from coterie.runs.objects import NONE, Objects
from coterie.runs.record import JsonObject
from coterie.runs.resolve import fill_defaults
from coterie.runs.spec import Spec
from coterie.runs.spread import JobsOn, run_spread
from coterie.runs.tuning.search_space import Choices, Dimension
from coterie.runs.tuning.storage import optuna_package
from coterie.runs.tuning.study import finite, score_of
from coterie.runs.worker import StopRun

#: Called with a trial's job and `started`, its line of a step, or its state at the end.
OnTrial = Callable[[Job, str | JsonObject], None]


@dataclass
class Trials:
    """Runs trials of a study until there are enough.

    Attributes:
        study: The study of Optuna.
        spec: What is run, with the seed of the trials.
        space: The search space.
        metric: The primary metric, by which trials are scored.
        total: Number of trials that the study has in the end.
        on_trial: Reports what happens.
        objects: Objects that replace parts of the spec.
    """

    study: Any
    spec: Spec
    space: Mapping[str, Dimension]
    metric: str
    total: int
    on_trial: OnTrial
    objects: Objects = NONE
    _running: dict[Job, tuple[Any, float]] = field(default_factory=dict)
    _pruned: set[Job] = field(default_factory=set)

    def run(self, workers: int, jobs_on: JobsOn = "processes") -> None:
        """Run the missing trials. If the search is interrupted, those that are running are marked as failed."""
        missing = self.total - len(self.study.get_trials(deepcopy=False))
        if missing <= 0:
            return
        try:
            if workers > 1 or jobs_on == "ray":
                self._in_processes(min(workers, missing), jobs_on)
            else:
                for job in self._asked():
                    self._here(job)
        except BaseException:
            for trial, _ in self._running.values():
                self.study.tell(trial, state=optuna_package().trial.TrialState.FAIL)
            raise

    def _asked(self) -> Iterator[Job]:
        """The next trials, each chosen by Optuna when it is needed."""
        while len(self.study.get_trials(deepcopy=False)) < self.total:
            trial = self.study.ask()
            values = {name: _suggested(trial, name, dimension) for name, dimension in self.space.items()}
            job = Job(f"trial {trial.number}", self.spec.with_values(values), validation=True, objects=self.objects)
            self._running[job] = (trial, time.perf_counter())
            yield job

    def _here(self, job: Job) -> None:
        def step(row: JsonObject) -> None:
            if self._step(job, row):
                raise StopRun

        self.on_trial(job, "started")
        try:
            self._end(job, carry_out(job, on_round=step).summary)
        except StopRun:
            self._end(job, None)
        except FederationError as fault:
            self._end(job, None, str(fault))

    def _in_processes(self, workers: int, where: JobsOn) -> None:
        part = fill_defaults(self.spec).data
        datasets.load(part.name, **part.options)  # downloads and generated data are done once, and here
        events = run_spread(self._asked(), workers, where, self.spec.ray, stop=self._pruned, catch=(FederationError,))
        with closing(events):
            for job, what, content in events:
                if what == "started":
                    self.on_trial(job, "started")
                elif what == "step":
                    if self._step(job, content):
                        self._pruned.add(job)
                else:
                    self._end(
                        job,
                        content.summary if what == "done" else None,
                        str(content) if what == "failed" else "",
                    )

    def _step(self, job: Job, row: JsonObject) -> bool:
        """Report the score of a round to Optuna; returns whether the trial should be pruned."""
        self.on_trial(job, row)
        score = finite(primary_value(row, self.metric))
        if score is None or row["stage"] != "train" or job in self._pruned:
            return False
        trial, _ = self._running[job]
        trial.report(score, row["t"])
        trial.set_user_attr("rounds", row["t"] + 1)
        return bool(trial.should_prune())

    def _end(self, job: Job, summary: JsonObject | None, reason: str = "") -> None:
        """Tell Optuna how a trial ended; a diverged one counts as pruned, so that its settings are avoided."""
        states = optuna_package().trial.TrialState
        trial, started = self._running[job]
        score = None if summary is None else score_of(summary, self.metric)
        trial.set_user_attr("seconds", round(time.perf_counter() - started, 3))
        if summary is not None and score is None:
            reason = f"{self.metric} is not defined on the validation examples, or not finite"
        if reason:
            trial.set_user_attr("reason", reason)
        # A run may be done before its worker got the request to stop it.
        state = states.PRUNED if score is None or job in self._pruned else states.COMPLETE
        self.study.tell(trial, score if state == states.COMPLETE else None, state=state)
        del self._running[job]
        self._pruned.discard(job)
        self.on_trial(job, "pruned" if state == states.PRUNED else "complete")


def trial_rows(study: Any, space: Mapping[str, Dimension]) -> list[JsonObject]:
    """One dict per trial; see `Study.rows`."""
    names = {"COMPLETE": "complete", "PRUNED": "pruned"}
    return [
        {
            "number": trial.number,
            "state": names.get(trial.state.name, "failed"),
            "score": trial.value if trial.state.name == "COMPLETE" else None,
            "rounds": trial.user_attrs.get("rounds"),
            "seconds": trial.user_attrs.get("seconds"),
            **{name: trial.params.get(name) for name in space},
            "reason": trial.user_attrs.get("reason", ""),
        }
        for trial in study.get_trials(deepcopy=False)
    ]


def _suggested(trial: Any, name: str, dimension: Dimension) -> object:
    if isinstance(dimension, Choices):
        return trial.suggest_categorical(name, list(dimension.values))
    suggest = trial.suggest_int if dimension.whole else trial.suggest_float
    return suggest(name, dimension.low, dimension.high, log=dimension.log)
