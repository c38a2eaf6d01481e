"""`serve`: a run whose clients are on other machines. The server has no data.

The clients say what their data are like when they are greeted; model, normalization and classes follow from that. The
run loop, the record and its readers are those of a simulation.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from coterie import __version__, methods, models, tree
from coterie.data.description import ClientFacts, DataDescription, combined, difference
from coterie.errors import SpecError
from coterie.federation.network.channel import Channel
from coterie.federation.network.delivery import deliver
from coterie.federation.network.hello import Greeter
from coterie.federation.network.remote import Connection, Remote
from coterie.federation.network.roster import Roster
from coterie.federation.network.wire import Held, Limits
from coterie.models import Task, recipe_of
from coterie.runs.build import Built, build_server, server_spec
from coterie.runs.loop import OnRound, continue_built, run_built
from coterie.runs.record import JsonObject, RunRecord
from coterie.runs.resolve import complete
from coterie.runs.sampling import LiveSampler
from coterie.runs.spec import Spec, SpecLike, read_toml
from coterie.runs.writer import Writer
from coterie.seeds import Seed
from coterie.types import ClientId, Params

#: Seconds after which the reply to a greeting is late.
GREETING_DEADLINE = 30.0

#: Seconds for which a resumed run waits for all its clients: theirs is the longest pause between two connections,
#: and a run that goes on without them has other results.
RETURN = 90.0

#: Sections of a spec that clients are told.
_TOLD = ("method", "model", "local", "privacy", "compression")


class Serving:
    """A server: clients come and go, and a run is made with them.

    Attributes:
        spec: The spec, with the defaults that need no data.
        run: Id of the run; clients store what they must remember under it.
    """

    def __init__(
        self,
        spec: SpecLike,
        channel: Channel,
        roster: Roster,
        *,
        truth: Mapping[ClientId, int] | None = None,
        on_status: Callable[[str], None] | None = None,
    ) -> None:
        """Create a server.

        Args:
            spec: What to run. [data] has a name of your choice, and `classes` if the clients at the start may not have
                them all.
            channel: Reaches the clients.
            roster: The clients.
            truth: Client → true cluster, if known.
            on_status: Called with a sentence when the server begins to wait or to run.
        """
        self.spec = server_spec(Spec.of(spec))
        self.run = secrets.token_hex(8)
        self._channel, self._roster = channel, roster
        self._truth = dict(truth or {})
        self._on_status = on_status or (lambda _: None)
        self._task: Task | None = None
        self._like: ClientFacts | None = None
        self._greeter = Greeter(roster, {}, self._reason_against)
        roster.greet = lambda: self._greeter.exchange(channel, GREETING_DEADLINE)

    def start(self, out: str | os.PathLike[str] | None, on_round: OnRound | None = None) -> RunRecord:
        """Wait for the clients, then run.

        Args:
            out: Folder for the record; None: nothing is written.
            on_round: Called after each step with its line of the record.
        """
        network = self.spec.network
        self._greeter.content = self._greeting()
        self._on_status(f"waiting for {network.clients} clients")
        self._roster.wait_for(network.clients)
        self._choose_kind()
        self._roster.wait_for(network.clients)
        self._roster.begin()
        about = self._described()
        self.spec, self._task = complete(self.spec, about)
        of = "real numbers" if about.classes is None else f"{about.classes:,} classes"
        self._on_status(f"the data of {len(self._roster.initial)} clients: inputs of shape {about.shape}, {of}")
        return self._delivered(run_built(self._built(about, self._task), out, self._following(on_round)))

    def resume(self, path: str | os.PathLike[str], on_round: OnRound | None = None) -> RunRecord:
        """Continue the run in a record, from its last checkpoint.

        Args:
            path: Folder of the record. If the run is done, its models are sent again.
            on_round: Called after each step with its line of the record.
        """
        with Writer.reopen(path) as writer:
            self.spec, saved = _resumable(writer)
            remote: Mapping[str, Any] = saved["session"]["federation"]["transport"]
            self.run = remote["run"]
            self._roster.load(remote["members"])
            self._like = next(iter(self._roster.facts(self._roster.initial).values()), None)
            self._task = models.from_recipe(remote["task"], allowed=(remote["task"]["name"],))
            self._greeter.content = self._greeting()
            patience = min(self.spec.network.wait, RETURN)
            self._on_status(f"waiting for the clients of the run to return, at most {patience:.0f} s")
            self._roster.wait_for_return(patience)
            record = RunRecord.read(path)
            if record.summary.get("status") != "done":
                self._roster.trainable()
                built = self._built(self._described(), self._task)
                record = continue_built(built, writer, saved, self._following(on_round))
        return self._delivered(record)

    def _following(self, on_round: OnRound | None) -> OnRound:
        """The function to call after each step: it also tells the roster which models clients are served."""

        def follow(row: JsonObject) -> None:
            self._roster.served(row.get("assignment") or {})
            if on_round is not None:
                on_round(row)

        return follow

    def _delivered(self, record: RunRecord) -> RunRecord:
        """Send each client that is present the model that it is served."""
        assert self._task is not None
        served = record.served
        row, bank = served["row"], served["bank"]
        self._roster.refresh()
        models: dict[ClientId, tuple[int | None, Params]] = {}
        for client in self._roster.present:
            if client in row:
                models[client] = int(row[client]), tree.row(bank, int(row[client]))
            elif served["fallback"] is not None:
                models[client] = None, served["fallback"]
        about = {
            "method": self.spec.method.name,
            "data": self.spec.data.name,
            "rounds": record.summary["rounds"],
            "adapted": bool(served["adapted"]),
        }
        got = deliver(self._channel, self.run, recipe_of(self._task), about, models, self.spec.network.deadline)
        self._on_status(f"{len(got)} of {len(self._roster.clients)} clients have received their models")
        return record

    def _choose_kind(self) -> None:
        """Decide what the data of this run are like: as those of most clients that are there; dismiss the others."""
        facts = self._roster.facts(self._roster.clients)
        kind, _ = Counter(each.kind for each in facts.values()).most_common(1)[0]
        self._like = next(each for each in facts.values() if each.kind == kind)
        for client, each in facts.items():
            if problem := difference(self._like, each):
                self._roster.dismiss(client, problem)

    def _described(self) -> DataDescription:
        """The data of the clients with which the run began."""
        options = self.spec.data.options
        facts = self._roster.facts(self._roster.initial)
        return combined(self.spec.data.name, facts, classes=options["classes"], truth=self._truth)

    def _built(self, about: DataDescription, task: Task) -> Built:
        """The method on a server that reaches the clients over the channel."""
        spec, network = self.spec, self.spec.network
        self._greeter.content = self._greeting()
        connection = Connection(
            self._channel,
            self._roster,
            self.run,
            backend=spec.run.backend,
            deadline=network.deadline,
            held=Held(spec.data.options["held_share"], Seed(spec.run.seed)),
            limits=Limits(bytes=network.max_reply_bytes, samples=network.max_samples),
            greeter=self._greeter,
        )
        run = spec.run
        sampler = LiveSampler(self._roster, run.clients_per_round, Seed(run.seed), run.sampler, run.stragglers)
        self._on_status("running")
        return build_server(spec, about, task, Remote(connection, task), sampler)

    def _greeting(self) -> dict[str, Any]:
        """What clients are told: what they will be asked, so that they can decide whether to take part."""
        task = None if self._task is None else recipe_of(self._task)
        return {**about_run(self.spec), "run": self.run, "coterie": __version__, "task": task}

    def _reason_against(self, client: ClientId, facts: ClientFacts) -> str | None:
        """Why a client with such data cannot take part; None if it can."""
        asked = self._greeter.content["moments"]  # of all clients, of those with tables, or of none
        if (facts.table if asked == "tables" else asked) and facts.fit and facts.moments is None:
            return "it has not stated the sums of its inputs, which model.normalize needs"
        if self._task is not None:
            return unfit(facts, self._task) or (None if self._like is None else difference(self._like, facts))
        classes = self.spec.data.options["classes"]
        if classes and facts.classes is not None and facts.classes > classes:
            return f"it has labels up to {facts.classes - 1}, data.classes is {classes}"
        shape = tuple(self.spec.data.options["shape"])
        if shape and facts.shape != shape:
            return f"its inputs have shape {facts.shape}, data.shape is {shape}"
        return None if self._like is None else difference(self._like, facts)


def check_resumable(path: str | os.PathLike[str]) -> Spec:
    """Check that a record is that of a server's run which can be continued; returns its spec.

    Raises:
        SpecError: If it cannot be continued.
        RecordError: If there is no record, it is damaged, or another process is writing it.
    """
    RunRecord.read(path)
    with Writer.reopen(path) as writer:
        return _resumable(writer)[0]


def _resumable(writer: Writer) -> tuple[Spec, dict[str, Any]]:
    """The spec and the last checkpoint of a server's run."""
    spec = Spec.from_dict(read_toml(writer.path / "spec.toml"))
    methods.method_class(spec.method.name)  # its state classes are needed to read the checkpoint
    saved = writer.saved()
    if saved is None:
        raise SpecError(f"{writer.path} has no checkpoint: the run had not begun. Start it again in another folder")
    if "members" not in saved["session"]["federation"]["transport"]:
        raise SpecError(f"{writer.path} is the record of a simulated run. To continue it: coterie resume {writer.path}")
    return spec, saved


def about_run(spec: Spec) -> dict[str, Any]:
    """What the owner of a client must know about a run to decide whether to take part."""
    plain, run = spec.to_dict(), spec.run
    primary = [] if run.primary_metric in ("auto", "accuracy", "loss") else [run.primary_metric]
    metrics = list(dict.fromkeys([*run.metrics, *primary]))
    more = {"metrics": metrics, "validate": run.validate or run.patience > 0}
    return {
        **{key: value for key, value in more.items() if value},
        "data": spec.data.name,
        "rounds": spec.run.rounds,
        "spec": {section: plain[section] for section in _TOLD if section in plain},
        "moments": _moments(str(spec.model.options.get("normalize", "auto"))),
    }


def _moments(rule: str) -> bool | str:
    """Which clients are asked for the sums of their inputs: all, none, or those whose data are tables."""
    return "tables" if rule == "auto" else rule == "standard"


def unfit(facts: ClientFacts, task: Task) -> str | None:
    """Why data cannot be learned by a task; None if they can."""
    if facts.shape != tuple(task.shape):
        return f"its inputs have shape {facts.shape}, the model takes {tuple(task.shape)}"
    if (facts.classes is None) != (task.classes is None):
        has, wants = ("real numbers", "class labels") if facts.classes is None else ("class labels", "real numbers")
        return f"its targets are {has}, the model learns {wants}"
    if facts.classes is not None and task.classes is not None and facts.classes > task.classes:
        return (
            f"it has labels up to {facts.classes - 1}, the model has {task.classes} classes (0 to {task.classes - 1})"
        )
    if (facts.ids is None) != (task.tokens is None):
        return f"its inputs are {'numbers' if facts.ids is None else 'token ids'}, unlike those that the model takes"
    if facts.ids is not None and task.tokens is not None and facts.ids > task.tokens:
        return f"it has token ids up to {facts.ids - 1}, the model has {task.tokens} tokens (0 to {task.tokens - 1})"
    return None
