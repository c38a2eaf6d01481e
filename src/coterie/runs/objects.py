"""`Objects`: data, task and metrics that are given in memory to all runs of a comparison or a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coterie import data as datasets
from coterie.data.federated import FederatedData
from coterie.errors import SpecError
from coterie.models import Task
from coterie.runs.metric_plan import MetricLike
from coterie.runs.resolve import with_names_of_objects
from coterie.runs.spec import Spec


@dataclass(frozen=True, eq=False)
class Objects:
    """Objects that replace parts of a spec, as `run` takes them.

    Attributes:
        data: The data; None: those of the spec.
        task: The task; None: the model of the spec.
        metrics: Metrics that are not built in, by name.
    """

    data: FederatedData | None = None
    task: Task | None = None
    metrics: Mapping[str, MetricLike] | None = None

    @classmethod
    def of(cls, data: Any, task: Task | None, metrics: Mapping[str, MetricLike] | None, *, jobs: int) -> Objects:
        """The objects that a call was given; data are converted once.

        Args:
            data: FederatedData, or an object that `coterie.data.as_federated` takes; None: there are none.
            task: The task, if there is one.
            metrics: Metrics of the user, if there are any.
            jobs: Number of runs at a time.

        Raises:
            SpecError: If there are objects and several jobs: other processes do not have the objects.
        """
        given = {"data": data, "task": task, "metrics": metrics}
        if jobs > 1 and (names := [f"{name}=" for name, each in given.items() if each is not None]):
            raise SpecError(
                f"{' and '.join(names)} cannot be sent to the processes of jobs={jobs}; use jobs=1, or name in the "
                "spec what other processes can load: files as data, models by name, metrics by entry point"
            )
        return cls(None if data is None else datasets.as_federated(data), task, metrics)

    @property
    def sections(self) -> list[str]:
        """The sections of a spec that are replaced."""
        return [name for name, each in (("data", self.data), ("model", self.task)) if each is not None]

    def named(self, spec: Spec) -> Spec:
        """The spec with the names of the objects, as the record of a run has it."""
        return with_names_of_objects(spec, self.task, self.data)

    def arguments(self) -> dict[str, Any]:
        """The arguments of `run` and `resume`."""
        return {"data": self.data, "task": self.task, "metrics": self.metrics}


NONE = Objects()
