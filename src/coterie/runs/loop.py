"""`run` and `resume`: the loop that runs steps, evaluates, writes the record and saves checkpoints."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from coterie.data.federated import FederatedData
from coterie.errors import Diverged, FederationError
from coterie.federation.compilation import compilations
from coterie.methods.protocol import Method
from coterie.models import Task
from coterie.runs import privacy
from coterie.runs import summary as figures
from coterie.runs.build import Built, build
from coterie.runs.client_results import ClientResults
from coterie.runs.method_settings import check_same_method, spec_of
from coterie.runs.predict import described
from coterie.runs.record import FORMAT, JsonObject, RunRecord, read_summary
from coterie.runs.scoring import Scores
from coterie.runs.session import Step
from coterie.runs.spec import SpecLike, read_toml
from coterie.runs.writer import Writer

#: Called after each step with its line of the record.
OnRound = Callable[[JsonObject], None]


def run(
    spec: SpecLike | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    on_round: OnRound | None = None,
    method: Method[Any] | None = None,
    task: Task | None = None,
    data: FederatedData | None = None,
) -> RunRecord:
    """Run a spec.

    Args:
        spec: Nested dicts, the path of a TOML file, or a Spec.
        out: Folder for the record; None: nothing is written.
        on_round: Called after each step with its line of the record.
        method: A method object that replaces the method of the spec. It has its own settings: [method] and [local] of
            the spec must be absent or equal to them. The record holds the settings of the object.
        task: A task that replaces the model of the spec.
        data: Data that replace those of the spec.
    """
    started = time.perf_counter()
    built = build(spec_of(spec, method), method=method, task=task, data=data)
    if out is None:
        return _Loop(built, None, on_round, started).run()
    with Writer.create(out, built.spec.to_toml()) as writer:
        return _Loop(built, writer, on_round, started).run()


def resume(
    path: str | os.PathLike[str],
    *,
    on_round: OnRound | None = None,
    method: Method[Any] | None = None,
    task: Task | None = None,
    data: FederatedData | None = None,
) -> RunRecord:
    """Continue a run from its last checkpoint. Its results are those of a run that was not interrupted.

    Args:
        path: Folder of the record.
        on_round: Called after each step with its line of the record.
        method: The method object that was given to `run`, if there was one, or another with the same settings.
        task: The task that was given to `run`, if there was one.
        data: The data that were given to `run`, if there were any.
    """
    started = time.perf_counter()
    record = RunRecord.read(path)
    if record.summary.get("status") == "done":
        return record
    with Writer.reopen(path) as writer:
        if read_summary(writer.path).get("status") == "done":  # another process has finished it meanwhile
            return RunRecord.read(path)
        # Build before reading the checkpoint: decoding needs the state classes that the method's module defines.
        plain = read_toml(writer.path / "spec.toml")
        check_same_method(plain, method)
        for section, given in (("model", task), ("data", data)):
            if given is not None:  # spec.toml has only the name of an object
                plain.pop(section, None)
        built = build(spec_of(plain, method), method=method, task=task, data=data)
        saved = writer.saved()
        rows = writer.rewind(saved)
        return _Loop(built, writer, on_round, started, saved, rows).run()


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
        self._scores: Scores | None = None
        self._results: ClientResults | None = None
        self._seconds = dict.fromkeys(("setup", "training", "evaluation", "clustering", "compile"), 0.0)
        self._served: Mapping[str, Any] = {}
        if saved is not None:
            built.session.load(saved["session"])
            self._seconds |= saved["seconds"]
            self._served = saved.get("served", {})
        self._started = started - self._seconds.pop("total", 0.0)
        self._seconds["setup"] += time.perf_counter() - started
        self._compiled = compilations().seconds
        self._snapshot = self._save()
        self._written: Mapping[str, Any] | None = None if saved is None else self._snapshot

    def run(self) -> RunRecord:
        """Run to the end. If the run is interrupted or diverges, the record up to that step is kept."""
        # No NumPy warnings on overflow: replies and states are checked, and those errors name the clients.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._run()

    def _run(self) -> RunRecord:
        try:
            self._checkpoint()  # at the beginning, so that a run can be resumed whenever it is killed
            for step in self._built.session.steps(self._built.spec.run.rounds):
                self._record(step)
            if not self._models():  # the method had finished before the first step
                self._evaluate({})
                self._snapshot = self._save()
            return self._finish("done")
        except KeyboardInterrupt:
            self._checkpoint()
            raise
        except FederationError as fault:
            self._finish("diverged" if isinstance(fault, Diverged) else "failed", str(fault))
            if self._writer is None:
                raise
            raise type(fault)(f"{fault}\nThe record of the steps before is in {self._writer.path}") from fault

    def _record(self, step: Step[Any]) -> None:
        session, settings = self._built.session, self._built.spec.run
        self._seconds["training"] += step.waiting
        # The rest of the time is the server's: clustering, averaging.
        self._seconds["clustering"] += max(0.0, step.seconds - step.waiting)
        row = figures.step_row(step, self._built.truth)
        if (entry := privacy.round_entry(session.averaging)) is not None:
            row["privacy"] = entry
        if step.newcomers is not None:
            row["newcomers"] = figures.newcomers_row(step.newcomers, self._built.truth, self._built.task.classes)
        if step.last_newcomers is not None:
            row["last_newcomers"] = figures.newcomers_row(
                step.last_newcomers, self._built.truth, self._built.task.classes
            )
        due = step.stage == "train" and session.t % settings.evaluate_every == 0
        if due or (step.round is not None and step.round.closes) or session.finished(settings.rounds):
            self._evaluate(row)
        self._rows.append(row)
        if self._writer is not None:
            if step.round is not None and step.round.evidence:
                self._writer.evidence(len(self._rows) - 1, step.round.evidence)
            self._writer.append(row)
        due = step.stage == "prepare" or session.t % settings.checkpoint_every == 0
        if due:
            session.note_checkpoint()
        self._snapshot = self._save()
        if due:
            self._checkpoint()
        if self._on_round is not None:
            self._on_round(row)

    def _evaluate(self, row: JsonObject) -> None:
        clock = time.perf_counter()
        session = self._built.session
        self._scores = session.evaluate()
        truth, classes = self._built.truth, self._built.task.classes
        row |= figures.score_row(self._scores, truth, classes, row.get("assignment"))
        # `assigned` needs no exchange. `current` does; where it is not the run's rule, it is shown once, at the end.
        if self._scores.score_with == "current" or session.finished(self._built.spec.run.rounds):
            other = session.evaluate_otherwise(self._scores)
            if other is not None:
                row["other_assignment"] = figures.other_row(other, truth, classes)
        self._results = ClientResults.of(len(self._rows), self._scores, classes)
        if self._writer is not None:
            self._writer.client_results(self._results, session.clients)
        self._seconds["evaluation"] += time.perf_counter() - clock

    def _save(self) -> dict[str, Any]:
        # Taken after each complete step, so that an interrupted step leaves no trace in a checkpoint.
        session = self._built.session
        saved = {"session": session.snapshot(), "steps": len(self._rows), "seconds": self._times()}
        if self._writer is not None:
            saved["rounds"] = self._writer.counted()
        if session.finished(self._built.spec.run.rounds):  # so that a resumed run does not evaluate again
            saved["served"] = self._models()
        return saved

    def _checkpoint(self) -> None:
        if self._writer is not None and self._written is not self._snapshot:
            self._writer.checkpoint(self._snapshot)
            self._written = self._snapshot

    def _times(self) -> dict[str, float]:
        compiled = self._seconds["compile"] + compilations().seconds - self._compiled
        return {**self._seconds, "total": time.perf_counter() - self._started, "compile": compiled}

    def _finish(self, status: str, reason: str | None = None) -> RunRecord:
        built, spec = self._built, self._built.spec
        summary: JsonObject = {
            "format": FORMAT,
            "status": status,
            "method": spec.method.name,
            "data": spec.data.name,
            "source": built.data.source,
            "model": spec.model.name,
            "seed": spec.run.seed,
            "rounds": built.session.t,
            "clients": len(built.session.clients),
            "clients_without_examples": len(built.idle),
            "attackers": len(built.attackers),
            "parameters": built.session.parameters,
            "score_with": spec.run.score_with,
            **figures.final(self._rows, spec.run.target),
            "drift": figures.drift_of(self._rows, built.data) if spec.shift.name != "none" else None,
            "privacy": privacy.summary_entry(built.session.averaging),
            "traffic": figures.traffic_of(built.session.traffic),
            "rejected_replies": dict(built.session.rejected),
            "lost_replies": built.session.lost,
            "seconds": {key: round(value, 4) for key, value in self._times().items()},
            "peak_rss_bytes": figures.peak_rss_bytes(),
            "versions": figures.versions(),
        }
        if reason is not None:
            summary["reason"] = reason
        served = dict(self._models())
        if self._writer is not None:
            self._checkpoint()
            self._writer.end(summary, served)
        path = None if self._writer is None else self._writer.path
        return RunRecord(summary, self._rows, path, served, None if path else self._results)

    def _models(self) -> Mapping[str, Any]:
        """The models of the last evaluation, and which client is served which; empty without an evaluation."""
        if self._scores is None:
            return self._served
        built, placement = self._built, self._scores.placement
        return {
            "bank": placement.bank,
            "row": {client: int(row) for client, row in placement.row.items()},
            "fallback": placement.fallback,
            "unassigned": [client for client in self._scores.requested if client not in placement.row],
            "adapted": placement.adapt is not None,
            "input": described(built.task),
            "spec": built.spec.to_dict(),
            "source": built.data.source,
            "attackers": list(built.attackers),
        }
