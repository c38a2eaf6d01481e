"""`ClientResults`: the test results of each client in one evaluation, as compact arrays in the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import RecordError
from coterie.runs.record_files import CLIENTS, read_checked, step_file, step_files
from coterie.runs.scoring import Scores
from coterie.types import Array, ClientId

#: File with the ids of all clients, which the files of evaluations refer to.
IDS = Path(CLIENTS) / "ids.safetensors"


@dataclass(frozen=True)
class ClientResults:
    """Test results of the clients of one evaluation; entry i of each array belongs to client i.

    Attributes:
        step: Position of the evaluated step in `RunRecord.rounds`.
        clients: Client ids.
        cluster: Row of the model in the bank; -1 for a client that was served the fallback model.
        total: Number of test examples.
        loss: Mean test loss; NaN without test examples.
        correct: Number of correct predictions; None for regression.
    """

    step: int
    clients: tuple[ClientId, ...]
    cluster: Array
    total: Array
    loss: Array
    correct: Array | None = None

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
        total = np.asarray(scores.total, np.int64)
        sums = np.asarray(scores.loss, np.float32)
        loss = np.divide(sums, total, out=np.full(len(total), np.nan, np.float32), where=total > 0, casting="same_kind")
        correct = None if classes is None else np.rint(scores.correct).astype(np.int64)
        return cls(step, tuple(scores.clients), np.asarray(scores.rows, np.int64), total, loss, correct)

    def packed(self, ids: Sequence[ClientId]) -> dict[str, Array]:
        """The arrays of the file, given the ids of all clients.

        Integers have the smallest type that holds them. If not all clients were evaluated, `client` has the positions
        of those that were.
        """
        arrays = {"cluster": _smallest(self.cluster), "total": _smallest(self.total), "loss": self.loss}
        if self.correct is not None:
            arrays["correct"] = _smallest(self.correct)
        if self.clients != tuple(ids):
            position = {client: place for place, client in enumerate(ids)}
            arrays["client"] = _smallest(np.array([position[client] for client in self.clients], np.int64))
        return arrays

    @classmethod
    def read(cls, folder: Path, step: int | None) -> ClientResults:
        """Read the results of a step from a record; None: of the last evaluation."""
        files = step_files(folder / CLIENTS)
        if not files:
            raise RecordError(f"{folder} has no results of clients: no step was evaluated yet, or it is an old record")
        step = max(files) if step is None else step
        if step not in files:
            last = ", ".join(map(str, list(files)[-10:]))
            raise RecordError(f"Step {step} of {folder} was not evaluated; the last evaluated steps are {last}")
        name = step_file(CLIENTS, step)
        ids, arrays = read_checked(folder / IDS, IDS), read_checked(folder / name, name)
        return cls._unpacked(step, ids["clients"], arrays)

    @classmethod
    def _unpacked(cls, step: int, ids: Sequence[ClientId], arrays: Mapping[str, Any]) -> ClientResults:
        clients = tuple(ids[place] for place in arrays["client"]) if "client" in arrays else tuple(ids)
        whole = {name: arrays[name].astype(np.int64) for name in ("cluster", "total", "correct") if name in arrays}
        return cls(step, clients, loss=arrays["loss"], **whole)


def _smallest(array: Array) -> Array:
    """The integers in the smallest type that holds them."""
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    return array.astype(np.min_scalar_type(min(low, -1 - high) if low < 0 else high))
