"""The record of a run: a folder that is written during the run and can be read without running anything.

    spec.toml                       the resolved spec
    rounds.jsonl                    one line per step, appended
    summary.json                    final metrics
    models.safetensors              the models, and client → model
    clients/NNNNN.safetensors       test results of each client in the evaluation after a step
    evidence/NNNNN.safetensors      data that the clustering of a step used, such as distances
    checkpoint/latest.safetensors   everything that `resume` needs; previous.safetensors: the checkpoint before it
    .lock                           lock of the process that writes the record

`docs/record-format.md` describes the keys.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie import tree
from coterie.errors import RecordError, unknown
from coterie.notebooks import html_facts
from coterie.runs.record_files import (
    EVIDENCE,
    MODELS,
    ROUNDS,
    SPEC,
    SUMMARY,
    digest,
    read_checked,
    step_file,
    step_files,
)
from coterie.types import Array, Bank, Params

if TYPE_CHECKING:
    import pandas

    from coterie.methods.protocol import Method
    from coterie.models import Task
    from coterie.runs.client_results import ClientResults
    from coterie.runs.inspection import ClientInspection
    from coterie.runs.placing import NewcomerPlacement
    from coterie.runs.served_model import ServedModel

#: A JSON object: a line of `rounds.jsonl`, a summary.
JsonObject = dict[str, Any]

#: Format of the folder. Records of other formats are not read.
FORMAT = 2


@dataclass(repr=False)
class RunRecord:
    """The record of a run.

    Attributes:
        summary: Final metrics; empty if the run is not finished.
        rounds: One dict per step.
        path: The folder; None if the run was not written to disk.
        served: The models, and which client is served which model: `bank`, `row` (client → row), `fallback` (the model
            of clients without a row), `unassigned` (these clients), `input` (shape, classes, normalization), `recipe`
            (the task as plain data; None for a task object), `spec`, `source` of the data, `attackers` (malicious
            clients); `class_names`, `features` and `preprocessing` if the data have them. Empty if the run is not
            finished.
        last_results: Test results of each client with the models that are served, for a run without a folder; None
            otherwise.
    """

    summary: JsonObject
    rounds: list[JsonObject]
    path: Path | None = None
    served: dict[str, Any] = field(default_factory=dict)
    last_results: ClientResults | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> RunRecord:
        """Read the record in a folder; an unfinished run has no summary and no models."""
        folder = Path(path)
        if not (folder / SPEC).is_file():
            raise RecordError(f"{folder} is not the record of a run: {_why_no_record(folder)}")
        served = read_checked(folder / MODELS, MODELS) if (folder / MODELS).is_file() else {}
        summary, checksums = _summary_and_checksums(folder)
        if summary.get("status") == "done":  # the files of other runs change when they are resumed
            _verify(folder, checksums)
        return cls(summary, read_rounds(folder), folder, served)

    def __repr__(self) -> str:
        """Short: what was run, how far, and the accuracy."""
        path = None if self.path is None else str(self.path)
        if not self.summary:
            return f"RunRecord(unfinished, {len(self.rounds)} steps, path={path!r})"
        accuracy = (self.summary.get("accuracy") or {}).get("weighted")
        shown = "" if accuracy is None else f", accuracy {accuracy:.3f}"
        what = f"{self.summary['method']} on {self.summary['data']}, {self.summary['rounds']} rounds{shown}"
        return f"RunRecord({what}, path={path!r})"

    def _repr_html_(self) -> str:
        """What was run and its results, for notebooks."""
        facts: list[tuple[str, object]] = [("path", self.path or "not written")]
        if not self.summary:
            return html_facts("Unfinished run", [("steps", len(self.rounds)), *facts])
        shown = {key: self.summary.get(key) for key in ("status", "model", "seed", "rounds", "clients")}
        accuracy, clusters = self.summary.get("accuracy") or {}, self.summary.get("clusters") or {}
        shown |= {f"accuracy, {key}": accuracy.get(key) for key in ("weighted", "weighted_last_ten", "worst_tenth")}
        shown |= {"test loss": self.summary.get("test_loss"), "clusters": clusters.get("count")}
        known = [(name, _rounded(value)) for name, value in shown.items() if value is not None]
        return html_facts(f"{self.summary.get('method')} on {self.summary.get('data')}", [*known, *facts])

    def models(self) -> Bank:
        """Return the bank of models: all models stacked along a leading axis."""
        if not self.served and self.summary.get("status") == "done":
            raise RecordError(f"{MODELS} is missing from the record in {self.path}; restore it, or run it again")
        if not self.served:
            where = "RUN" if self.path is None else self.path
            text = "This run is not finished and has no models yet. Continue it with: coterie resume"
            raise RecordError(f"{text} {where}")
        bank: Bank = self.served["bank"]
        return bank

    def model_of(self, who: str | int) -> int:
        """Return the row of the bank for a client (id) or a cluster (number)."""
        bank, row = self.models(), self.served["row"]
        if isinstance(who, str) and who in row:
            return int(row[who])
        if who in self.served.get("unassigned", ()):
            raise RecordError(
                f"Client {who} has no model of its own: it is served the fallback model, which is in "
                "record.served['fallback']"
            )
        with contextlib.suppress(ValueError):
            number = int(who)
            if 0 <= number < tree.rows(bank):
                self._check_size(number)
                return number
        raise RecordError(
            unknown("client or cluster", str(who), [*list(row)[:1000], *map(str, range(tree.rows(bank)))])
        )

    def params_of(self, who: str | int) -> Params:
        """Return the model that a client (id) is served, or the model of a cluster (number)."""
        if who in self.served.get("unassigned", ()):
            fallback: Params = self.served["fallback"]
            return fallback
        return tree.row(self.models(), self.model_of(who))

    def _check_size(self, cluster: int) -> None:
        """Raise RecordError for a cluster that is too small to be served: its row holds the fallback model."""
        if cluster not in self.clusters():
            minimum = self._min_cluster_size()
            raise RecordError(
                f"Cluster {cluster} has fewer than {minimum} clients (privacy.min_cluster_size), so that its model is "
                "neither served nor exported; its clients get the fallback model"
            )

    def clusters(self) -> list[int]:
        """Return the clusters whose models may be used: with privacy.min_cluster_size only those that are large."""
        rows = range(tree.rows(self.models()))
        return sorted(set(self.served["row"].values())) if self._min_cluster_size() else list(rows)

    def _min_cluster_size(self) -> int:
        return int(self.served["spec"].get("privacy", {}).get("min_cluster_size", 0))

    def model(self, client: str | None = None, *, cluster: int | None = None, task: Task | None = None) -> ServedModel:
        """Return the model that a client is served, or the model of a cluster, as an object that predicts.

        Args:
            client: Id of a client.
            cluster: Number of a cluster. Neither is needed if the run has one model.
            task: The task that the run used, if it was given to `run` as an object.
        """
        from coterie.runs.predict import served_model

        return served_model(self, client, cluster, task)

    def predict(
        self, x: Any, *, client: str | None = None, cluster: int | None = None, task: Task | None = None
    ) -> Array:
        """Return the predictions of the model of a client or cluster: classes, or numbers for regression.

        Args:
            x: Inputs, as in `ServedModel.predict`.
            client: Id of a client.
            cluster: Number of a cluster. Neither is needed if the run has one model.
            task: The task that the run used, if it was given to `run` as an object.
        """
        return self.model(client, cluster=cluster, task=task).predict(x)

    def predict_proba(
        self, x: Any, *, client: str | None = None, cluster: int | None = None, task: Task | None = None
    ) -> Array:
        """Return the probability of each class, (rows, classes); arguments as in `predict`."""
        return self.model(client, cluster=cluster, task=task).predict_proba(x)

    def torch_module(self, client: str | None = None, *, module: Any, cluster: int | None = None) -> Any:
        """Return a copy of a PyTorch module with the parameters of the model of a client or cluster.

        The normalization of inputs is part of the task, not of the module: the module takes normalized inputs.

        Args:
            client: Id of a client.
            module: The `torch.nn.Module` from which the task was created, or one like it. It is not changed.
            cluster: Number of a cluster. Neither is needed if the run has one model.
        """
        import copy

        from coterie import torch
        from coterie.runs.predict import chosen

        self.models()
        return torch.load(copy.deepcopy(module), self.params_of(chosen(self, client, cluster))).eval()

    def place(
        self,
        x: Any,
        y: Any = None,
        *,
        client: str = "newcomer",
        test_share: float = 0.2,
        seed: int = 0,
        method: Method[Any] | None = None,
        task: Task | None = None,
    ) -> NewcomerPlacement:
        """Find the cluster of a newcomer by the rule of the method. The record does not change.

        Args:
            x: Inputs of the newcomer, as in `ServedModel.predict`.
            y: Their labels or targets. Methods that place clients without looking at their examples need none.
            client: Name of the newcomer.
            test_share: Fraction of the examples that is not used for the decision but for the newcomer's own score.
            seed: Random seed of that split and of the repetitions, which show how sure the decision is.
            method: The method object that the run used, if it used one.
            task: The task that the run used, if it was given to `run` as an object.
        """
        from coterie.runs.placing import place_newcomer

        return place_newcomer(self, x, y, client=client, test_share=test_share, seed=seed, method=method, task=task)

    def inspect(self, client: str | None = None) -> list[ClientInspection]:
        """Return who is in which cluster, since when, with which score, and why.

        Args:
            client: Only this client; None: all clients.
        """
        from coterie.runs.inspection import inspect

        return inspect(self, client)

    def client_results(self, step: int | None = None) -> ClientResults:
        """Return the test results of each client in an evaluation: cluster, loss, samples, correct predictions.

        Args:
            step: Position of the evaluated step in `rounds`; None: the evaluation whose models are served, which is the
                last one unless run.final_model is best. A run without a folder has only that one.
        """
        from coterie.runs.client_results import ClientResults

        if self.path is not None:
            return ClientResults.read(self.path, self.served_step if step is None else step)
        if self.last_results is None:
            raise RecordError("This record has no results of clients: no step was evaluated")
        if step not in (None, self.last_results.step):
            raise RecordError(
                f"Without a folder (out=) only one evaluation is kept, after step {self.last_results.step}"
            )
        return self.last_results

    @property
    def served_step(self) -> int | None:
        """Position in `rounds` of the best round, if its models are served; None: those of the last evaluation are."""
        best = self.summary.get("best_round") or {}
        return int(best["step"]) if best.get("served") else None

    def evidence(self, step: int) -> dict[str, Any]:
        """Return the data that the clustering of a step used; `step`: its position in `rounds`."""
        if self.path is None:
            raise RecordError("Evidence is kept only in a folder; run with out=")
        name = step_file(EVIDENCE, step)
        if not (self.path / name).is_file():
            files = step_files(self.path / EVIDENCE)
            raise RecordError(f"Step {step} of {self.path} has no evidence; steps with evidence: {_some(files)}")
        return read_checked(self.path / name, name)

    def to_frame(self) -> pandas.DataFrame:
        """Return the rounds as a pandas DataFrame, nested keys joined by dots."""
        try:
            import pandas
        except ImportError as fault:
            raise RecordError("to_frame needs pandas: pip install 'coterie[table]'") from fault
        by_client = ("assignment", "true_clusters")
        keep = [{key: value for key, value in row.items() if key not in by_client} for row in self.rounds]
        return pandas.json_normalize(keep)


def _rounded(value: object) -> object:
    return f"{value:.4g}" if isinstance(value, float) else value


def _some(steps: Iterable[int]) -> str:
    return ", ".join(map(str, list(steps)[-10:])) or "none"


def read_rounds(folder: Path) -> list[JsonObject]:
    """Read the lines of a record; an incomplete last line, left by a killed run, is skipped."""
    file = folder / ROUNDS
    if not file.is_file():
        return []
    rows: list[JsonObject] = []
    lines = file.read_bytes().split(b"\n")
    for number, line in enumerate(lines):
        if not line:
            continue
        try:
            row = json.loads(line)
        except ValueError as fault:
            if number == len(lines) - 1:
                break
            raise RecordError(f"{file} is damaged in line {number + 1}") from fault
        if not isinstance(row, dict):
            raise RecordError(f"{file} is damaged in line {number + 1}: not a JSON object")
        rows.append(row)
    return rows


def read_summary(folder: Path) -> JsonObject:
    """Read the summary of a record; empty if the run is not finished."""
    return _summary_and_checksums(folder)[0]


def _why_no_record(folder: Path) -> str:
    if not folder.exists():
        return "it does not exist"
    inside = sorted(file.parent.relative_to(folder).as_posix() for file in folder.glob(f"*/{SPEC}"))
    inside += sorted(file.parent.relative_to(folder).as_posix() for file in folder.glob(f"*/*/{SPEC}"))
    if not inside:
        return f"it has no {SPEC}"
    return f"it has no {SPEC}. Records in it: {', '.join(inside[:3])}{', …' if len(inside) > 3 else ''}"


def _summary_and_checksums(folder: Path) -> tuple[JsonObject, Mapping[str, str]]:
    file = folder / SUMMARY
    if not file.is_file():
        return {}, {}
    try:
        summary = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as fault:
        raise RecordError(f"{file} is damaged: {fault}") from fault
    if not isinstance(summary, dict):
        raise RecordError(f"{file} is damaged: not a JSON object")
    if (found := summary.get("format")) != FORMAT:
        raise RecordError(
            f"{file.parent} has record format {found}; this version of Coterie reads format {FORMAT}. "
            "Read it with the version that wrote it, or run it again"
        )
    checksums = summary.pop("checksums", None)
    if not isinstance(checksums, dict) or checksums.get(SUMMARY) != summary_digest(summary):
        raise RecordError(f"{file} is damaged: the checksum does not match")
    return summary, checksums


def summary_digest(summary: JsonObject) -> str:
    """The checksum of a summary: of its values, in a fixed order."""
    return digest(json.dumps(summary, sort_keys=True, separators=(",", ":")).encode())


def _verify(folder: Path, checksums: Mapping[str, str]) -> None:
    """Raise RecordError if the spec or the lines of a finished record are not those that were written."""
    for name in (SPEC, ROUNDS):
        file = folder / name
        if not file.is_file() or digest(file.read_bytes()) != checksums.get(name):
            raise RecordError(f"{file} is damaged or was changed: the checksum in {SUMMARY} does not match")


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, with None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
