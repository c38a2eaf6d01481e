"""Flower apps: run configs, names of nodes, what clients remember, and a whole run on a grid in this process."""

import importlib.util
import pickle
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'coterie[network]'")

from flwr.app import Context, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

import coterie
from coterie import codec
from coterie.errors import SpecError, TimedOut
from coterie.federation.network.flower.content import content, pieces, value
from coterie.federation.network.flower.internals import internals
from coterie.federation.network.flower.named_nodes import PAUSE, NamedNodes, stated_name
from coterie.federation.network.flower.node_state import client_folder
from coterie.federation.network.site import Site
from coterie.flower import client_app, configured, server_app
from coterie.runs.spec import Spec

CLIENTS = 4
EXAMPLE = Path(__file__).parents[3] / "examples" / "flower-app"


@pytest.fixture(autouse=True)
def identity():
    """The run that messages belong to; Flower sets it in the process of a server app."""
    names = internals().TaskIdentity
    before = (names._task_id, names._run_id, names._node_id)
    names.task_id, names.run_id, names.node_id = 1, 2, 1
    yield
    names._task_id, names._run_id, names._node_id = before


class Node:
    """A node: its configuration and state, and the app that answers its messages."""

    def __init__(self, number, app=None, name="", **config) -> None:
        self.info = SimpleNamespace(node_id=number, name=name)
        self.app, self.online = app, True
        self.config = {key.replace("_", "-"): each for key, each in config.items()}
        self.state = pickle.dumps(RecordDict())

    def answer(self, message, run_config):
        """Answer in a new process: only the state of the node is kept, as Flower's simulation engine keeps it."""
        context = Context(1, self.info.node_id, self.config, pickle.loads(self.state), run_config)
        reply = self.app(message, context)
        self.state = pickle.dumps(context.state)
        return reply


class Grid:
    """Nodes in this process.

    Attributes:
        asked: Node and type of each message.
    """

    def __init__(self, nodes, run_config=None) -> None:
        self.nodes = {node.info.node_id: node for node in nodes}
        self.run_config = run_config or {}
        self.asked, self._replies = [], {}

    def get_nodes(self):
        return [node.info for node in self.nodes.values() if node.online]

    def push_messages(self, messages):
        keys = []
        for message in messages:
            number, key = message.metadata.dst_node_id, f"message {len(self.asked)}"
            self.asked.append((number, message.metadata.message_type))
            message.metadata.__dict__["_message_id"] = key
            if self.nodes[number].app is not None:
                self._replies[key] = self.nodes[number].answer(message, self.run_config)
            keys.append(key)
        return keys

    def pull_messages(self, message_ids):
        return [self._replies.pop(key) for key in list(message_ids) if key in self._replies]


def digits():
    return coterie.data.load("digits", clients=CLIENTS, partition="inverted", clusters=2, seed=1)


def load_part(context):
    data = digits()
    return data.only(data.clients[context.node_config["partition-id"]])


def nodes(load=load_part, **config):
    app = client_app(load, threads=1)
    return [
        Node(100 + place, app, partition_id=place, num_partitions=CLIENTS, **config)
        for place in reversed(range(CLIENTS))
    ]


def run(spec, grid, **more):
    """Run a server app as Flower does; returns the record."""
    records = []
    context = SimpleNamespace(run_config=grid.run_config)
    server_app(spec, on_end=records.append, **more)(grid, context)
    return records[0]


def spec_of(method, **network):
    return {
        "data": {"name": "digits", "classes": 10},
        "method": method,
        "local": {"epochs": 1},
        "run": {"rounds": 2, "seed": 1, "threads": 1},
        "network": {"clients": CLIENTS, "wait": 5.0, **network},
    }


def simulated(method):
    plain = spec_of(method)
    del plain["network"]
    plain["data"] = {"name": "digits", "clients": CLIENTS, "partition": "inverted", "clusters": 2}
    return coterie.run(plain)


# ----------------------------------------------------------------------------------------------------------- whole runs


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("method", ["fedavg", "local", "flexcfl"])
def test_a_run_on_a_grid_gives_the_result_of_the_simulator(method):
    record, expected = run(spec_of(method), Grid(nodes())), simulated(method)
    assert record.summary["accuracy"] == expected.summary["accuracy"]
    assert record.served["row"] == expected.served["row"]
    assert codec.encode(record.served["bank"]) == codec.encode(expected.served["bank"])
    assert record.summary["traffic"] == expected.summary["traffic"]
    assert not record.summary["rejected_replies"]


def test_the_run_config_sets_method_rounds_and_the_folder_of_the_record(tmp_path):
    grid = Grid(nodes(), {"method": "ifca", "clusters": 2, "rounds": 1, "out": str(tmp_path / "record"), "spec": ""})
    said = []
    record = run(spec_of("fedavg"), grid, on_status=said.append)
    assert record.summary["method"] == "ifca"
    assert record.summary["rounds"] == 1
    assert coterie.RunRecord.read(tmp_path / "record").summary["status"] == "done"
    assert said[0] == "waiting for 4 clients"


def test_with_a_folder_a_client_keeps_what_it_remembers_and_its_model(tmp_path):
    folder = tmp_path / "client"
    grid = Grid(nodes(coterie_folder=str(folder)))
    for number, node in grid.nodes.items():
        node.config["coterie-folder"] = str(folder / str(number))
    run(spec_of("local"), grid)
    for number, node in grid.nodes.items():
        assert len(list((folder / str(number)).glob("runs/*/model.safetensors"))) == 1
        assert len(list((folder / str(number)).glob("runs/*/memory/*"))) > 0
        assert not pickle.loads(node.state)


def test_an_interrupted_run_is_continued(tmp_path):
    grid, out = Grid(nodes()), tmp_path / "record"
    for number, node in grid.nodes.items():
        node.config["coterie-folder"] = str(tmp_path / str(number))

    def stop(row):
        raise KeyboardInterrupt

    grid.run_config = {"out": str(out)}
    with pytest.raises(KeyboardInterrupt):
        run(spec_of("local"), grid, on_round=stop)
    grid.run_config = {"resume": str(out)}
    record = run(None, grid)
    assert record.summary["accuracy"] == simulated("local").summary["accuracy"]


def test_a_client_whose_data_cannot_be_loaded_does_not_join_and_tells_only_the_type(caplog):
    def load(context):
        raise ValueError(f"an example of {context.node_config['partition-id']}")

    with pytest.raises(TimedOut) as caught:
        run(spec_of("fedavg", wait=0.1), Grid(nodes(load)))
    assert "error 2: ValueError" in str(caught.value)
    assert "an example of" not in str(caught.value)
    assert "an example of 0" in caplog.text  # on the client


@pytest.mark.parametrize(
    ("loaded", "problem"),
    [
        (lambda: digits(), "load_data must return the data of one client, got those of 4; use data.only(client)"),
        (lambda: np.zeros((2, 3)), "load_data must return (x, y), (x, y, x_test, y_test) or a FederatedData"),
        (lambda: (np.zeros((2, 3)),), "got tuple"),
    ],
)
def test_a_wrong_result_of_load_data_is_explained_on_the_client(caplog, loaded, problem):
    with pytest.raises(TimedOut, match="error 2: DataError"):
        run(spec_of("fedavg", wait=0.1), Grid(nodes(lambda context: loaded())))
    assert problem in caplog.text


@pytest.mark.parametrize("parts", [2, 4])
def test_arrays_are_data_of_one_client(parts):
    def load(context):
        data = load_part(context)
        (client,) = data.clients
        return (*data.examples(client, "fit"), *data.examples(client, "test"))[:parts]

    record = run(spec_of("fedavg"), Grid(nodes(load)))
    assert record.summary["clients"] == CLIENTS
    if parts == 4:  # the test examples are those of the data set
        assert record.summary["accuracy"] == simulated("fedavg").summary["accuracy"]


def test_a_client_whose_data_do_not_fit_is_refused_with_the_reason():
    def load(context):
        x, y = np.zeros((20, 3), np.float32), np.arange(20) % 10
        return (x, y) if context.node_config["partition-id"] == 0 else load_part(context)

    with pytest.raises(TimedOut, match=r"0: inputs have shape \(3,\), those of other clients \(8, 8\)"):
        run(spec_of("fedavg", wait=0.5), Grid(nodes(load)))


def test_the_apps_are_those_of_flower():
    assert isinstance(server_app({}), ServerApp)
    assert isinstance(client_app(load_part), ClientApp)


def example(name):
    """A module of examples/flower-app."""
    spec = importlib.util.spec_from_file_location(f"flower_app_{name}", EXAMPLE / "coterie_app" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.exhaustive
def test_the_example_runs_with_the_config_of_its_project_file(capsys):
    config = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    server, client = example("server"), example("client")
    app, count = client.app, config["clients"]
    grid = Grid([Node(10 + place, app, partition_id=place, num_partitions=count) for place in range(count)], config)
    config["rounds"] = 1
    server.app(grid, SimpleNamespace(run_config=config))
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "waiting for 8 clients"
    assert [line for line in shown if line.startswith("round 0: accuracy 0.")]
    assert shown[-1] == "8 of 8 clients have received their models"


# ----------------------------------------------------------------------------------------------------------- run config


def test_short_keys_and_sections_of_a_run_config_replace_settings():
    config = {"method": "ifca", "clusters": 3, "rounds": 7, "seed": 5, "clients": 9, "local.epochs": 4, "path": "x"}
    spec = configured({"method": "fedavg", "run": {"clients_per_round": 6}}, config)
    assert spec.method.name == "ifca"
    assert spec.method.options == {"clusters": 3}
    assert (spec.run.rounds, spec.run.seed, spec.run.clients_per_round) == (7, 5, 6)
    assert spec.network.clients == 9
    assert spec.local.epochs == 4


def test_an_empty_text_leaves_the_setting_as_it_is():
    spec = {"data": {"name": "ours"}, "method": {"name": "ifca", "clusters": 3}}
    assert configured(spec, {"method": "", "clusters": "", "spec": "", "local.epochs": ""}) == Spec.of(spec)


def test_a_file_in_the_run_config_replaces_the_spec(tmp_path):
    (tmp_path / "spec.toml").write_text('[method]\nname = "local"\n')
    spec = configured({"method": "ifca"}, {"spec": str(tmp_path / "spec.toml"), "rounds": 3})
    assert (spec.method.name, spec.run.rounds) == ("local", 3)


def test_data_without_a_name_are_called_federation():
    assert configured(None, {}).data.name == "federation"
    assert configured({"data": "ours"}, {}).data.name == "ours"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"method": "ifac"}, "No method 'ifac'. Did you mean 'ifca'"),
        ({"rounds": 0}, "run.rounds must be at least 1, got 0"),
        ({"run.round": 3}, "No setting 'round'"),
        ({"spec": "missing.toml"}, "There is no file missing.toml"),
    ],
)
def test_a_wrong_setting_in_a_run_config_is_an_error(config, text):
    with pytest.raises(SpecError, match=text):
        configured(None, config)


# ---------------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({}, ""),
        ({"partition-id": 3}, "3"),
        ({"partition-id": 3, "num-partitions": 10}, "3"),
        ({"partition-id": 3, "num-partitions": 11}, "03"),  # the clients are 00 to 10
        ({"partition-id": 3, "num-partitions": 11, "client-id": "clinic-3"}, "clinic-3"),
    ],
)
def test_a_node_is_named_by_its_configuration(config, name):
    assert stated_name(config) == name


def introduced(text):
    """An app that states a name."""
    return lambda message, context: FlowerMessage(content(pieces("reply", text.encode())), reply_to=message)


def test_a_registered_name_comes_first_then_a_stated_one_then_the_number():
    grid = Grid([Node(1, introduced("x"), name="clinic-1"), Node(2, introduced("clinic-2")), Node(3, introduced(""))])
    named = NamedNodes(grid)
    assert named.of(["clinic-1", "clinic-2", "3", "x"]) == {"clinic-1": 1, "clinic-2": 2, "3": 3}
    assert sorted(named.connected()) == ["3", "clinic-1", "clinic-2"]
    assert named.keys() == {"clinic-1": "clinic-1", "clinic-2": "clinic-2", "3": "3"}
    assert grid.asked == [(2, "query"), (3, "query")]  # once, and not the registered one


@pytest.mark.parametrize("name", ["../x", "a b", "x" * 65, "\x00", "-x"])
def test_a_stated_name_that_is_none_is_replaced_by_the_number(name):
    assert NamedNodes(Grid([Node(7, introduced(name))])).connected() == ["7"]


def test_a_name_belongs_to_the_first_connected_node_that_states_it():
    first, second = Node(1, introduced("clinic")), Node(2, introduced("clinic"))
    named = NamedNodes(Grid([first, second]))
    assert named.of(["clinic", "2"]) == {"clinic": 1, "2": 2}
    first.online = False
    assert named.of(["clinic", "2"]) == {"2": 2}  # it keeps the name that it was given


def test_no_node_can_state_a_name_that_is_registered_even_if_that_node_is_gone():
    registered, other = Node(1, introduced(""), name="clinic"), Node(2, introduced("clinic"))
    other.online = False
    named = NamedNodes(Grid([registered, other]))
    assert named.connected() == ["clinic"]
    registered.online, other.online = False, True
    assert named.connected() == ["2"]


def test_a_node_that_was_started_again_under_another_number_has_its_name_again():
    before, after = Node(1, introduced("clinic")), Node(2, introduced("clinic"))
    after.online = False
    named = NamedNodes(Grid([before, after]))
    assert named.of(["clinic"]) == {"clinic": 1}
    before.online = False
    assert named.connected() == []
    assert named.keys() == {"clinic": "clinic"}  # known, but away
    after.online = True
    assert named.of(["clinic"]) == {"clinic": 2}


def test_a_node_that_does_not_answer_is_asked_again_after_a_pause():
    now = [0.0]
    silent = Node(1)
    grid = Grid([silent])
    named = NamedNodes(grid, deadline=0.01, clock=lambda: now[0])
    assert named.connected() == named.connected() == []
    assert len(grid.asked) == 1
    now[0], silent.app = PAUSE, introduced("back")
    assert named.connected() == ["back"]


# ---------------------------------------------------------------------------------------------------------------- state


def context_of(**config):
    return Context(1, 2, config, RecordDict(), {})


def test_files_of_a_client_are_in_the_state_of_its_node_between_messages():
    context = context_of()
    with client_folder(context) as folder:
        (folder / "runs" / "a").mkdir(parents=True)
        (folder / "runs" / "a" / "memory").write_bytes(b"one")
        (folder / "other").write_bytes(b"")
    moved = context_of()
    moved.state = pickle.loads(pickle.dumps(context.state))
    with client_folder(moved) as other:
        assert other != folder
        assert not folder.exists()
        assert (other / "runs" / "a" / "memory").read_bytes() == b"one"
        (other / "runs" / "a" / "memory").write_bytes(b"two")
        (other / "other").unlink()
    assert dict(moved.state["coterie"]) == {"runs/a/memory": b"two"}


def test_a_message_that_fails_leaves_the_state_as_it_was():
    context = context_of()
    with client_folder(context) as folder:
        (folder / "memory").write_bytes(b"one")

    def fail():
        with client_folder(context) as folder:
            (folder / "memory").write_bytes(b"half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert dict(context.state["coterie"]) == {"memory": b"one"}


def test_a_repeated_message_gets_the_stored_reply_from_another_process(monkeypatch):
    worked, run_all = [], Site._run_all

    def counted(site, store, common, own, received):
        worked.append(own["nonce"])  # each message has its own
        return run_all(site, store, common, own, received)

    monkeypatch.setattr(Site, "_run_all", counted)
    grid, answer = Grid(nodes()), Node.answer
    for node in grid.nodes.values():

        def twice(message, config, node=node):
            """Answer twice, as if the first reply had been lost."""
            first, again = answer(node, message, config), answer(node, message, config)
            assert value(first.content, "reply") == value(again.content, "reply")
            return again

        node.answer = twice
    record = run(spec_of("local"), grid)
    assert record.summary["accuracy"] == simulated("local").summary["accuracy"]
    # Two rounds with all clients, each of which travels with an evaluation or alone; the last evaluation alone.
    assert len(worked) == len(set(worked)) == 3 * CLIENTS
