"""The record of a run: a folder that explains itself, written as the run goes, readable without running anything.

spec.toml               what was run, every default visible
rounds.jsonl            one line a step, appended
summary.json            the figures in the end
models.safetensors      the models that are served, and who is served which
evidence/NNNNN.safetensors   what clustering was decided on
checkpoint/latest.safetensors   all that is needed to go on
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coterie import codec, tree
from coterie.errors import RecordError, unknown
from coterie.types import Array, Bank

#: Of the folder; older ones are read for ever.
FORMAT = 1

_SPEC, _ROUNDS, _SUMMARY, _MODELS = "spec.toml", "rounds.jsonl", "summary.json", "models.safetensors"
_CHECKPOINT = Path("checkpoint") / "latest.safetensors"


@dataclass
class RunRecord:
    """What happened in a run.

    Attributes:
        summary: The figures in the end.
        rounds: One dict a step.
        path: The folder; None for a run that was not written down.
        served: The models and who is served which: `bank`, `row` (client → row), `input` (shape, classes,
            normalization), `spec`, `source` of the data, `attackers` (who did harm).
    """

    summary: dict[str, Any]
    rounds: list[dict[str, Any]]
    path: Path | None = None
    served: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> RunRecord:
        """The record in a folder; of a run that is not over, without summary and models."""
        folder = Path(path)
        if not (folder / _SPEC).is_file():
            raise RecordError(f"{folder} is not the record of a run: it has no {_SPEC}")
        summary: dict[str, Any] = {}
        if (folder / _SUMMARY).is_file():
            try:
                summary = json.loads((folder / _SUMMARY).read_text(encoding="utf-8"))
                newer = summary.get("format", 0) > FORMAT
            except (ValueError, AttributeError, TypeError) as fault:
                raise RecordError(f"{folder / _SUMMARY} is damaged: {fault}") from fault
            if newer:
                raise RecordError(f"{folder} has format {summary['format']}; this version reads up to {FORMAT}")
        served = {}
        if (folder / _MODELS).is_file():
            served = _decoded(folder / _MODELS)
        return cls(summary, read_rounds(folder), folder, served)

    def models(self) -> Bank:
        """The models that are served, stacked."""
        if not self.served:
            raise RecordError("This run has no models yet: it is not over. Go on with: coterie resume RUN")
        bank: Bank = self.served["bank"]
        return bank

    def model_of(self, who: str | int) -> int:
        """The row of the bank that serves a client, or of a cluster itself."""
        bank, row = self.models(), self.served["row"]
        if isinstance(who, str) and who in row:
            return int(row[who])
        with contextlib.suppress(ValueError):
            number = int(who)
            if 0 <= number < tree.rows(bank):
                return number
        raise RecordError(
            unknown("client or cluster", str(who), [*list(row)[:1000], *map(str, range(tree.rows(bank)))])
        )

    def predict(self, who: str | int, x: Array) -> Array:
        """What the model of a client (or cluster) says of stored inputs: classes, or numbers."""
        from coterie.runs.predict import predict

        if self.served.get("adapted"):
            raise RecordError(
                "The clients of this run serve themselves a model of their own, which never left them; "
                "record.models() holds the one that they start from"
            )
        return predict(self.served, self.model_of(who), np.asarray(x))

    def to_frame(self) -> Any:
        """The rounds as a table of pandas, nested names joined by dots."""
        try:
            import pandas
        except ImportError as fault:
            raise RecordError("to_frame needs pandas: pip install 'coterie[table]'") from fault
        by_client = ("assignment", "kinds")
        keep = [{key: value for key, value in row.items() if key not in by_client} for row in self.rounds]
        return pandas.json_normalize(keep)


def read_rounds(folder: Path) -> list[dict[str, Any]]:
    """The lines of a record; a last line that was cut off while it was written is left out."""
    file = folder / _ROUNDS
    if not file.is_file():
        return []
    rows: list[dict[str, Any]] = []
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
            raise RecordError(f"{file} is damaged in line {number + 1}: not a table of values")
        rows.append(row)
    return rows


def _decoded(file: Path) -> dict[str, Any]:
    try:
        value = codec.decode(file.read_bytes())
    except RecordError as fault:
        raise RecordError(f"{file}: {fault}") from fault
    if not isinstance(value, dict):
        raise RecordError(f"{file} is damaged: it does not hold what it should")
    return value


class Writer:
    """Writes a record while the run goes on. Files that are not appended to are written beside and then moved."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Write into this folder, which is made if it is missing."""
        self.path = Path(path)

    def begin(self, spec_toml: str) -> None:
        """Make the folder; refuse one that holds another run."""
        with _explained(self.path):
            if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
                raise RecordError(
                    f"{self.path} exists and is not empty; choose another folder with --out, or remove it"
                )
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(self.path / _SPEC, spec_toml.encode())
            (self.path / _ROUNDS).touch()

    def rewind(self, steps: int) -> list[dict[str, Any]]:
        """Keep the first `steps` lines, those that a checkpoint knows of."""
        with _explained(self.path):
            rows = read_rounds(self.path)[:steps]
            write_whole(self.path / _ROUNDS, "".join(_line(row) for row in rows).encode())
            return rows

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a line."""
        with _explained(self.path), (self.path / _ROUNDS).open("a", encoding="utf-8") as file:
            file.write(_line(row))

    def evidence(self, step: int, evidence: Mapping[str, Any]) -> None:
        """Keep what clustering was decided on."""
        with _explained(self.path):
            (self.path / "evidence").mkdir(exist_ok=True)
            write_whole(self.path / "evidence" / f"{step:05d}.safetensors", codec.encode(dict(evidence)))

    def checkpoint(self, saved: Mapping[str, Any]) -> None:
        """Keep all that is needed to go on."""
        with _explained(self.path):
            (self.path / _CHECKPOINT).parent.mkdir(exist_ok=True)
            write_whole(self.path / _CHECKPOINT, codec.encode(dict(saved)))

    def saved(self) -> dict[str, Any]:
        """The last checkpoint."""
        file = self.path / _CHECKPOINT
        if not file.is_file():
            raise RecordError(f"{self.path} has no checkpoint to go on from; run it again")
        return _decoded(file)

    def end(self, summary: Mapping[str, Any], served: Mapping[str, Any]) -> None:
        """Write the figures and the models."""
        with _explained(self.path):
            if served:
                write_whole(self.path / _MODELS, codec.encode(dict(served)))
            write_whole(self.path / _SUMMARY, (json.dumps(finite(summary), indent=2) + "\n").encode())


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(finite(row), separators=(",", ":"), allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """The same with null for numbers that are not finite, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def write_whole(file: Path, content: bytes) -> None:
    """Write a file as a whole or not at all: beside its place, then moved there."""
    beside = file.with_name(file.name + ".part")
    try:
        with beside.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(file)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise RecordError(f"The record in {path} cannot be written: {fault.strerror or fault}") from fault
