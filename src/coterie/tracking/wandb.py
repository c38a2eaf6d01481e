"""Reports a run to Weights & Biases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from coterie.runs.record import JsonObject
from coterie.runs.spec import Spec
from coterie.tracking.extras import package
from coterie.tracking.flattening import final_metrics, metrics, parameters, tags


class WandB:
    """Creates a run in a project of Weights & Biases.

    Login, address and mode are settings of wandb itself: with `WANDB_MODE=offline` it needs neither an account nor a
    network, and `wandb sync` uploads the files later.
    """

    def __init__(
        self,
        project: str = "coterie",
        mode: Literal["online", "offline", "disabled"] | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        """Create the tracker of one run.

        Args:
            project: Name of the project.
            mode: Whether files are uploaded; None: wandb's own setting.
            folder: Folder in which wandb creates its folder `wandb`; None: wandb's own setting, by default the working
                directory.
        """
        self._wandb = package("wandb", "wandb", "Weights & Biases")
        self._project, self._mode = project, mode
        self._folder = None if folder is None else str(folder)
        self._run: Any = None

    def on_start(self, spec: Spec, record_path: Path | None) -> None:
        """Create the run, with the settings as config and the tags."""
        about = tags(spec)
        if self._folder is not None:
            Path(self._folder).mkdir(parents=True, exist_ok=True)
        self._run = self._wandb.init(
            project=self._project,
            name=f"{about['method']} on {Path(about['data']).stem}, seed {about['seed']}",
            config={**parameters(spec), **({} if record_path is None else {"record": str(record_path.resolve())})},
            tags=[f"{key}:{value}"[:64] for key, value in about.items()],  # wandb refuses longer tags
            mode=self._mode,
            dir=self._folder,
            reinit="create_new",  # several runs of a comparison may go on at the same time
            settings=self._wandb.Settings(silent=True),
        )

    def on_round(self, row: JsonObject) -> None:
        """Log the metrics of a round."""
        if values := metrics(row):
            self._run.log(values, step=row["t"])

    def on_end(self, summary: JsonObject) -> None:
        """Add the summary and end the run."""
        self._run.summary.update({**final_metrics(summary), "status": str(summary["status"])})
        self._run.finish(exit_code=0 if summary["status"] == "done" else 1)
