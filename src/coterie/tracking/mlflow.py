"""Reports a run to MLflow."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from coterie.runs.record import JsonObject
from coterie.runs.spec import Spec
from coterie.tracking.extras import package
from coterie.tracking.flattening import final_metrics, metrics, parameters, tags

#: Status of a record → status of a run in MLflow; all others have failed.
_STATUS = {"done": "FINISHED", "interrupted": "KILLED"}

#: MLflow takes at most so many parameters in one call, and values of at most so many characters.
_BATCH, _LONGEST = 100, 500


class MLflow:
    """Creates a run in an experiment of MLflow.

    Where it is stored is MLflow's own setting: `MLFLOW_TRACKING_URI`, by default a local store in the working
    directory, which needs no network. A resumed run is a new run of MLflow with the tag `coterie.record` of the first.
    """

    def __init__(self, experiment: str = "coterie", tracking_uri: str | None = None) -> None:
        """Create the tracker of one run.

        Args:
            experiment: Name of the experiment, which is created if it does not exist.
            tracking_uri: Where runs are stored, such as `sqlite:///mlflow.db`; None: MLflow's own setting.
        """
        self._tracking = package("mlflow.tracking", "mlflow", "MLflow")
        self._entities = package("mlflow.entities", "mlflow", "MLflow")
        self._experiment, self._uri = experiment, tracking_uri
        self._client: Any = None
        self._run = ""

    def on_start(self, spec: Spec, record_path: Path | None) -> None:
        """Create the run, with the settings as parameters and the tags."""
        self._client = self._tracking.MlflowClient(tracking_uri=self._uri)
        found = self._client.get_experiment_by_name(self._experiment)
        number = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        about = tags(spec) | ({} if record_path is None else {"coterie.record": str(record_path.resolve())})
        name = f"{spec.method.name} on {Path(spec.data.name).stem}, seed {spec.run.seed}"
        self._run = self._client.create_run(number, run_name=name, tags=about).info.run_id
        given = [
            self._entities.Param(key, str(value)[:_LONGEST]) for key, value in parameters(spec).items() if value != ""
        ]
        for first in range(0, len(given), _BATCH):
            self._client.log_batch(self._run, params=given[first : first + _BATCH])

    def on_round(self, row: JsonObject) -> None:
        """Log the metrics of a round."""
        self._log(metrics(row), row["t"])

    def on_end(self, summary: JsonObject) -> None:
        """Log the summary and end the run."""
        self._log(final_metrics(summary), summary.get("rounds", 0))
        self._client.set_tag(self._run, "status", str(summary["status"]))
        self._client.set_terminated(self._run, _STATUS.get(str(summary["status"]), "FAILED"))

    def _log(self, values: dict[str, float], step: int) -> None:
        now = int(1000 * time.time())
        # Names may have letters, digits and _ - . : / and spaces.
        each = [
            self._entities.Metric(re.sub(r"[^\w\-. :/]", "_", name), value, now, step) for name, value in values.items()
        ]
        if each:
            self._client.log_batch(self._run, metrics=each)
