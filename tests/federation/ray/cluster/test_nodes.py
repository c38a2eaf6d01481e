"""Three simulated machines: one is killed in a round, one joins; a killed driver is resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from coterie import codec, tree
from coterie import data as datasets
from coterie.clients import LocalSGD, fit
from coterie.errors import FederationError
from coterie.federation import Mean, Server, Vectorized
from coterie.federation.ray.actor_pool import RayPool
from coterie.federation.ray.cluster import nodes
from coterie.federation.ray.settings import RaySettings
from coterie.federation.ray.transport import RayTransport
from coterie.models.library import build
from coterie.runs.loop import resume, run
from coterie.runs.record import RunRecord
from coterie.seeds import Seed

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    # Simulated machines are processes that this one forks; the fork runs no JAX code.
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*_at_fork.*:pytest.PytestUnraisableExceptionWarning"),
]

LOCAL = LocalSGD(epochs=2, batch_size=10, learning_rate=0.1)


@pytest.fixture
def machines():
    """A cluster with a head and two more machines, with one core each."""
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        others = [made.add_node(num_cpus=1) for _ in range(2)]
        made.wait_for_nodes(timeout=60)
        ray.init(address=made.address, log_to_driver=False)
        yield made, others
    finally:
        ray.shutdown()
        made.shutdown()


def until(holds):
    """Wait until a condition holds, up to a minute."""
    limit = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < limit, "the condition does not hold after a minute"
        time.sleep(0.5)


def test_a_machine_that_is_killed_in_a_round_changes_no_byte_and_one_that_joins_is_used(machines):
    cluster, others = machines
    data = datasets.load("blobs", clients=300, clusters=2, samples=20, side=4, classes=3, seed=0)
    task = build("mclr", data.shape, data.classes)
    pool = RayPool(RaySettings("auto"))
    transport = RayTransport(data, task, pool)
    plain, fed = Server(Vectorized(data, task)), Server(transport)
    killed = threading.Event()
    original = pool.submit

    def submit(worker, method, *args):
        future = original(worker, method, *args)
        if not killed.is_set() and len(seen) == 2:
            killed.set()
            cluster.remove_node(others[0], allow_graceful=False)
        seen.append(worker)
        return future

    seen = []
    pool.submit, free = submit, transport._shared.scheduler.free_workers
    for number in range(3):
        if number == 1:
            # The share of the killed machine may have been computed elsewhere before Ray noticed the loss. On a busy
            # machine a worker is free only after a while.
            until(lambda: len(free()) == 2)
            cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes(timeout=60)
        if number == 2:
            until(lambda: len(free()) == 3 and transport.work_done.lost)
        got = [
            each.ask(data.clients, fit, Seed(number), start=task.init(Seed(1)), local=LOCAL, reduce=Mean(spread=True))
            for each in (plain, fed)
        ]
        assert tree.same(got[0].mean, got[1].mean)
        assert tree.same(got[0].spread, got[1].spread)
    assert killed.is_set()
    assert transport.work_done.workers == 3
    assert transport.work_done.lost == 1
    pool.close()


def test_the_status_of_a_cluster_names_its_machines(machines):
    found = nodes(RaySettings("auto"))
    assert [node["cores"] for node in found] == [1, 1, 1]
    assert all(node["problem"] is None and node["versions"]["JAX"] for node in found)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:none"])
def test_an_address_without_a_cluster_is_an_error_at_once(address):
    with pytest.raises(FederationError, match=f"There is no Ray cluster at '{address}'.*Start one with ray start"):
        nodes(RaySettings(address))


SPEC = {
    "data": "digits",
    "method": {"name": "flexcfl"},
    "run": {"rounds": 8, "backend": "ray", "checkpoint_every": 1, "evaluate_every": 4},
    "ray": {"workers": 2},
}


def test_a_run_whose_driver_was_killed_is_resumed_with_the_same_bytes(tmp_path):
    import ray

    folder = tmp_path / "killed"
    code = f"from coterie.runs.loop import run; run({SPEC!r}, out={str(folder)!r})"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        limit = time.monotonic() + 120
        while time.monotonic() < limit and not _lines(folder) >= 3:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)  # with the processes of Ray that it has started
    finally:
        process.kill()
        process.wait()
    assert 3 <= _lines(folder) < 8
    try:
        resumed = resume(folder)
    finally:
        ray.shutdown()
    whole = run({**SPEC, "run": {**SPEC["run"], "backend": "vectorized"}})
    assert codec.encode(resumed.served["bank"]) == codec.encode(whole.served["bank"])
    assert resumed.summary["accuracy"] == whole.summary["accuracy"]
    assert resumed.summary["traffic"] == whole.summary["traffic"]
    assert len(RunRecord.read(folder).rounds) == len(whole.rounds)


def _lines(folder):
    file = folder / "rounds.jsonl"
    return sum(1 for line in file.read_text().splitlines() if '"train"' in line) if file.exists() else 0


def test_a_local_ray_listens_on_the_loopback_address_only():
    code = (
        "from coterie.federation.ray.cluster import connect; from coterie.federation.ray.settings import RaySettings; "
        "print(*(node['NodeManagerAddress'] for node in connect(RaySettings()).nodes()))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["127.0.0.1"], done.stderr
