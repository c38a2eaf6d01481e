"""Coterie as a Flower app: `server_app` and `client_app`, for `flwr run` on a deployment or in the simulation engine.

    # server.py                                      # client.py
    from coterie.flower import server_app            from coterie.flower import client_app

    app = server_app("spec.toml")                    def load_data(context):
                                                         ...
                                                         return x, y, x_test, y_test

                                                     app = client_app(load_data)

Only Flower's public interface is used. A method of Coterie is not a Flower `Strategy`: a strategy has one exchange with
the clients for training and one for evaluation in a round, while methods such as FlexCFL have several, which depend on
each other. The server app therefore runs Coterie's own loop on Flower's grid.

A Flower app differs from `coterie serve` and `coterie join`. Flower starts a process for each message, and this process
runs the code of the app, which comes from the SuperLink: clients trust everyone who may start runs there. Clients take
part without a question about consent. Names of clients come from the deployment (federation/network/flower/
named_nodes.py), and Flower authenticates its nodes, with keys of SuperNodes. `examples/flower-app` is a complete app.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.errors import DataError, Error, SpecError

try:
    from flwr.app import Error as FlowerError
    from flwr.app import Message as FlowerMessage
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
except ImportError as fault:
    raise SpecError("Flower apps need an extra: pip install 'coterie[network]'") from fault

from coterie import methods
from coterie.data import from_arrays
from coterie.data.federated import FederatedData
from coterie.federation.network.channel import Message
from coterie.federation.network.delivery import Delivered
from coterie.federation.network.flower.channel import FlowerChannel
from coterie.federation.network.flower.content import content, pieces, value
from coterie.federation.network.flower.named_nodes import NamedNodes, stated_name
from coterie.federation.network.flower.node_state import FOLDER, client_folder
from coterie.federation.network.flower.nodes import Grid
from coterie.federation.network.roster import Roster
from coterie.federation.network.site import Site
from coterie.federation.network.wire import WireError
from coterie.runs.joining import RUNS, save_model, stated_facts
from coterie.runs.loop import OnRound
from coterie.runs.record import RunRecord
from coterie.runs.serving import Serving
from coterie.runs.spec import SECTIONS, Spec, SpecLike
from coterie.runs.terms import Terms
from coterie.types import Array, ClientId

__all__ = ["client_app", "server_app"]

log = logging.getLogger(__name__)

#: Short keys of a run config → settings of a spec; other settings are written as `section.key`.
SHORT_KEYS = {
    "method": "method.name",
    "clusters": "method.clusters",
    "model": "model.name",
    "rounds": "run.rounds",
    "clients_per_round": "run.clients_per_round",
    "seed": "run.seed",
    "clients": "network.clients",
}

#: Data of one client: training examples, which are split, or training and test examples; or data of Coterie.
ClientData = FederatedData | Sequence[Array]

#: Flower's code for an exception in a client.
_RAISED = 2


def server_app(
    spec: SpecLike | None = None,
    *,
    truth: Mapping[ClientId, int] | None = None,
    on_round: OnRound | None = None,
    on_status: Callable[[str], None] | None = None,
    on_end: Callable[[RunRecord], None] | None = None,
) -> Any:
    """The server half of a Flower app.

    The run config of the app changes the spec: `spec` is the path of a TOML file that replaces it; the keys method,
    clusters, model, rounds, clients_per_round, seed, clients and `section.key`, such as `local.epochs`, replace single
    settings; `out` is the folder for the record; `resume` is that of an interrupted run, which is continued. An empty
    text means that the key is not given, and other keys are left to the app.

    Args:
        spec: What to run: a Spec, nested dicts, or the path of a TOML file. [data] has a name of your choice;
            network.clients is the number of clients that the run waits for.
        truth: Client → true cluster, if known.
        on_round: Called after each step with its line of the record.
        on_status: Called with a sentence when the server begins to wait or to run.
        on_end: Called with the record.

    Returns:
        A `flwr.serverapp.ServerApp`.
    """
    app = ServerApp()

    def main(grid: Grid, context: Any) -> None:
        config = dict(context.run_config)
        serving = _serving(grid, configured(spec, config), truth, on_status)
        if config.get("resume"):
            record = serving.resume(str(config["resume"]), on_round)
        else:
            record = serving.start(config.get("out") or None, on_round)
        if on_end is not None:
            on_end(record)

    app.main()(main)
    return app


def client_app(
    load_data: Callable[[Any], ClientData], *, allowed_models: tuple[str, ...] = (), threads: int | None = None
) -> Any:
    """The client half of a Flower app.

    What a client must remember between messages is in Flower's state of its node; or, if the node configuration has
    `coterie-folder`, in this folder, which outlives the SuperNode and also gets the model that the client is served,
    as `runs/RUN/model.safetensors`.

    Args:
        load_data: Loads the data of a client from Flower's context: (x, y), of which Coterie splits off test examples,
            (x, y, x_test, y_test), or a `FederatedData` with one client. It is called for each message.
        allowed_models: Own models that the server may name, as `package.module:function`.
        threads: Threads of the backend; None: one per core.

    Returns:
        A `flwr.clientapp.ClientApp`.
    """
    app = ClientApp()
    half = _ClientHalf(load_data, allowed_models, threads)
    app.train()(half.answer)
    app.query()(_introduce)
    return app


def configured(spec: SpecLike | None, config: Mapping[str, Any]) -> Spec:
    """A spec with the changes of a run config; see `server_app`.

    Raises:
        SpecError: If a setting does not exist or is out of bounds.
    """
    given = {key: each for key, each in config.items() if each != ""}
    made = Spec.of(given.get("spec", spec))
    changes = {SHORT_KEYS[key]: each for key, each in given.items() if key in SHORT_KEYS}
    changes |= {key: each for key, each in given.items() if "." in key and key.partition(".")[0] in SECTIONS}
    made = made.with_values(changes)
    if made.data == Spec().data:  # the clients have the data; without a name for them they are called like this
        made = made.with_values({"data.name": "federation"})
    return made


def _serving(
    grid: Grid, spec: Spec, truth: Mapping[ClientId, int] | None, on_status: Callable[[str], None] | None
) -> Serving:
    """A server on the nodes of a grid."""
    nodes, network = NamedNodes(grid), spec.network
    roster = Roster(nodes.keys, nodes.connected, minimum=network.min_replies, wait=network.wait)
    return Serving(spec, FlowerChannel(grid, nodes.of), roster, truth=truth, on_status=on_status)


@dataclass(frozen=True)
class _ClientHalf:
    """Answers the messages of the server; any process may answer any message."""

    load_data: Callable[[Any], ClientData]
    allowed_models: tuple[str, ...]
    threads: int | None

    def answer(self, message: Any, context: Any) -> Any:
        """Answer a message. What goes wrong is reported by its type: a text might contain examples."""
        try:
            received = Message(value(message.content, "common"), value(message.content, "own"))
            with client_folder(context) as folder:
                reply = self._site(context, folder / RUNS).answer(received)
        except Exception as fault:
            log.exception("A message could not be answered")
            text = f"WireError: {fault}" if isinstance(fault, WireError) else type(fault).__name__
            return FlowerMessage(FlowerError(_RAISED, text), reply_to=message)
        return FlowerMessage(content(pieces("reply", reply)), reply_to=message)

    def _site(self, context: Any, runs: Path) -> Site:
        for name in methods.names():  # their works are known once they are imported
            methods.method_class(name)
        data = _one_client(self.load_data(context))
        outlasts = bool(context.node_config.get(FOLDER))
        return Site(
            data,
            runs,
            on_hello=lambda greeting: self._greeted(data, greeting),
            on_model=(lambda model: self._save(model, runs)) if outlasts else None,
            allowed_models=self.allowed_models,
            threads=self.threads,
        )

    def _greeted(self, data: FederatedData, greeting: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a greeting: the client takes part if its data fit."""
        try:
            Terms.of(greeting)  # the client has the method
            return {"facts": stated_facts(data, greeting, self.allowed_models).to_dict()}
        except Error as fault:
            return {"refused": str(fault)}

    def _save(self, model: Delivered, runs: Path) -> None:
        save_model(model, runs, self.allowed_models)


def _introduce(message: Any, context: Any) -> Any:
    """Tell the server the name of this node; empty: it has none."""
    return FlowerMessage(content(pieces("reply", stated_name(context.node_config).encode())), reply_to=message)


def _one_client(loaded: ClientData) -> FederatedData:
    """The data that `load_data` returned, as data of one client.

    Raises:
        DataError: If they are not data of one client.
    """
    if isinstance(loaded, FederatedData):
        if len(loaded.clients) != 1:
            raise DataError(
                f"load_data must return the data of one client, got those of {len(loaded.clients)}; "
                "use data.only(client)"
            )
        return loaded
    if not isinstance(loaded, tuple | list) or len(loaded) not in (2, 4):
        raise DataError(
            "load_data must return (x, y), (x, y, x_test, y_test) or a FederatedData with one client, got "
            f"{type(loaded).__name__}"
        )
    return from_arrays({"client": tuple(loaded)}, source="a Flower client")
