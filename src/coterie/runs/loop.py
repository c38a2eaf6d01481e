"""The run loop: play, score, write down, keep checkpoints. `run` and `resume` are the ways in."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.federated import FederatedData
from coterie.errors import Diverged
from coterie.federation.compilation import compilations
from coterie.methods.protocol import Method
from coterie.models import Task
from coterie.runs import summary as figures
from coterie.runs.build import Built, build
from coterie.runs.predict import described
from coterie.runs.record import FORMAT, RunRecord, Writer
from coterie.runs.session import Scores
from coterie.runs.spec import Spec, read_toml

#: Called after each step with its line.
OnRound = Callable[[dict[str, Any]], None]


def run(
    spec: Spec | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    on_round: OnRound | None = None,
    method: Method[Any] | None = None,
    task: Task | None = None,
    data: FederatedData | None = None,
) -> RunRecord:
    """Run a spec from the beginning.

    Args:
        spec: A dict, the path of a TOML file, or a Spec.
        out: The folder of the record; without it nothing is written.
        on_round: Called after each step with its line.
        method: A method object instead of the one named.
        task: A task instead of the model named.
        data: Data instead of those named.
    """
    begun = time.perf_counter()
    built = build(Spec.of(spec), method=method, task=task, data=data)
    writer = None
    if out is not None:
        writer = Writer(out)
        writer.begin(built.spec.to_toml())
    return _Loop(built, writer, on_round, [], begun).run()


def resume(
    path: str | os.PathLike[str],
    *,
    on_round: OnRound | None = None,
    method: Method[Any] | None = None,
    task: Task | None = None,
    data: FederatedData | None = None,
) -> RunRecord:
    """Go on with a run from its last checkpoint; objects that were given to `run` are given again."""
    record = RunRecord.read(path)
    if record.summary.get("status") == "done":
        return record
    begun = time.perf_counter()
    writer = Writer(path)
    # Built first: a checkpoint is read with the classes of states that the method's module defines.
    plain = read_toml(Path(path) / "spec.toml")
    for section, given in (("method", method), ("model", task), ("data", data)):
        if given is not None:  # the file knows no more than its name
            plain.pop(section, None)
    built = build(Spec.from_dict(plain), method=method, task=task, data=data)
    saved = writer.saved()
    built.session.load(saved["session"])
    rows = writer.rewind(saved["steps"])
    return _Loop(built, writer, on_round, rows, begun - saved["seconds"]["total"], saved["seconds"]).run()


class _Loop:
    """One run while it goes on."""

    def __init__(
        self,
        built: Built,
        writer: Writer | None,
        on_round: OnRound | None,
        rows: list[dict[str, Any]],
        begun: float,
        seconds: Mapping[str, float] | None = None,
    ) -> None:
        self._built = built
        self._writer = writer
        self._on_round = on_round
        self._rows = rows
        self._begun = begun
        self._compiled = compilations().seconds
        self._seconds = (
            dict(seconds) if seconds else {"training": 0.0, "evaluation": 0.0, "clustering": 0.0, "compile": 0.0}
        )
        self._scores: Scores | None = None
        self._snapshot = self._save()

    def run(self) -> RunRecord:
        """To the end, or until it is interrupted or diverges; the record up to then is kept."""
        # What overflows is found by the checks of replies and states, which say whose it is.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._run()

    def _run(self) -> RunRecord:
        try:
            while self._goes_on():
                self._step()
            if self._scores is None:
                self._score({})
            return self._finish("done")
        except KeyboardInterrupt:
            self._checkpoint()
            raise
        except Diverged as fault:
            self._finish("diverged", str(fault))
            if self._writer is None:
                raise
            raise Diverged(f"{fault}\nThe record up to then is in {self._writer.path}") from fault

    def _goes_on(self) -> bool:
        session = self._built.session
        return session.stage == "prepare" or (session.stage == "train" and session.t < self._built.spec.run.rounds)

    def _step(self) -> None:
        session, spec = self._built.session, self._built.spec
        welcome = session.welcome()
        clock, asking = time.perf_counter(), session.asking
        earlier = session.traffic.by_purpose(-1) if session.stage == "prepare" else {}
        step = session.step()
        spent = time.perf_counter() - clock
        # What is not spent waiting for clients is the server's own: clustering, averaging.
        self._seconds["training"] += session.asking - asking
        self._seconds["clustering"] += max(0.0, spent - (session.asking - asking))
        row = figures.step_row(step, session.traffic, earlier, spent, self._built.truth)
        if session.stage == "done":
            welcome = session.welcome() or welcome
        if welcome is not None:
            row["newcomers"] = figures.welcome_row(welcome, self._built.truth, self._built.task.classes)
        due = step.stage == "train" and session.t % spec.run.evaluate_every == 0
        if due or (step.round is not None and step.round.closes) or not self._goes_on():
            self._score(row)
        self._rows.append(row)
        if self._writer is not None:
            if step.round is not None and step.round.evidence:
                self._writer.evidence(len(self._rows) - 1, step.round.evidence)
            self._writer.append(row)
        self._snapshot = self._save()
        if step.stage == "prepare" or session.t % spec.run.checkpoint_every == 0:
            self._checkpoint()
        if self._on_round is not None:
            self._on_round(row)

    def _score(self, row: dict[str, Any]) -> None:
        clock = time.perf_counter()
        self._scores = self._built.session.evaluate()
        truth, classes = self._built.truth, self._built.task.classes
        row |= figures.score_row(self._scores, truth, classes, row.get("assignment"))
        self._seconds["evaluation"] += time.perf_counter() - clock

    def _save(self) -> dict[str, Any]:
        # A round that is interrupted leaves no trace: this was taken after the last one that was not.
        return {"session": self._built.session.snapshot(), "steps": len(self._rows), "seconds": self._times()}

    def _checkpoint(self) -> None:
        if self._writer is not None:
            self._writer.checkpoint(self._snapshot)

    def _times(self) -> dict[str, float]:
        compiled = self._seconds["compile"] + compilations().seconds - self._compiled
        return {**self._seconds, "total": time.perf_counter() - self._begun, "compile": compiled}

    def _finish(self, status: str, reason: str | None = None) -> RunRecord:
        built, spec = self._built, self._built.spec
        summary: dict[str, Any] = {
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
            **figures.final(self._rows, spec.run.target),
            "drift": figures.drift_of(self._rows, built.data) if spec.shift.name != "none" else None,
            "traffic": figures.traffic_of(built.session.traffic),
            "refused_replies": dict(built.session.refused),
            "seconds": {key: round(value, 4) for key, value in self._times().items()},
            "peak_rss_bytes": figures.peak_rss_bytes(),
            "versions": figures.versions(),
        }
        if reason is not None:
            summary["reason"] = reason
        served: dict[str, Any] = {}
        if self._scores is not None:
            placement = self._scores.placement
            served = {
                "bank": placement.bank,
                "row": {client: int(row) for client, row in placement.row.items()},
                "adapted": placement.adapt is not None,
                "input": described(built.task),
                "spec": spec.to_dict(),
                "source": built.data.source,
                "attackers": list(built.attackers),
            }
        if self._writer is not None:
            if status == "done":
                self._checkpoint()
            self._writer.end(summary, served)
        path = None if self._writer is None else self._writer.path
        return RunRecord(summary, self._rows, path, served)
