"""`Membership`: a client on its own machine. It decides whether it takes part, answers requests, and logs them.

folder/
    consents.json    what its owner has agreed to
    log.jsonl        every request and what was sent in reply; lines are only ever appended
    left             exists once the client has withdrawn
    runs/RUN/        what it must remember in a run: memories, cached values, its last reply; and at the end
                     model.safetensors and model.json, the model that it is served
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from coterie import tree
from coterie.data import from_arrays, load
from coterie.data.description import ClientFacts
from coterie.data.federated import FederatedData
from coterie.data.formats.folder import read_client
from coterie.errors import DataError, Error, SpecError, shown, unknown
from coterie.federation.network import files
from coterie.federation.network.channel import Message
from coterie.federation.network.delivery import Delivered
from coterie.federation.network.site import Answered, Site
from coterie.federation.network.wire import WireError
from coterie.models import from_recipe
from coterie.runs.model_files import DATA_KEYS, describe, facts_of_recipe, named_arrays, write_model
from coterie.runs.serving import unfit
from coterie.runs.terms import Terms, asks_for_moments
from coterie.seeds import Seed
from coterie.types import Array, Params

log = logging.getLogger(__name__)

CONSENTS, LOG, LEFT, RUNS = "consents.json", "log.jsonl", "left", "runs"

#: Seconds in which the last reply reaches the server.
_LAST_REPLY = 5.0

#: Decides about terms: True, False, or None if the owner has not answered yet.
Consent = Callable[[Terms], bool | None]


class Membership:
    """A client on its own machine.

    Attributes:
        folder: Where it stores what it must remember.
        stop: Set when it has withdrawn or should end.
        refused: Why it does not take part, if it does not.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        folder: Path,
        *,
        consent: Consent,
        client: str | None = None,
        options: Mapping[str, Any] | None = None,
        on_answer: Callable[[Answered], None] | None = None,
        on_terms: Callable[[Terms, str], None] | None = None,
        on_model: Callable[[Path, Mapping[str, Any]], None] | None = None,
        on_problem: Callable[[str], None] | None = None,
        allowed_models: tuple[str, ...] = (),
        threads: int | None = None,
    ) -> None:
        """Open the folder and read the data.

        Args:
            source: The client's data: a folder or a file that `coterie.data.load` reads.
            folder: Where the client stores what it must remember.
            consent: Decides about the terms of a server; asked once for the same terms.
            client: The client in the data, if they contain several.
            options: Settings of the data, as in [data] of a spec.
            on_answer: Called after each request.
            on_terms: Called with each greeting and the decision.
            on_model: Called with the file and the description of a model that the client received.
            on_problem: Called with the reason if a message cannot be answered.
            allowed_models: Own models that may be imported, as `package.module:function`.
            threads: Threads; None: one per core.
        """
        self.folder = folder
        self.stop = threading.Event()
        self.refused = ""
        self._source, self._client, self._options = Path(source), client, dict(options or {})
        self._consent, self._on_answer, self._on_terms, self._on_model = consent, on_answer, on_terms, on_model
        self._on_problem = on_problem or (lambda _: None)
        self._allowed_models = allowed_models
        folder.mkdir(parents=True, exist_ok=True)
        os.chmod(folder, 0o700)
        self._stamp = _stamp(self._source)
        self._data = one_client(self._source, client, self._options)
        self._site = Site(
            self._data,
            folder / RUNS,
            on_hello=self.greeted,
            on_answer=self._log,
            on_model=self._receive,
            allowed_models=allowed_models,
            allowed_works=(),
            threads=threads,
        )

    def agree(self, terms: Terms, agreed: bool = True) -> None:
        """Record that the owner of the client has agreed to terms, or not."""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        _write_json(self.folder / CONSENTS, {**self._consents(), terms.key: agreed})
        self._append({"time": when, "consent": agreed, "method": terms.method, "options": dict(terms.options)})

    def has_agreed(self, terms: Terms) -> bool | None:
        """Whether the owner has agreed to terms; None if it was not asked."""
        return self._consents().get(terms.key)

    def end_soon(self) -> None:
        """Set `stop` once the reply that is being written has had time to reach the server."""
        timer = threading.Timer(_LAST_REPLY, self.stop.set)
        timer.daemon = True
        timer.start()

    @property
    def facts(self) -> ClientFacts:
        """What the client would state about its data."""
        return ClientFacts.of(self._data)

    def answer(self, message: Message) -> bytes:
        """Answer a message of the server; new examples in the data folder are used from now on."""
        if (self.folder / LEFT).exists():
            self.stop.set()
            raise SpecError("This client has withdrawn")
        self._renew()
        try:
            return self._site.answer(message)
        except Exception as fault:  # nothing that is not in the log leaves the client: not even if the disk is full
            self._on_problem(f"a message was not answered: {shown(str(fault) or type(fault).__name__)}")
            raise

    def greeted(self, greeting: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a greeting: what the data are like, or why the client does not take part."""
        try:
            terms = Terms.of(greeting, table=self._data.preprocessing is not None)
            decision = self._decided(terms)
            if decision is not None:
                word, self.refused = decision
                return {word: self.refused}
            facts = stated_facts(self._data, greeting, self._allowed_models)
        except Error as fault:
            self.refused = str(fault)
            return {"refused": self.refused}
        self.refused = ""
        self._site.allow(terms.works())
        return {"facts": facts.to_dict()}

    def _decided(self, terms: Terms) -> tuple[str, str] | None:
        """Why the client does not take part (yet); None if its owner has agreed."""
        if (self.folder / LEFT).exists():
            self.stop.set()
            return "refused", "the client has withdrawn"
        agreed = self.has_agreed(terms)
        if agreed is None:
            agreed = self._consent(terms)
            if agreed is not None:
                self.agree(terms, agreed)
        if self._on_terms is not None:
            self._on_terms(terms, "agreed" if agreed else "waiting" if agreed is None else "refused")
        if agreed is None:
            return "waiting", "its owner has not agreed yet"
        return None if agreed else ("refused", "its owner has not agreed to what the method reveals")

    def _consents(self) -> dict[str, bool]:
        try:
            stored = json.loads((self.folder / CONSENTS).read_text())
            return {str(key): bool(value) for key, value in stored.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError) as fault:
            log.warning("%s cannot be read; the owner is asked again: %s", self.folder / CONSENTS, fault)
            return {}

    def _renew(self) -> None:
        """Read the data again if their files have changed; damaged files leave the old data in use."""
        stamp = _stamp(self._source)
        if stamp == self._stamp:
            return
        try:
            data = one_client(self._source, self._client, self._options)
            if data.shape != self._data.shape:
                raise DataError(f"inputs had shape {self._data.shape} and now have {data.shape}")
        except Error as fault:
            log.warning("The changed data cannot be used, the client continues with the old ones: %s", fault)
            self._stamp = stamp
            return
        self._stamp, self._data = stamp, data
        self._site.renew(data)

    def _receive(self, model: Delivered) -> None:
        """Save the model that the client is served, if it is one of its task."""
        file, description = save_model(model, self.folder / RUNS, self._allowed_models)
        self._append({"time": description["received"], "run": model.run, "model": str(file), "cluster": model.cluster})
        if self._on_model is not None:
            self._on_model(file, description)

    def _log(self, entry: Answered) -> None:
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._append({"time": when, **dataclasses.asdict(entry)})
        if self._on_answer is not None:
            self._on_answer(entry)

    def _append(self, line: Mapping[str, Any]) -> None:
        file = self.folder / LOG
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as out:
            out.write(json.dumps(line) + "\n")


def stated_facts(data: FederatedData, greeting: Mapping[str, Any], allowed_models: tuple[str, ...] = ()) -> ClientFacts:
    """What a client states about its data when it takes part in the run of a greeting.

    Args:
        data: The data of the client.
        greeting: What the server says about the run.
        allowed_models: Own models that may be imported, as `package.module:function`.

    Raises:
        DataError: If the data do not fit the model of the run.
    """
    wanted = asks_for_moments(greeting, table=data.preprocessing is not None)
    facts = ClientFacts.of(data, moments=wanted)
    recipe = greeting.get("task")
    problem = None if recipe is None else unfit(facts, from_recipe(recipe, allowed=allowed_models))
    if problem:
        raise DataError(f"the data do not fit: {problem}")
    return facts


def save_model(model: Delivered, runs: Path, allowed_models: tuple[str, ...] = ()) -> tuple[Path, dict[str, Any]]:
    """Save the model that a client is served.

    Args:
        model: The model, as the server sent it.
        runs: Folder with a folder for each run; the model becomes RUN/model.safetensors, described in RUN/model.json.
        allowed_models: Own models that may be imported, as `package.module:function`.

    Returns:
        The file, and its description.

    Raises:
        WireError: If it is not a model of its task.
    """
    task = from_recipe(model.task, allowed=allowed_models)
    if _shapes(task.init(Seed(0))) != _shapes(model.params):
        raise WireError("The model at the end of the run is not one of its task")
    arrays = named_arrays(model.params)
    description = _description(model, arrays)
    file = runs / model.run / "model.safetensors"
    files.create_folder(file.parent)
    write_model(file, arrays, description)
    return file, description


def leave(folder: Path, *, forget: bool = False) -> int:
    """Withdraw a client: a running `coterie join` stops, and later ones refuse to start.

    Args:
        folder: The client's folder.
        forget: Also delete everything that it stored for runs. The log stays.

    Returns:
        Number of runs whose storage was deleted.
    """
    if not (folder / LOG).exists() and not (folder / CONSENTS).exists() and not (folder / RUNS).exists():
        raise SpecError(f"{folder} is not the folder of a client; name the one that coterie join was given as --folder")
    (folder / LEFT).write_text(datetime.now(UTC).isoformat(timespec="seconds") + "\n")
    if not forget:
        return 0
    runs = [each for each in (folder / RUNS).iterdir() if each.is_dir()] if (folder / RUNS).is_dir() else []
    for each in runs:
        shutil.rmtree(each)
    return len(runs)


def one_client(source: Path, client: str | None, options: Mapping[str, Any]) -> FederatedData:
    """The data of one client from a file or folder.

    Args:
        source: A folder or file that `coterie.data.load` reads; a single .npz file has the arrays `x` and `y`.
        client: The client, if there are several.
        options: Settings of the data.
    """
    if source.suffix and not source.exists():
        raise DataError(f"There is no file {source}; name the client's data with --data")
    if source.suffix == ".npz" and source.is_file():
        known = ("classes", "seed", "test_share")
        for name in options:
            if name not in known:
                raise SpecError(unknown("setting", f"data.{name}", [f"data.{each}" for each in known]))
        return from_arrays({source.stem: read_client(source)}, name=source.stem, source="a .npz file", **options)
    data = load(source, **options)
    if client is None and len(data.clients) > 1:
        raise DataError(
            f"{source} has the data of {len(data.clients)} clients; name one of them with --client, from "
            f"{data.clients[0]!r} to {data.clients[-1]!r}"
        )
    return data.only(client or data.clients[0])


def _description(model: Delivered, arrays: Mapping[str, Array]) -> dict[str, Any]:
    """What the JSON file beside a model says."""
    received = datetime.now(UTC).isoformat(timespec="seconds")
    about = {key: model.about.get(key) for key in ("method", "data", "rounds", "adapted", *DATA_KEYS)}
    known = {key: value for key, value in about.items() if value is not None or key not in DATA_KEYS}
    return describe(
        facts_of_recipe(model.task), arrays, run=model.run, **known, cluster=model.cluster, received=received
    )


def _shapes(params: Params) -> list[tuple[str, tuple[int, ...], str]]:
    return [(path, np.shape(leaf), str(np.asarray(leaf).dtype)) for path, leaf in tree.paths(params)]


def _stamp(source: Path) -> tuple[Any, ...]:
    """Changes whenever a file of the data changes."""
    files = sorted(source.rglob("*")) if source.is_dir() else [source]
    found = []
    for file in files:
        try:
            about = file.stat()
        except OSError:
            continue
        found.append((str(file), about.st_mtime_ns, about.st_size))
    return tuple(found)


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    files.write_over(file, (json.dumps(content, indent=2, default=str) + "\n").encode(), files.PRIVATE)
