"""Reports a run to TensorBoard, as event files that tensorboardX writes."""

from __future__ import annotations

import os
import re
from itertools import count
from pathlib import Path
from typing import Any

from coterie.runs.record import JsonObject
from coterie.runs.spec import Spec
from coterie.tracking.extras import package
from coterie.tracking.flattening import final_metrics, metrics, parameters, tags

#: Folder of the event files: in the record, or for runs without a record in the working directory.
FOLDER = "tensorboard"


class TensorBoard:
    """Writes event files; `tensorboard --logdir runs` shows those of all records in `runs`.

    A resumed run adds a file to the same folder.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        """Create the tracker of one run.

        Args:
            folder: Folder of the event files; None: `tensorboard` in the record, or without a record
                `tensorboard/DATA-METHOD-SEED`.
        """
        self._tensorboard = package("tensorboardX", "tensorboard", "TensorBoard")
        self._folder = None if folder is None else Path(folder)
        self._writer: Any = None

    def on_start(self, spec: Spec, record_path: Path | None) -> None:
        """Create the event file, with the settings and tags as text."""
        folder = self._folder or (_free(spec) if record_path is None else record_path / FOLDER)
        self._writer = self._tensorboard.SummaryWriter(str(folder))
        for title, values in (("settings", parameters(spec)), ("tags", tags(spec))):
            lines = [f"    {name} = {value}" for name, value in values.items()]  # indented: shown as it is
            self._writer.add_text(title, "\n".join(lines), 0)

    def on_round(self, row: JsonObject) -> None:
        """Write the metrics of a round."""
        for name, value in metrics(row).items():
            self._writer.add_scalar(_grouped(name), value, row["t"])

    def on_end(self, summary: JsonObject) -> None:
        """Write the summary and close the file."""
        for name, value in final_metrics(summary).items():
            self._writer.add_scalar(_grouped(name), value, int(summary["rounds"]))
        self._writer.add_text("status", str(summary["status"]), 0)
        self._writer.close()


def _grouped(name: str) -> str:
    """TensorBoard groups charts by what precedes the first slash."""
    return name.replace(".", "/", 1)


def _free(spec: Spec) -> Path:
    """A folder that does not exist: DATA-METHOD-SEED, with a number if there is one already."""
    parts = (Path(spec.data.name).stem, spec.method.name, str(spec.run.seed))
    first = Path(FOLDER) / re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(parts))
    others = (first.with_name(f"{first.name}-{n}") for n in count(2))
    return first if not first.exists() else next(folder for folder in others if not folder.exists())
