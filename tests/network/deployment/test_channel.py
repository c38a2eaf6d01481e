"""`FlowerChannel` over a grid that does what it is told."""

import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'coterie[network]'")

from flwr.app import ConfigRecord, Error, RecordDict
from flwr.app import Message as FlowerMessage

from coterie.errors import FederationError
from coterie.federation.network.channel import Delivery, Message
from coterie.federation.network.flower import FlowerChannel, Nodes
from coterie.federation.network.flower.content import content, pieces, value
from coterie.federation.network.flower.internals import internals
from coterie.federation.network.wire import WireError

pytestmark = pytest.mark.network

#: Client → node.
NODES = {"a": 11, "b": 12, "c": 13}


class Grid:
    """Answers each message as its node is told to: node → function of the message, which gives a reply or None."""

    def __init__(self, **answers):
        self.answers = {NODES[client]: answer for client, answer in answers.items()}
        self.pushed = []
        self.asked = []
        self.info = []

    def get_nodes(self):
        return self.info

    def push_messages(self, messages):
        keys = []
        for message in messages:
            there = message.metadata.dst_node_id in self.answers
            keys.append(f"message-{len(self.pushed)}" if there else "")
            message.metadata.__dict__["_message_id"] = keys[-1]
            self.pushed.append(message)
        return keys

    def pull_messages(self, message_ids):
        found = []
        for key in message_ids:
            self.asked.append(key)
            message = next(each for each in self.pushed if each.metadata.message_id == key)
            reply = self.answers[message.metadata.dst_node_id](message)
            if reply is not None:
                found.append(reply)
        return found


@pytest.fixture(autouse=True)
def identity():
    """The run that messages belong to; `server_grid` sets it."""
    names = internals().TaskIdentity
    before = (names._task_id, names._run_id, names._node_id)
    names.task_id, names.run_id, names.node_id = 1, 2, 1
    yield
    names._task_id, names._run_id, names._node_id = before


def says(data):
    return lambda message: FlowerMessage(content(pieces("reply", data)), reply_to=message)


def silent(message):
    return None


def channel(grid, nodes=NODES):
    return FlowerChannel(grid, lambda clients: {each: nodes[each] for each in clients if each in nodes}, pause=0.01)


def exchange(grid, clients, deadline=10.0):
    return sorted(channel(grid).exchange({each: Message(b"common", each.encode()) for each in clients}, deadline))


def test_each_client_gets_its_own_part_and_its_reply_is_delivered():
    grid = Grid(a=says(b"1"), b=says(b"2"))
    assert exchange(grid, "ab") == [Delivery("a", b"1"), Delivery("b", b"2")]
    assert [value(each.content, "own") for each in grid.pushed] == [b"a", b"b"]
    assert [value(each.content, "common") for each in grid.pushed] == [b"common"] * 2


def test_the_common_part_is_one_object_for_all_clients_that_share_it():
    grid = Grid(a=says(b""), b=says(b""), c=says(b""))
    shared = b"shared"
    messages = {"a": Message(shared, b""), "b": Message(shared, b""), "c": Message(b"other", b"")}
    list(channel(grid).exchange(messages, 10))
    first, second, third = (each.content["common.0"] for each in grid.pushed)
    assert first is second
    assert first is not third


def test_a_value_larger_than_a_piece_arrives_whole(monkeypatch):
    monkeypatch.setattr("coterie.federation.network.flower.content.PIECE", 4)
    records = content(pieces("own", b"123456789"))
    assert sorted(records) == ["own.0", "own.1", "own.2"]  # 4 + 4 + 1 bytes
    assert value(records, "own") == b"123456789"
    assert value(content(pieces("own", b"")), "own") == b""


@pytest.mark.parametrize(
    "records",
    [RecordDict(), RecordDict({"own.0": ConfigRecord({"b": "text"})}), RecordDict({"own.0": ConfigRecord({"c": b""})})],
)
def test_a_malformed_part_is_named(records):
    with pytest.raises(WireError, match="'own'"):
        value(records, "own")


def test_a_client_that_is_not_connected_is_delivered_at_once_before_any_reply():
    grid = Grid(a=silent)
    nodes = {"a": 11, "b": 12}  # b has a node, but Flower does not know it any more; c has none
    deliveries = channel(grid, nodes).exchange({each: Message(b"", b"") for each in "abc"}, 10)
    assert [next(deliveries), next(deliveries)] == [
        Delivery("b", None, "not connected"),
        Delivery("c", None, "not connected"),
    ]
    deliveries.close()


def test_a_client_that_does_not_reply_in_time_is_left_out():
    assert exchange(Grid(a=says(b"1"), b=silent), "ab", deadline=0.3) == [Delivery("a", b"1")]


def test_a_late_reply_is_dropped_by_the_next_exchange():
    late = threading.Event()

    def first_is_late(message):
        if value(message.content, "own") == b"second":
            return says(b"new")(message)
        return says(b"late")(message) if late.is_set() else None

    grid = Grid(a=first_is_late)
    reached = channel(grid)
    assert list(reached.exchange({"a": Message(b"", b"first")}, 0.1)) == []
    late.set()
    grid.asked.clear()
    got = list(reached.exchange({"a": Message(b"", b"second")}, 10))
    assert got == [Delivery("a", b"new")]
    assert "message-0" in grid.asked  # pulled, so that Flower deletes it


def test_an_exchange_that_is_closed_early_leaves_the_rest_to_later_ones():
    grid = Grid(a=says(b"1"), b=silent)
    reached = channel(grid)
    deliveries = reached.exchange({each: Message(b"", b"") for each in "ab"}, 10)
    assert next(deliveries) == Delivery("a", b"1")
    deliveries.close()
    assert list(reached._late) == ["message-1"]
    assert list(reached.exchange({"a": Message(b"", b"")}, 10)) == [Delivery("a", b"1")]


def test_an_error_reply_is_delivered_with_its_reason_in_printable_characters_whichever_node_sent_it():
    def fails(message):
        reply = FlowerMessage(Error(2, "Value\x1b[31mError" + "x" * 500), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = 1  # Flower itself
        return reply

    ((client, reply, problem),) = exchange(Grid(a=fails), "a")
    assert (client, reply) == ("a", None)
    assert problem.startswith("error 2: Value [31mError")
    assert len(problem) < 250


def test_a_reply_from_another_node_is_refused():
    def foreign(message):
        reply = says(b"1")(message)
        reply.metadata.__dict__["_src_node_id"] = 12
        return reply

    assert exchange(Grid(a=foreign), "a") == [Delivery("a", None, "comes from another node")]


def test_a_reply_to_another_message_is_refused():
    def wrong(message):
        reply = says(b"1")(message)
        reply.metadata.__dict__["_reply_to_message_id"] = "message-7"
        return reply

    assert exchange(Grid(a=wrong), "a") == [Delivery("a", None, "answers another message")]


def test_a_reply_without_the_right_part_is_refused():
    def empty(message):
        return FlowerMessage(RecordDict(), reply_to=message)

    ((client, reply, problem),) = exchange(Grid(a=empty), "a")
    assert (client, reply) == ("a", None)
    assert "no part 'reply'" in problem


def test_a_client_that_stops_in_the_middle_of_its_reply_delays_no_other():
    # Flower's `pull_messages` then waits for the rest of the reply.
    end = threading.Event()
    grid = Grid(a=lambda message: end.wait(20) and None, b=says(b"2"))
    try:
        assert exchange(grid, "ab", deadline=0.5) == [Delivery("b", b"2")]
    finally:
        end.set()


def test_a_superlink_that_does_not_answer_ends_the_exchange():
    def gone(message):
        raise ConnectionError("gone")

    with pytest.raises(FederationError, match="The SuperLink does not answer: ConnectionError"):
        exchange(Grid(a=gone), "a")


def test_nothing_is_sent_if_no_client_is_connected():
    grid = Grid()
    assert exchange(grid, "z") == [Delivery("z", None, "not connected")]
    assert grid.pushed == []


def test_nodes_are_found_by_the_key_that_a_client_has_now(new_key):
    keys = {"a": new_key(), "b": new_key()}
    grid = Grid()
    # Heartbeat every 30 s, online for two of them: the last one was at 1000 - 60.
    grid.info = [
        SimpleNamespace(
            node_id=11, public_key=keys["a"].pem, status="online", online_until=1000.0, heartbeat_interval=30.0
        ),
        SimpleNamespace(
            node_id=12, public_key=keys["b"].pem, status="online", online_until=1000.0, heartbeat_interval=30.0
        ),
        SimpleNamespace(node_id=13, public_key=b"", status="online", online_until=1000.0, heartbeat_interval=30.0),
    ]
    admitted = {"a": keys["a"].fingerprint}
    nodes = Nodes(grid, admitted)
    assert nodes.of("ab") == {"a": 11}
    admitted["b"] = keys["b"].fingerprint
    assert nodes.of("ab") == {"a": 11, "b": 12}
    del admitted["a"]
    assert nodes.of("ab") == {"b": 12}
    assert {each.last_seen for each in nodes.connected().values()} == {940.0}
    assert Nodes(grid, lambda client: keys[client].fingerprint).of("ab") == {"a": 11, "b": 12}
