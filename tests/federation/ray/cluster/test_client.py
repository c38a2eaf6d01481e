"""Addresses ray://...: a Ray cluster in processes of its own, to which this process is only a client."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coterie import codec
from coterie.runs.loop import run
from coterie.runs.record import RunRecord

pytestmark = pytest.mark.exhaustive

#: Ray's own ports for clients; the cluster listens on the loopback address only.
PORT, ADDRESS = 10001, "ray://127.0.0.1:10001"

SPEC = {"data": "digits", "run": {"rounds": 2, "clients_per_round": 36}, "ray": {"address": ADDRESS, "workers": 2}}


@pytest.fixture(scope="module")
def environment():
    """The environment of processes that know the token of the cluster."""
    return {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@pytest.fixture(scope="module", autouse=True)
def _cluster(environment, tmp_path_factory):
    """A head with two cores, which is ended in any case."""
    ray = Path(sys.executable).with_name("ray")
    command = [ray, "start", "--head", "--node-ip-address=127.0.0.1", "--port=6399", f"--ray-client-server-port={PORT}"]
    command += ["--include-dashboard=false", "--num-cpus=2", "--disable-usage-stats", "--block"]
    log = tmp_path_factory.mktemp("ray") / "log"
    with log.open("w") as file:
        head = subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)
    try:
        limit = time.monotonic() + 90
        while "Ray runtime started" not in log.read_text() and time.monotonic() < limit and head.poll() is None:
            time.sleep(0.2)
        assert "Ray runtime started" in log.read_text(), log.read_text()
        yield
    finally:
        head.send_signal(signal.SIGTERM)  # with --block it ends the other processes
        try:
            head.wait(30)
        finally:
            os.killpg(head.pid, signal.SIGKILL) if head.poll() is None else None


def coterie(environment, *arguments):
    code = "from coterie.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("method", ["ifca", "local"])
def test_a_run_through_a_client_has_the_bytes_of_the_vectorized_backend(environment, tmp_path, method):
    # In a process of its own: a process can be connected to one cluster only. Local keeps models on its clients.
    spec = {**SPEC, "method": method, "run": {**SPEC["run"], "backend": "ray"}}
    code = f"from coterie.runs.loop import run; run({spec!r}, out={str(tmp_path / 'record')!r})"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    whole, far = run({**SPEC, "method": method}), RunRecord.read(tmp_path / "record")
    assert codec.encode(far.served["bank"]) == codec.encode(whole.served["bank"])
    assert far.summary["accuracy"] == whole.summary["accuracy"]
    assert far.summary["traffic"] == whole.summary["traffic"]
    assert [row["ray"]["workers"] for row in far.rounds if row["stage"] == "train"] == [2, 2]


def test_the_status_of_a_cluster_is_shown_to_a_client(environment):
    done = coterie(environment, "ray", "status", "--address", ADDRESS, "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["usable_cores"], shown["nodes"][0]["problem"]) == (2, None)


def test_whole_runs_are_spread_through_a_client(environment, tmp_path):
    arguments = ["--data", "digits", "--methods", "fedavg,ifca", "--seeds", "1", "--rounds", "2", "--jobs", "2"]
    arguments += ["--jobs-on", "ray", "--set", f"ray.address={ADDRESS}", "--out", str(tmp_path / "records")]
    done = coterie(environment, "compare", *arguments)
    assert done.returncode == 0, done.stderr
    here = run({"data": "digits", "method": "ifca", "run": {"rounds": 2}})
    (record,) = (tmp_path / "records").glob("**/ifca*/rounds.jsonl")
    assert RunRecord.read(record.parent).summary["accuracy"] == here.summary["accuracy"]


def test_a_client_without_the_token_is_told_about_it(environment):
    without = {name: value for name, value in environment.items() if not name.startswith("RAY_AUTH")}
    done = coterie(without, "ray", "status", "--address", "127.0.0.1:6399")
    assert done.returncode != 0
    assert "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN" in " ".join(done.stderr.split())
