"""`examples/flower-app` under `flwr run`: on SuperLink and SuperNodes, and in Flower's simulation engine."""

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'coterie[network]'")

import coterie
from coterie import codec
from coterie.federation.network.loopback import HOST, answers, free_port, new_certificate
from coterie.federation.network.process import Process

pytestmark = [pytest.mark.network, pytest.mark.exhaustive]

APP = Path(__file__).parents[3] / "examples" / "flower-app"
CLIENTS, ROUNDS, SEED = 4, 2, 1

#: Seconds after which a run has failed.
LIMIT = 600


class Flower:
    """Flower's programs on the loopback interface, each with its own home."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._bin = Path(sys.executable).parent
        self.port = free_port()
        self.security, self.connection = ("--insecure",), "insecure = true"

    def secure(self) -> None:
        """Use TLS, and let only registered SuperNodes connect."""
        self.certificate, key = self._folder / "certificate.pem", self._folder / "key.pem"
        new_certificate(self.certificate, key)
        self.security = (
            *("--ssl-ca-certfile", str(self.certificate), "--ssl-certfile", str(self.certificate)),
            *("--ssl-keyfile", str(key), "--enable-supernode-auth"),
        )
        self.connection = f'root-certificates = "{self.certificate}"'

    def _environment(self, name: str) -> dict[str, str]:
        home = self._folder / f"home-{name}"
        home.mkdir(exist_ok=True)
        return {
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}",
        }

    def start(self, program: str, name: str, port: int, *arguments: str, tls: bool = False) -> None:
        """Start a program that listens on a port, until the end of the test."""
        command = [sys.executable, str(self._bin / program), *arguments]
        process = Process(
            name,
            [*command, "--host", HOST, "--port", str(port)],
            self._folder / f"{name}.log",
            lambda: answers(port, tls=tls),
            environment=self._environment(name),
        )
        self._stack.callback(process.stop)
        process.start()

    def superlink(self, *arguments: str) -> None:
        given = ("--disable-runtime-dependency-installation", *self.security, *arguments)
        self.start("flower-superlink", "superlink", self.port, *given, tls="--insecure" not in self.security)

    def supernodes(self, count: int, *security: Sequence[str]) -> None:
        def start(place: int) -> None:
            config = f"partition-id={place} num-partitions={count}"
            link = ("--superlink", f"{HOST}:{self.port}", "--node-config", config)
            own = security[place] if security else self.security
            self.start("flower-supernode", f"node-{place}", free_port(), *link, *own)

        threads = [threading.Thread(target=start, args=(place,)) for place in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def flwr(self, *arguments: str) -> str:
        """Run a `flwr` command to its end; returns what it prints."""
        environment = self._environment("cli")
        (Path(environment["FLWR_HOME"]) / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{HOST}:{self.port}"\n{self.connection}\n'
        )
        done = subprocess.run(
            [str(self._bin / "flwr"), *arguments],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def run(self, config: str, *arguments: str) -> str:
        """`flwr run`, until the run has ended; returns its log."""
        return self.flwr("run", str(APP), "here", "--stream", "--run-config", config, *arguments)


@pytest.fixture
def flower(tmp_path):
    with ExitStack() as stack:
        yield Flower(tmp_path, stack)


def check_result(method: str, out: Path, log: str) -> None:
    """The record of a run has the accuracy and the models of the simulator."""
    assert (out / "summary.json").is_file(), log
    record = coterie.RunRecord.read(out)
    expected = coterie.run(
        {
            "data": {"name": "digits", "clients": CLIENTS, "partition": "inverted", "clusters": 2},
            "method": {"name": method, **({"clusters": 2} if method == "flexcfl" else {})},
            "local": {"epochs": 2},
            "run": {"rounds": ROUNDS, "seed": SEED},
        }
    )
    assert record.summary["status"] == "done"
    assert record.summary["clients"] == CLIENTS
    assert not record.summary["rejected_replies"]
    assert record.summary["accuracy"] == expected.summary["accuracy"]
    assert record.served["row"] == expected.served["row"]
    assert codec.encode(record.served["bank"]) == codec.encode(expected.served["bank"])


def config_of(method: str, out: Path) -> str:
    return f'method="{method}" rounds={ROUNDS} clients={CLIENTS} seed={SEED} out="{out}"' + (
        " clusters=2" if method == "flexcfl" else ""
    )


@pytest.mark.parametrize("method", ["fedavg", "flexcfl"])
def test_on_superlink_and_supernodes_the_app_gives_the_result_of_the_simulator(flower, tmp_path, method):
    flower.superlink()
    flower.supernodes(CLIENTS)
    log = flower.run(config_of(method, tmp_path / "record"))
    check_result(method, tmp_path / "record", log)


def test_clients_have_the_names_under_which_their_nodes_are_registered(flower, tmp_path, new_key):
    flower.secure()
    flower.superlink()
    names, security = [f"clinic-{place}" for place in range(2)], []
    for name in names:
        key = new_key()
        (tmp_path / f"{name}.pub").write_text(key.openssh)
        flower.flwr("supernode", "register", str(tmp_path / f"{name}.pub"), "here", "--name", name)
        private = str(key.save(tmp_path / name))
        security.append(("--root-certificates", str(flower.certificate), "--auth-supernode-private-key", private))
    flower.supernodes(2, *security)
    out = tmp_path / "record"
    log = flower.run(f'method="fedavg" rounds=1 clients=2 out="{out}"')
    assert (out / "summary.json").is_file(), log
    assert sorted(coterie.RunRecord.read(out).served["row"]) == names


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'flwr[simulation]'")
@pytest.mark.parametrize("method", ["fedavg", "flexcfl"])
def test_in_flowers_simulation_engine_the_app_gives_the_result_of_the_simulator(flower, tmp_path, method):
    flower.superlink("--simulation")
    log = flower.run(
        config_of(method, tmp_path / "record"),
        "--federation-config",
        f"num-supernodes={CLIENTS} client-resources-num-cpus=1",
    )
    check_result(method, tmp_path / "record", log)
