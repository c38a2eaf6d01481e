"""`ClientResults`: the test results of each client in one evaluation, as compact arrays in the record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import RecordError
from coterie.runs.record_files import CLIENTS, read_checked, step_file, step_files
from coterie.runs.scoring import Scores
from coterie.types import Array, ClientId

#: File with the ids of all clients, which the files of evaluations refer to.
IDS = Path(CLIENTS) / "ids.safetensors"

#: Names of arrays with the values of a metric begin with this.
_METRIC = "metric "


@dataclass(frozen=True)
class ClientResults:
    """Test results of the clients of one evaluation; entry i of each array belongs to client i.

    Attributes:
        step: Position of the evaluated step in `RunRecord.rounds`.
        clients: Client ids.
        cluster: Row of the model in the bank; -1 for a client that was served the fallback model.
        total: Number of test examples; with sample weights, the sum of their weights.
        loss: Mean test loss; NaN without test examples.
        correct: Number of correct predictions, or the sum of their weights; None for regression.
        metrics: Metric → its value of each client, NaN where it is not defined.
    """

    step: int
    clients: tuple[ClientId, ...]
    cluster: Array
    total: Array
    loss: Array
    correct: Array | None = None
    metrics: Mapping[str, Array] = field(default_factory=dict)

    @property
    def accuracy(self) -> Array:
        """Accuracy of each client; NaN without test examples."""
        if self.correct is None:
            raise RecordError("The clients of this run have no accuracies: the task is a regression")
        unknown = np.full(len(self.total), np.nan)
        accuracy: Array = np.divide(self.correct, self.total, out=unknown, where=self.total > 0)
        return accuracy

    @classmethod
    def of(cls, step: int, scores: Scores, classes: int | None) -> ClientResults:
        """The results in the scores of a step; `classes`: None for regression."""
        total = np.asarray(scores.total)
        weighted = total.dtype.kind == "f"
        total = total.astype(np.float32 if weighted else np.int64)
        sums = np.asarray(scores.loss, np.float32)
        loss = np.divide(sums, total, out=np.full(len(total), np.nan, np.float32), where=total > 0, casting="same_kind")
        correct = np.asarray(scores.correct, np.float32) if weighted else np.rint(scores.correct).astype(np.int64)
        metrics = {name: np.asarray(values.clients, np.float32) for name, values in scores.metrics.items()}
        rows, found = np.asarray(scores.rows, np.int64), None if classes is None else correct
        return cls(step, tuple(scores.clients), rows, total, loss, found, metrics)

    def packed(self, ids: Sequence[ClientId]) -> dict[str, Array]:
        """The arrays of the file, given the ids of all clients.

        Integers have the smallest type that holds them. If not all clients were evaluated, `client` has the positions
        of those that were.
        """
        arrays = {"cluster": smallest(self.cluster), "total": smallest(self.total), "loss": self.loss}
        if self.correct is not None:
            arrays["correct"] = smallest(self.correct)
        arrays |= {f"{_METRIC}{name}": values for name, values in self.metrics.items()}
        if self.clients != tuple(ids):
            position = {client: place for place, client in enumerate(ids)}
            arrays["client"] = smallest(np.array([position[client] for client in self.clients], np.int64))
        return arrays

    @classmethod
    def read(cls, folder: Path, step: int | None) -> ClientResults:
        """Read the results of a step from a record; None: of the last evaluation."""
        if step is None or not (folder / step_file(CLIENTS, step)).is_file():
            step = _known_step(folder, step)
        return cls.read_steps(folder, [step])[step]

    @classmethod
    def read_steps(cls, folder: Path, steps: Iterable[int]) -> dict[int, ClientResults]:
        """Step → its results. The ids of clients, which are in a file of their own, are read once."""
        ids = read_checked(folder / IDS, IDS)["clients"]
        names = {step: step_file(CLIENTS, step) for step in steps}
        return {step: cls._unpacked(step, ids, read_checked(folder / name, name)) for step, name in names.items()}

    @classmethod
    def _unpacked(cls, step: int, ids: Sequence[ClientId], arrays: Mapping[str, Any]) -> ClientResults:
        # Clients that joined after this evaluation come last.
        places = arrays["client"] if "client" in arrays else range(len(arrays["loss"]))
        clients = tuple(ids[place] for place in places)
        given = {name: arrays[name] for name in ("cluster", "total", "correct") if name in arrays}
        whole = {name: each if each.dtype.kind == "f" else each.astype(np.int64) for name, each in given.items()}
        metrics = {name.removeprefix(_METRIC): arrays[name] for name in arrays if name.startswith(_METRIC)}
        return cls(step, clients, loss=arrays["loss"], metrics=metrics, **whole)


def _known_step(folder: Path, step: int | None) -> int:
    """The last step with results if `step` is None; an error that names some of those with results otherwise."""
    files = step_files(folder / CLIENTS)
    if not files:
        raise RecordError(f"{folder} has no results of clients: no step was evaluated yet, or it is an old record")
    if step is None:
        return max(files)
    last = ", ".join(map(str, list(files)[-10:]))
    raise RecordError(f"Step {step} of {folder} was not evaluated; the last evaluated steps are {last}")


def smallest(array: Array) -> Array:
    """The integers in the smallest type that holds them; floats as they are."""
    if array.dtype.kind == "f":
        return array
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    return array.astype(np.min_scalar_type(min(low, -1 - high) if low < 0 else high))
