"""`run` and `resume`: the loop that runs steps, evaluates, writes the record and saves checkpoints."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import Diverged, FederationError, SpecError
from coterie.federation.compilation import compilations
from coterie.federation.merging import Background
from coterie.methods.protocol import Method
from coterie.models import Task
from coterie.runs import privacy
from coterie.runs import summary as figures
from coterie.runs.best_model import BestModel
from coterie.runs.build import Built, build
from coterie.runs.checkpoint_budget import CheckpointBudget
from coterie.runs.client_facts import RecordedFacts
from coterie.runs.client_results import ClientResults
from coterie.runs.early_stopping import EarlyStopping
from coterie.runs.method_settings import check_objects, check_same_method, spec_of
from coterie.runs.metric_plan import MetricLike
from coterie.runs.observers import Observer, OnRound, check_observers, observing
from coterie.runs.record import JsonObject, RunRecord, read_summary
from coterie.runs.run_summary import run_summary, served_models
from coterie.runs.scoring import Scores
from coterie.runs.session import Session, Step
from coterie.runs.spec import SpecLike, read_toml
from coterie.runs.writer import Writer

__all__ = ["OnRound", "continue_built", "resume", "run", "run_built"]

log = logging.getLogger(__name__)


def run(
    spec: SpecLike | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    on_round: OnRound | None = None,
    method: Method[Any] | None = None,
    task: Task | None = None,
    data: Any = None,
    observers: Iterable[Observer] = (),
    metrics: Mapping[str, MetricLike] | None = None,
) -> RunRecord:
    """Run a spec.

    Args:
        spec: Nested dicts, the path of a TOML file, or a Spec.
        out: Folder for the record; None: nothing is written.
        on_round: Called after each step with its line of the record.
        method: A method object that replaces the method of the spec. It has its own settings: [method] and [local] of
            the spec must be absent or equal to them. The record holds the settings of the object.
        task: A task that replaces the model of the spec.
        data: Data that replace those of the spec: FederatedData, or an object that `coterie.data.as_federated` takes,
            such as a DataFrame.
        observers: Objects that follow the run, such as those of `coterie.tracking`. If one fails, a warning is logged
            and the run continues.
        metrics: Metrics of your own, name → `coterie.Metric` or a function (y_true, y_pred) → number. They are computed
            in addition to those in run.metrics.
    """
    started = time.perf_counter()
    given = check_observers(observers)
    built = build(spec_of(spec, method), method=method, task=task, data=data, metrics=metrics)
    return run_built(built, out, on_round, started, given)


def run_built(
    built: Built,
    out: str | os.PathLike[str] | None = None,
    on_round: OnRound | None = None,
    started: float | None = None,
    observers: Sequence[Observer] = (),
) -> RunRecord:
    """Run what was built.

    Args:
        built: What to run.
        out: Folder for the record; None: nothing is written.
        on_round: Called after each step with its line of the record.
        started: When the call began; None: now.
        observers: Objects that follow the run.
    """
    started = time.perf_counter() if started is None else started
    if out is None:
        with observing(observers, built.spec, None, on_round) as (step, end):
            return end(_Loop(built, None, step, started).run())
    with (
        Writer.create(out, built.spec.to_toml()) as writer,
        observing(observers, built.spec, Path(out), on_round) as (step, end),
    ):
        return end(_Loop(built, writer, step, started).run())


def continue_built(
    built: Built, writer: Writer, saved: Mapping[str, Any] | None, on_round: OnRound | None = None
) -> RunRecord:
    """Continue a run from a checkpoint.

    Args:
        built: The run, built as at its beginning.
        writer: Its record.
        saved: The checkpoint that `writer.saved()` returned.
        on_round: Called after each step with its line of the record.
    """
    return _Loop(built, writer, on_round, time.perf_counter(), saved, writer.rewind(saved)).run()


def resume(
    path: str | os.PathLike[str],
    *,
    on_round: OnRound | None = None,
    method: Method[Any] | None = None,
    task: Task | None = None,
    data: Any = None,
    observers: Iterable[Observer] = (),
    metrics: Mapping[str, MetricLike] | None = None,
) -> RunRecord:
    """Continue a run from its last checkpoint. Its results are those of a run that was not interrupted.

    Args:
        path: Folder of the record.
        on_round: Called after each step with its line of the record.
        method: The method object that was given to `run`, if there was one, or another with the same settings.
        task: The task that was given to `run`, if there was one.
        data: The data that were given to `run`, if there were any.
        observers: Objects that follow the rest of the run.
        metrics: The metrics that were given to `run`, if there were any.
    """
    started = time.perf_counter()
    watching = check_observers(observers)
    record = RunRecord.read(path)
    if record.summary.get("status") == "done":
        return record
    with Writer.reopen(path) as writer:
        if read_summary(writer.path).get("status") == "done":  # another process has finished it meanwhile
            return RunRecord.read(path)
        # Build before reading the checkpoint: decoding needs the state classes that the method's module defines.
        plain = read_toml(writer.path / "spec.toml")
        if record.rounds and "network" in record.rounds[0]:
            raise SpecError(
                f"The clients of this run are on other machines; continue it with coterie serve --resume {path}"
            )
        check_same_method(plain, method)
        check_objects(plain, writer.path, task=task, data=data)
        for section, given in (("model", task), ("data", data)):
            if given is not None:  # spec.toml has only the name of an object
                plain.pop(section, None)
        built = build(spec_of(plain, method), method=method, task=task, data=data, metrics=metrics)
        saved = writer.saved()
        rows = writer.rewind(saved)
        with observing(watching, built.spec, writer.path, on_round) as (step, end):
            return end(_Loop(built, writer, step, started, saved, rows).run())


@dataclass
class _Evaluation:
    """The scores of a step.

    Attributes:
        scores: On test examples.
        other: With the other rule of `run.score_with`; None if they do not differ.
        validation: On validation examples; None if the run does not validate.
        current_models: With the current models; None if `scores` are with these.
    """

    scores: Scores
    other: Scores | None
    validation: Scores | None
    current_models: Scores | None


@dataclass
class _Pending:
    """A step whose line is not written yet: its scores have not arrived, or those of a step before it.

    Attributes:
        row: The line.
        evidence: What its clustering was decided on.
        snapshot: State of the session after the step.
        checkpoint: Whether a checkpoint is due.
        finished: Whether it was the last step.
        evaluation: The evaluation that runs in the background, and the session it evaluates; None: it is in the line.
    """

    row: JsonObject
    evidence: Mapping[str, Any]
    snapshot: dict[str, Any]
    checkpoint: bool
    finished: bool
    evaluation: tuple[Background[_Evaluation], Session[Any]] | None


class _Loop:
    """Runs the steps of a built run, evaluates, and writes the record."""

    def __init__(
        self,
        built: Built,
        writer: Writer | None,
        on_round: OnRound | None,
        started: float,
        saved: Mapping[str, Any] | None = None,
        rows: Sequence[JsonObject] = (),
    ) -> None:
        """Begin, or continue from a checkpoint.

        Args:
            built: What to run.
            writer: Writes the record; None: no record is written.
            on_round: Called after each step.
            started: When the call began.
            saved: The checkpoint; None: the run begins.
            rows: The lines that the checkpoint counts.
        """
        self._built = built
        self._writer = writer
        self._on_round = on_round
        self._rows = list(rows)
        self._pending: deque[_Pending] = deque()
        self._sent: Mapping[str, float] = {}
        self._scores: Scores | None = None
        self._results: ClientResults | None = None
        run, plan = built.spec.run, built.metrics
        self._stopping = EarlyStopping(run.patience, plan.primary, higher=plan.higher, rows=self._rows)
        self._best: BestModel | None = None
        if run.final_model == "best":
            kept = None if saved is None else saved.get("best")
            self._best = BestModel(plan.primary, higher=plan.higher, rows=self._rows, kept=kept)
        self._seconds = dict.fromkeys(("setup", "training", "evaluation", "clustering", "recording", "compile"), 0.0)
        self._served: Mapping[str, Any] = {}
        if saved is not None:
            built.session.load(saved["session"])
            self._seconds |= saved["seconds"]
            self._served = saved.get("served", {})
        if built.network is not None:
            self._sent = built.network()
        self._started = started - self._seconds.pop("total", 0.0)
        self._seconds["setup"] += time.perf_counter() - started
        self._compiled = compilations().seconds
        self._budget = CheckpointBudget()
        self._snapshot = self._save(built.session.snapshot(), finished=self._finished())
        # Clients on other machines remember the requests of this start: the checkpoint must count it before they do.
        counted = saved is not None and not built.session.restarted
        self._written: Mapping[str, Any] | None = self._snapshot if counted else None

    def run(self) -> RunRecord:
        """Run to the end. If the run is interrupted or diverges, the record up to that step is kept."""
        # No NumPy warnings on overflow: replies and states are checked, and those errors name the clients.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._run()

    def _run(self) -> RunRecord:
        merging = self._built.merging
        try:
            if self._writer is not None and self._built.data is not None:
                self._writer.client_facts(RecordedFacts.of(self._built.data))
            self._checkpoint()  # at the beginning, so that a run can be resumed whenever it is killed
            while not self._finished():
                self._record(self._built.session.step())
            if merging is not None:
                merging.flush()
                self._write_lines()
            if not self._models():  # the method had finished before the first step
                session = self._built.session
                self._add_scores({}, session, self._evaluated(session))
                self._snapshot = self._save(session.snapshot(), finished=True)
            return self._finish("done")
        except KeyboardInterrupt:
            self._checkpoint()
            raise
        except FederationError as fault:
            self._finish("diverged" if isinstance(fault, Diverged) else "failed", str(fault))
            if self._writer is None:
                raise
            raise type(fault)(f"{fault}\nThe record of the steps before is in {self._writer.path}") from fault
        finally:
            if merging is not None:
                merging.close()
            if self._built.workers is not None:
                self._built.workers.close()

    def _finished(self) -> bool:
        return self._stopping.stopped or self._built.session.finished(self._built.spec.run.rounds)

    def _record(self, step: Step[Any]) -> None:
        """Compose the line of a step, and evaluate it if that is due, in the background if possible."""
        session, settings = self._built.session, self._built.spec.run
        self._seconds["training"] += step.training
        # The rest is the method's: clustering, averaging, requests without training such as drift detection.
        self._seconds["clustering"] += max(0.0, step.seconds - step.training)
        row = figures.step_row(step, self._built.truth)
        if (entry := privacy.round_entry(session.averaging)) is not None:
            row["privacy"] = entry
        if step.newcomers is not None:
            row["newcomers"] = figures.newcomers_row(step.newcomers, self._built.truth, self._built.task.classes)
        if step.last_newcomers is not None:
            row["last_newcomers"] = figures.newcomers_row(
                step.last_newcomers, self._built.truth, self._built.task.classes
            )
        if self._built.network is not None:
            now = self._built.network()
            row["network"] = {key: round(now[key] - self._sent.get(key, 0), 4) for key in now}
            self._sent = now
        if (workers := self._built.workers) is not None:
            row["ray"] = workers.work_done.row()
        due = step.stage == "train" and session.t % settings.evaluate_every == 0
        evaluation = None
        if due or (step.round is not None and step.round.closes) or self._finished():
            evaluation = self._evaluate(row)
            self._stopping.see(row)
        checkpoint = step.stage == "prepare" or self._checkpoint_due()
        if checkpoint:
            session.note_checkpoint()
        evidence = {} if step.round is None else step.round.evidence
        with self._timed("recording"):
            snapshot = session.snapshot()
        pending = _Pending(row, evidence, snapshot, checkpoint, self._finished(), evaluation)
        self._pending.append(pending)
        self._write_lines()

    def _evaluate(self, row: JsonObject) -> tuple[Background[_Evaluation], Session[Any]] | None:
        """Evaluate now and add the scores to the line; or in the background, if requests can travel together."""
        session, merging = self._built.session, self._built.merging
        frozen = session.frozen(travels_with_others=self._built.spec.network.merge)
        if merging is not None:
            return merging.start(lambda: self._evaluated(frozen)), frozen
        with self._timed("evaluation"):
            evaluation = self._evaluated(frozen)
            session.traffic.include(frozen.traffic)
        self._add_scores(row, session, evaluation)
        return None

    @contextlib.contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        """Add the time that a block takes to a part of the seconds."""
        clock = time.perf_counter()
        yield
        self._seconds[part] += time.perf_counter() - clock

    def _evaluated(self, session: Session[Any]) -> _Evaluation:
        scores = session.evaluate()
        validation = session.validate(scores) if self._built.spec.run.validate else None
        # `assigned` needs no exchange. `current` does; where it is not the run's rule, it is shown once, at the end.
        shown = scores.score_with == "current" or session.finished(self._built.spec.run.rounds)
        other = session.evaluate_otherwise(scores) if shown else None
        return _Evaluation(scores, other, validation, session.evaluate_current_models(scores))

    def _add_scores(self, row: JsonObject, session: Session[Any], evaluation: _Evaluation) -> None:
        truth, classes = self._built.truth, self._built.task.classes
        self._scores = evaluation.scores
        row |= figures.score_row(self._scores, truth, classes, row.get("assignment"))
        if evaluation.validation is not None:
            row["validation"] = figures.validation_row(evaluation.validation, classes)
        if evaluation.other is not None:
            row["other_assignment"] = figures.other_row(evaluation.other, truth, classes)
        if evaluation.current_models is not None:
            row["current_models"] = figures.results_row(evaluation.current_models, truth, classes)
        self._results = ClientResults.of(len(self._rows), self._scores, classes)
        if self._writer is not None:
            with self._timed("recording"):
                self._writer.client_results(self._results, session.clients)
        if self._best is not None and self._best.improves(row):
            state = {"state": session.state, "t": session.t}
            self._best.keep(len(self._rows), self._last_models(), state, self._results)

    def _write_lines(self) -> None:
        """Write the lines of the steps whose scores have arrived, in order."""
        while self._pending and (self._pending[0].evaluation is None or self._pending[0].evaluation[0].done):
            step = self._pending[0]
            if step.evaluation is not None:
                background, evaluated = step.evaluation
                self._add_scores(step.row, evaluated, background.result())
                self._built.session.traffic.include(evaluated.traffic)
                for later in self._pending:  # their snapshots were taken before the evaluation was counted
                    Session.include_traffic(later.snapshot, evaluated.traffic)
            self._pending.popleft()
            self._write_line(step)

    def _write_line(self, step: _Pending) -> None:
        self._rows.append(step.row)
        with self._timed("recording"):
            if self._writer is not None:
                if step.evidence:
                    self._writer.evidence(len(self._rows) - 1, step.evidence)
                self._writer.append(step.row)
            self._snapshot = self._save(step.snapshot, finished=step.finished)
            if step.checkpoint:
                self._checkpoint()
        if self._on_round is not None:
            self._on_round(step.row)

    def _save(self, snapshot: dict[str, Any], *, finished: bool) -> dict[str, Any]:
        # Taken after each complete step, so that an interrupted step leaves no trace in a checkpoint.
        saved = {"session": snapshot, "steps": len(self._rows), "seconds": self._times()}
        if self._writer is not None:
            saved["rounds"] = self._writer.counted()
        if self._best is not None and self._best.kept is not None:
            saved["best"] = self._best.kept
        elif finished:  # so that a resumed run does not evaluate again
            saved["served"] = self._models()
        return saved

    def _checkpoint_due(self) -> bool:
        every = self._built.spec.run.checkpoint_every
        return self._built.session.t % every == 0 and (every == 1 or self._budget.allows(time.perf_counter()))

    def _checkpoint(self) -> None:
        if self._writer is not None and self._written is not self._snapshot:
            began = time.perf_counter()
            size = self._writer.checkpoint(self._snapshot)
            self._budget.spend(size, began, time.perf_counter())
            self._written = self._snapshot

    def _times(self) -> dict[str, float]:
        compiled = self._seconds["compile"] + compilations().seconds - self._compiled
        return {**self._seconds, "total": time.perf_counter() - self._started, "compile": compiled}

    def _finish(self, status: str, reason: str | None = None) -> RunRecord:
        if status == "done" and (warning := figures.loss_warning(self._rows)) is not None:
            log.warning(warning)
        kept = None if self._kept is None else self._kept["step"]
        summary = run_summary(self._built, status, self._rows, self._times(), self._stopping, kept)
        if reason is not None:
            summary["reason"] = reason
        served = dict(self._models())
        if self._writer is not None:
            self._checkpoint()
            self._writer.end(summary, served)
        path = None if self._writer is None else self._writer.path
        results = self._results if self._best is None or self._kept is None else self._best.results
        return RunRecord(summary, self._rows, path, served, None if path else results)

    @property
    def _kept(self) -> Mapping[str, Any] | None:
        """What is kept of the best round, if its models are served."""
        return None if self._best is None else self._best.kept

    def _models(self) -> Mapping[str, Any]:
        """The models that are recorded: those of the best round, or of the last evaluation."""
        models: Mapping[str, Any] = self._last_models() if self._kept is None else self._kept["served"]
        return models

    def _last_models(self) -> Mapping[str, Any]:
        """The models of the last evaluation, and which client is served which; empty without an evaluation."""
        if self._scores is None:
            return self._served
        return served_models(self._built, self._scores)
