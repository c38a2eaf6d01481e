"""`RecordedFacts`: what is known about the data of each client of a simulation, written once, for reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coterie.runs.client_results import smallest
from coterie.runs.record_files import CLIENTS, read_checked
from coterie.types import Array, ClientId

if TYPE_CHECKING:
    from coterie.data.federated import FederatedData

#: File of a record with the facts.
FACTS = Path(CLIENTS) / "facts.safetensors"

#: Labels are counted if there are at most this many counts, clients times classes.
_MAX_COUNTS = 5_000_000


@dataclass(frozen=True)
class RecordedFacts:
    """The clients of a simulation at the start of the run; entry i of each array belongs to client i.

    Attributes:
        clients: Client ids, newcomers included.
        samples: Number of training examples.
        true_cluster: True cluster; None if it is not known.
        labels: (clients, classes) number of training examples of each class; None for regression, or if there are too
            many counts for a record.
    """

    clients: tuple[ClientId, ...]
    samples: Array
    true_cluster: Array | None = None
    labels: Array | None = None

    @classmethod
    def of(cls, data: FederatedData) -> RecordedFacts:
        """The facts about these data."""
        clients, classes = len(data.clients), data.classes
        labels = None
        if classes is not None and clients * classes <= _MAX_COUNTS:
            pairs = data.fit.owners() * classes + data.y[data.fit.order]
            labels = np.bincount(pairs, minlength=clients * classes).reshape(clients, classes)
        return cls(tuple(data.clients), data.fit.sizes(), data.truth, labels)

    def packed(self) -> dict[str, object]:
        """The content of the file; integers have the smallest type that holds them."""
        found: dict[str, object] = {"clients": list(self.clients), "samples": smallest(self.samples)}
        if self.true_cluster is not None:
            found["true_cluster"] = smallest(self.true_cluster)
        if self.labels is not None:
            found["labels"] = smallest(self.labels)
        return found

    @classmethod
    def read(cls, folder: Path) -> RecordedFacts | None:
        """Read the facts of a record; None if it has none: clients on other machines, or an earlier version."""
        if not (folder / FACTS).is_file():
            return None
        found = read_checked(folder / FACTS, FACTS)
        arrays = {name: found[name].astype(np.int64) for name in ("true_cluster", "labels") if name in found}
        return cls(tuple(found["clients"]), found["samples"].astype(np.int64), **arrays)
