"""`Writer` writes the record of a run, and reads it again when the run is resumed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.errors import RecordError
from coterie.runs.client_facts import FACTS, RecordedFacts
from coterie.runs.client_results import IDS, ClientResults
from coterie.runs.record import JsonObject, finite, read_rounds, summary_digest
from coterie.runs.record_files import (
    CLIENTS,
    EVIDENCE,
    LATEST,
    LOCK,
    MODELS,
    PREVIOUS,
    ROUNDS,
    SPEC,
    SUMMARY,
    digest,
    encoded,
    explained,
    locked,
    open_existing,
    read_checked,
    remove_leftovers,
    step_file,
    step_files,
    sync_file,
    write_whole,
)
from coterie.types import ClientId

log = logging.getLogger(__name__)

_HASH_BYTES = 32


class Writer:
    """Writes a record during the run, and holds its lock. All files but `rounds.jsonl` are replaced atomically.

    A checkpoint counts the lines of `rounds.jsonl` and has their hash. What it counts is on the disk before it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Write into this folder; `create` and `reopen` also take the lock."""
        self.path = Path(path)
        self._lines = 0
        self._hash = hashlib.blake2b(digest_size=_HASH_BYTES)
        self._unsynced: list[Path] = []
        self._ids: list[ClientId] | None = None

    @classmethod
    @contextlib.contextmanager
    def create(cls, path: str | os.PathLike[str], spec_toml: str) -> Iterator[Writer]:
        """Begin a record: create the folder, take the lock and write the spec. The folder must be empty or missing."""
        writer = cls(path)
        with explained(writer.path):
            if not (writer.path / LOCK).exists():  # otherwise the lock says first whether another process writes here
                writer.check_empty()
            writer.path.mkdir(parents=True, exist_ok=True)
        with locked(writer.path):
            with explained(writer.path):
                writer.check_empty()  # again: another process may have been faster
                remove_leftovers(writer.path)
                write_whole(writer.path / ROUNDS, b"")
                write_whole(writer.path / SPEC, spec_toml.encode())
            yield writer

    @classmethod
    @contextlib.contextmanager
    def reopen(cls, path: str | os.PathLike[str]) -> Iterator[Writer]:
        """Continue a record: take the lock, and remove temporary files of a killed process."""
        writer = cls(path)
        with locked(writer.path):
            with explained(writer.path):
                remove_leftovers(writer.path)
            yield writer

    def check_empty(self) -> None:
        """Refuse a folder with content. A killed process may have left a lock, temporary files and an empty file."""
        if self.path.exists() and not (self.path.is_dir() and all(map(_left_by_killed, self.path.iterdir()))):
            raise RecordError(
                f"{self.path} exists and is not empty; choose another folder (--out; out= in Python) or remove it"
            )

    def append(self, row: JsonObject) -> None:
        """Append a line."""
        line = (json.dumps(finite(row), separators=(",", ":"), allow_nan=False) + "\n").encode()
        with explained(self.path), open_existing(self.path / ROUNDS, os.O_WRONLY | os.O_APPEND) as file:
            file.write(line)
        self._lines += 1
        self._hash.update(line)

    def counted(self) -> dict[str, Any]:
        """What a checkpoint says about the lines so far: their number and their hash."""
        return {"lines": self._lines, "blake2b": self._hash.hexdigest()}

    def evidence(self, step: int, evidence: Mapping[str, Any]) -> None:
        """Write the data that the clustering of a step used."""
        self._write_step(step_file(EVIDENCE, step), evidence)

    def client_facts(self, facts: RecordedFacts) -> None:
        """Write what is known about the data of each client, unless the record has it."""
        if not (self.path / FACTS).is_file():
            self._write_step(FACTS, facts.packed())

    def client_results(self, results: ClientResults, ids: Sequence[ClientId]) -> None:
        """Write the test results of each client in an evaluation; `ids`: all clients of the run so far."""
        self._write_step(step_file(CLIENTS, results.step), results.packed(self._all_ids(ids)))

    def _all_ids(self, ids: Sequence[ClientId]) -> list[ClientId]:
        """The ids that results refer to by position. Clients that join later come last: earlier results stay valid."""
        if self._ids is None and (self.path / IDS).is_file():
            self._ids = list(read_checked(self.path / IDS, IDS)["clients"])
        known = set(self._ids or ())
        if self._ids is None or any(client not in known for client in ids):
            self._ids = [*(self._ids or ()), *(client for client in ids if client not in known)]
            self._write_step(IDS, {"clients": self._ids})
        return self._ids

    def _write_step(self, name: Path, content: Mapping[str, Any]) -> None:
        file = self.path / name
        with explained(self.path):
            file.parent.mkdir(exist_ok=True)
            write_whole(file, encoded(content, name), sync=False)
        self._unsynced.append(file)

    def checkpoint(self, saved: Mapping[str, Any]) -> int:
        """Write the checkpoint, after everything that it counts, and return its size in bytes. The last one is kept."""
        latest = self.path / LATEST
        with explained(self.path):
            content = encoded({**saved, "spec": self._spec_hash()}, LATEST.parent)
            for file in (*self._unsynced, *{file.parent for file in self._unsynced}, self.path / ROUNDS):
                sync_file(file)
            self._unsynced.clear()
            latest.parent.mkdir(exist_ok=True)
            write_whole(latest, content, previous=self.path / PREVIOUS)
        return len(content)

    def saved(self) -> dict[str, Any] | None:
        """Read the last checkpoint; if it is damaged, the one before it. None if the run had no checkpoint yet."""
        latest, previous = self.path / LATEST, self.path / PREVIOUS
        if not latest.is_file() and not previous.is_file():
            if (self.path / ROUNDS).is_file() and (self.path / ROUNDS).stat().st_size:
                raise RecordError(f"{self.path} has no checkpoint to resume from; run it again")
            return None
        try:
            saved = _read_checkpoint(latest)
        except RecordError as fault:
            if not previous.is_file():
                raise
            saved = _read_checkpoint(previous)
            log.warning("%s. The run continues from the checkpoint before it, after %d steps", fault, saved["steps"])
            with explained(self.path):  # otherwise the next checkpoint would replace the intact one with it
                latest.unlink(missing_ok=True)
        if saved.get("spec", self._spec_hash()) != self._spec_hash():
            raise RecordError(
                f"{self.path / SPEC} was changed after the run began; restore it, or start a new run with it"
            )
        return saved

    def rewind(self, saved: Mapping[str, Any] | None) -> list[JsonObject]:
        """Cut the record back to a checkpoint; None: to the beginning. Returns the lines that are left.

        Raises:
            RecordError: If the lines that the checkpoint counts are not all there, or were changed.
        """
        steps = 0 if saved is None else saved["steps"]
        with explained(self.path):
            kept = self._counted_lines(None if saved is None else saved.get("rounds"), steps)
            with open_existing(self.path / ROUNDS, os.O_RDWR) as opened:
                opened.truncate(len(kept))
            for file in _files_after(self.path, steps):
                file.unlink()
        self._lines = steps
        self._hash = hashlib.blake2b(kept, digest_size=_HASH_BYTES)
        return read_rounds(self.path)

    def _counted_lines(self, counted: Mapping[str, Any] | None, steps: int) -> bytes:
        """The bytes of the lines that a checkpoint counts, which has `steps` of them."""
        file = self.path / ROUNDS
        *lines, _ = (file.read_bytes() if file.is_file() else b"").split(b"\n")  # the last one is not complete
        if len(lines) < steps:
            raise RecordError(
                f"{file} has {len(lines)} complete lines, but the checkpoint counts {steps}: lines are missing. "
                "Restore the file, or run again in another folder"
            )
        kept = b"".join(line + b"\n" for line in lines[:steps])
        # Checkpoints of earlier versions have no hash.
        if counted and digest(kept) != counted["blake2b"]:
            raise RecordError(
                f"{file} was changed: its first {steps} lines are not those that the checkpoint counts. "
                "Restore the file, or run again in another folder"
            )
        return kept

    def end(self, summary: JsonObject, served: Mapping[str, Any]) -> None:
        """Write summary and models."""
        with explained(self.path):
            if served:
                write_whole(self.path / MODELS, encoded(served, MODELS))
            summary = finite(summary)
            checksums = {SPEC: self._spec_hash(), ROUNDS: self._hash.hexdigest(), SUMMARY: summary_digest(summary)}
            text = json.dumps({**summary, "checksums": checksums}, indent=2) + "\n"
            write_whole(self.path / SUMMARY, text.encode())

    def _spec_hash(self) -> str:
        return digest((self.path / SPEC).read_bytes())


def _read_checkpoint(file: Path) -> dict[str, Any]:
    saved = read_checked(file, LATEST.parent)
    if missing := {"session", "steps", "seconds"} - saved.keys():
        raise RecordError(f"{file} is damaged: it lacks {', '.join(sorted(missing))}")
    return saved


def _left_by_killed(file: Path) -> bool:
    """Whether a file may be left by a process that was killed before the spec was written."""
    if file.name == ROUNDS:
        return file.stat().st_size == 0
    return file.name == LOCK or (file.name.startswith(".") and file.name.endswith(".part"))


def _files_after(folder: Path, steps: int) -> list[Path]:
    """Files of steps that a checkpoint does not count."""
    both = (step_files(folder / name) for name in (EVIDENCE, CLIENTS))
    # Number 0 is also the evaluation of a run without steps; the first step writes it again.
    return [file for files in both for step, file in files.items() if step >= max(steps, 1)]
