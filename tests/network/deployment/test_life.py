"""The life of a federation on the command line: processes are killed, clients come, go and change their data."""

import json
import os
import signal

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'coterie[network]'")

import coterie
from coterie import tree
from coterie.runs.record import RunRecord

pytestmark = [pytest.mark.network, pytest.mark.exhaustive]

#: Seconds for what takes a few on a machine with nothing else to do.
LONG = 300.0


def settings(method, rounds, clients, record):
    """Flags of `coterie serve`: deadlines are short, so that a killed client is noticed soon."""
    more = {"run.backend": "sequential", "network.deadline": 30, "network.wait": 600}
    flags = ("--method", method, "--rounds", rounds, "--epochs", 1, "--seed", 1, "--clients", clients, "--out", record)
    flags += ("--clients-per-round", clients)
    return (*flags, *(text for name, value in more.items() for text in ("--set", f"{name}={value}")))


def simulated(made, method, rounds):
    """The record of the same run in the simulator."""
    run = {"rounds": rounds, "seed": 1, "backend": "sequential", "clients_per_round": len(made.clients)}
    return coterie.run({"data": {"name": str(made.data)}, "method": method, "local": {"epochs": 1}, "run": run})


def lines(record):
    """The lines of a record so far."""
    file = record / "rounds.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def assert_same_results(record, expected):
    """Two records have the same accuracies, assignments and models."""
    assert record.summary["accuracy"] == expected.summary["accuracy"]
    assert record.served["row"] == expected.served["row"]
    for key in ("assignment", "accuracy", "cohort"):
        assert [row.get(key) for row in record.rounds] == [row.get(key) for row in expected.rounds]
    models = dict(tree.paths(record.served["bank"]))
    for name, model in tree.paths(expected.served["bank"]):
        np.testing.assert_array_equal(models[name], model)


def test_flexcfl_between_processes_gives_the_results_of_the_simulator(commands):
    made = commands(4)
    record = made.folder / "record"
    server = made.serve(*settings("flexcfl", 2, 4, record))
    joined = [made.join(client, "--once") for client in made.clients]
    assert server.wait() == 0, server.stderr
    assert [each.wait() for each in joined] == [0] * 4
    assert_same_results(RunRecord.read(record), simulated(made, "flexcfl", 2))


def test_a_server_killed_in_mid_run_is_resumed_by_the_same_clients_with_the_same_results(commands, wait_until):
    made = commands(3)
    record = made.folder / "record"
    server = made.serve(*settings("ifca", 5, 3, record))
    joined = [made.join(client, "--once") for client in made.clients]
    wait_until(lambda: len(lines(record)) >= 2, LONG)
    server.kill()
    assert len(lines(record)) < 5
    again = made.serve("--resume", record)
    assert again.wait() == 0, again.stderr
    assert [each.wait() for each in joined] == [0] * 3
    assert "3 of 3 clients have received their models" in again.stderr
    assert_same_results(RunRecord.read(record), simulated(made, "ifca", 5))
    assert not made.processes()


def test_a_client_killed_in_mid_round_is_missed_and_returns_as_itself(commands, wait_until):
    made = commands(3)
    record, victim = made.folder / "record", made.clients[0]
    server = made.serve(*settings("flexcfl", 12, 3, record))
    joined = {client: made.join(client, "--once") for client in made.clients}
    joined[victim].says("fit")
    joined[victim].kill()
    server.says(f"{victim} is away")
    returned = made.join(victim, "--once")
    server.wait()
    assert f"{victim} is present" in server.stderr.partition(f"{victim} is away")[2], server.stderr
    assert returned.wait() == 0
    assert len(list(made.home(victim).glob("runs/*/model.safetensors"))) == 1
    done = RunRecord.read(record)
    assert done.summary["rounds"] == 12
    assert victim in done.served["row"]
    assert not any("newcomers" in row for row in done.rounds)


def test_a_gate_that_is_killed_is_restarted_and_the_run_goes_on(commands, wait_until):
    made = commands(2)
    record = made.folder / "record"
    server = made.serve(*settings("fedavg", 3, 2, record))
    joined = [made.join(client, "--once") for client in made.clients]
    server.says("running")
    (gate,) = (pid for pid in server.children() if "network.gate" in command_line(pid))
    os.kill(gate, signal.SIGKILL)
    assert server.wait() == 0, server.stderr
    assert [each.wait() for each in joined] == [0, 0]
    assert_same_results(RunRecord.read(record), simulated(made, "fedavg", 3))


def command_line(pid):
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read().replace("\0", " ")


def test_an_interrupted_server_and_client_say_what_to_do_next_and_leave_no_process(commands, wait_until):
    made = commands(2)
    record = made.folder / "record"
    waiting = made.serve("--clients", 2, "--out", made.folder / "other")
    waiting.says("waiting for 2 clients")
    waiting.send(signal.SIGINT)
    assert waiting.wait() == 130
    assert "The run had not started; nothing was saved." in waiting.stderr
    server = made.serve(*settings("fedavg", 50, 1, record))
    client = made.join(made.clients[0])
    wait_until(lambda: len(lines(record)) >= 1, LONG)
    client.send(signal.SIGINT)
    assert client.wait() == 130
    assert "to return, start the same command again" in client.stderr
    server.send(signal.SIGINT)
    assert server.wait() == 130
    assert f"A checkpoint was saved. Continue with: coterie serve --resume {record}" in server.stderr
    assert not made.processes()


def test_clients_join_late_withdraw_and_are_revoked_while_a_run_goes_on(commands, wait_until):
    made = commands(4)
    record = made.folder / "record"
    first, leaving, revoked, late = made.clients
    server = made.serve(*settings("ifca", 60, 3, record))
    joined = {client: made.join(client) for client in (first, leaving, revoked)}
    server.says("running")
    joined[late] = made.join(late)
    server.says(f"{late} is present")
    made.run("leave", made.home(leaving))
    assert joined[leaving].wait() == 0
    assert "has withdrawn" in joined[leaving].stderr
    made.run("revoke", revoked, "--folder", made.federation)
    server.says(f"{revoked} is away")
    wait_until(lambda: any(late in (row.get("assignment") or {}) for row in lines(record)), LONG)
    states = {client: row["state"] for client, row in made.listed().items()}
    assert states[first] == states[late] == "present"
    assert states[leaving] == states[revoked] == "away"
    refused = made.join(leaving)
    assert refused.wait() == 2
    assert "This client has withdrawn" in refused.stderr


def test_new_rows_in_the_file_of_a_client_are_noticed_by_flexcfl(commands, wait_until):
    made = commands(3)
    record, changed = made.folder / "record", made.clients[0]
    server = made.serve(*settings("flexcfl", 40, 3, record))
    for client in made.clients:
        made.join(client)
    wait_until(lambda: any(row["stage"] == "train" for row in lines(record)), LONG)
    file = made.data / f"{changed}.npz"
    with np.load(file) as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays["y"] = np.full_like(arrays["y"], 3)  # all labels change
    np.savez(made.folder / "new.npz", **arrays)
    os.replace(made.folder / "new.npz", file)
    wait_until(lambda: any(changed in json.dumps(row.get("flagged", [])) for row in lines(record)), LONG)
    server.send(signal.SIGTERM)
    assert server.wait() == 143
