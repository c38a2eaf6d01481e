"""Keys, certificates, and real deployments on the loopback interface: of echo clients, and of the command line."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import coterie
from coterie.federation.network.fingerprint import fingerprint
from coterie.federation.network.loopback import HOST, free_port

with suppress(ImportError):  # then the tests skip themselves
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True)
class Key:
    """The key pair of a client."""

    private: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP384R1()))

    @property
    def openssh(self) -> str:
        return self.private.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH).decode()

    @property
    def pem(self) -> bytes:
        kind = form.PublicFormat.SubjectPublicKeyInfo
        return self.private.public_key().public_bytes(form.Encoding.PEM, kind)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.openssh)

    def save(self, path: Path) -> Path:
        """Write the private key as `ssh-keygen` does."""
        path.write_bytes(self.private.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption()))
        return path

    def headers(self, age: float = 0.0) -> dict[str, str]:
        """What a SuperNode with this key puts into the headers of a request."""
        at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
        signature = self.private.sign(at.isoformat().encode(), ec.ECDSA(hashes.SHA256()))
        return {
            "flwr-public-key": base64.b64encode(self.pem).decode(),
            "flwr-timestamp": at.isoformat(),
            "flwr-signature": base64.b64encode(signature).decode(),
            "content-type": "application/protobuf",
        }


def authority(folder: Path) -> SimpleNamespace:
    """A certificate authority, and a certificate for the loopback address that it signed; paths of the files."""
    folder.mkdir(parents=True)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name, name = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)]) for text in ("Test CA", HOST))
    now = datetime.datetime.now(datetime.UTC)
    span = (now - datetime.timedelta(days=1), now + datetime.timedelta(days=1))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
    ca = x509.CertificateBuilder(ca_name, ca_name, ca_key.public_key(), 1, *span)
    ca = ca.add_extension(x509.BasicConstraints(True, 0), True).sign(ca_key, hashes.SHA256())
    made = x509.CertificateBuilder(ca_name, name, key.public_key(), 2, *span)
    made = made.add_extension(names, False).sign(ca_key, hashes.SHA256())
    paths = SimpleNamespace(ca=folder / "ca.pem", certificate=folder / "server.pem", key=folder / "server.key")
    paths.ca.write_bytes(ca.public_bytes(form.Encoding.PEM))
    paths.certificate.write_bytes(made.public_bytes(form.Encoding.PEM))
    paths.key.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()))
    return paths


@pytest.fixture
def key() -> Key:
    return Key()


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """SuperLink, gate, and the clients "a" and "b", which answer `echo`; with the channel of the server."""
    from coterie.federation.network.flower import Control, FlowerChannel, Nodes, answer_tasks, server_grid
    from coterie.federation.network.gate import GateConfig
    from coterie.federation.network.launch import Gate, SuperLink, SuperNode

    folder = tmp_path_factory.mktemp("deployment")
    tls, keys = authority(folder / "tls"), {client: Key() for client in "ab"}
    allowed = folder / "allowed"
    allowed.write_text("".join(f"{each.openssh} {client}\n" for client, each in keys.items()))
    answers: dict[str, Callable] = dict.fromkeys(keys, echo)
    with ExitStack() as stack:
        link = SuperLink(folder / "superlink")
        stack.callback(link.stop)
        link.start()
        config = GateConfig(
            free_port(),
            *map(str, (tls.certificate, tls.key, link.address, link.certificate, allowed)),
            host=HOST,
            max_body_bytes=6 << 20,
        )
        gate = Gate(folder / "gate", config)
        stack.callback(gate.stop)
        gate.start()
        with Control(link.address, link.root_certificates) as control:
            for client, each in keys.items():
                control.register(each.openssh, client)
        stop = threading.Event()
        nodes = {}
        for client, each in keys.items():
            private = each.save(folder / client)
            nodes[client] = SuperNode(
                folder / f"node-{client}", gate.address, private_key=private, root_certificates=tls.ca
            )
            stack.callback(nodes[client].stop)
        _together([node.start for node in nodes.values()])
        threads = [
            threading.Thread(
                target=answer_tasks,
                args=(node.address, lambda message, client=client: answers[client](message), stop),
                kwargs={"secret": node.secret},
            )
            for client, node in nodes.items()
        ]
        for thread in threads:
            thread.start()
        stack.callback(_together, [thread.join for thread in threads])
        stack.callback(stop.set)
        grid = stack.enter_context(
            server_grid(link.address, root_certificates=link.root_certificates, secret=link.secret)
        )
        here = Nodes(grid, {client: each.fingerprint for client, each in keys.items()})
        wait_until(lambda: len(here.of("ab")) == 2)
        yield SimpleNamespace(
            folder=folder,
            tls=tls,
            keys=keys,
            allowed=allowed,
            link=link,
            gate=gate,
            config=config,
            nodes=here,
            supernodes=nodes,
            grid=grid,
            channel=FlowerChannel(grid, here.of),
            answers=answers,
            url=f"https://{gate.address}",
        )


def echo(message) -> bytes:
    """The answer of the clients of the deployment."""
    return message.common + b"|" + message.own


def _together(functions) -> None:
    threads = [threading.Thread(target=each) for each in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something in another process, which has no event to wait for."""
    ticks, never = int(seconds / 0.1), threading.Event()
    assert any(condition() or never.wait(0.1) for _ in range(ticks))


@pytest.fixture(name="wait_until")
def wait_until_fixture() -> Callable:
    return wait_until


@pytest.fixture(name="new_key")
def new_key_fixture() -> type[Key]:
    return Key


@pytest.fixture(name="new_authority")
def new_authority_fixture() -> Callable:
    return authority


# ------------------------------------------------------------------------------------------------- the command line


class Command:
    """A running `coterie` command, with its output in files."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._out, self._err = folder / "stdout", folder / "stderr"
        command = [sys.executable, "-c", "from coterie.cli import main; main()", *map(str, arguments)]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        self.pid = self._process.pid

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    def says(self, text: str, seconds: float = 300.0) -> None:
        """Wait until it has said something on stderr."""
        wait_until(lambda: text in self.stderr or self._process.poll() is not None, seconds)
        assert text in self.stderr, self.stderr

    def wait(self, seconds: float = 600.0) -> int:
        """Wait until it ends; returns its exit code."""
        return self._process.wait(seconds)

    def send(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it as a power failure would."""
        self.send(signal.SIGKILL)
        self.wait()

    def children(self) -> list[int]:
        """The processes that it has started."""
        listed = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [int(child) for file in listed for child in file.read_text().split()]

    def end(self) -> None:
        """End it if it is still running."""
        if self._process.poll() is None:
            self.send(signal.SIGTERM)
            try:
                self.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


class Commands:
    """A federation that is made, served and joined with the command line; its clients have a .npz file each."""

    def __init__(self, folder: Path, clients: int) -> None:
        self.folder, self.data, self.federation = folder, folder / "data", folder / "federation"
        self.port, self.server, self.running = free_port(), "", list[Command]()
        self.server = f"{HOST}:{self.port}"
        self.data.mkdir()
        examples = coterie.data.load("digits", clients=clients, partition="inverted", clusters=2, seed=1)
        self.clients = [f"client-{name}" for name in examples.clients]
        for name, client in zip(examples.clients, self.clients, strict=True):
            (x, y), (x_test, y_test) = (examples.examples(name, part) for part in ("fit", "test"))
            np.savez(self.data / f"{client}.npz", x=x, y=y, x_test=x_test, y_test=y_test)
        self.run("keys", "init", "--host", HOST, "--folder", self.federation)
        for client in self.clients:
            self.new_client(client)

    def new_client(self, client: str) -> None:
        """Make a key and admit it."""
        self.run("keys", "client", client, "--folder", self.folder / "keys")
        self.run("admit", self.folder / "keys" / f"{client}.pub", "--folder", self.federation)

    def run(self, *arguments: object, code: int = 0) -> Command:
        """Run a command to its end."""
        command = self.start("command", *arguments)
        assert command.wait() == code, command.stderr
        return command

    def start(self, name: str, *arguments: object) -> Command:
        """Start a command."""
        command = Command(self.folder / "output" / f"{len(self.running)}-{name}", *arguments)
        self.running.append(command)
        return command

    def serve(self, *arguments: object, **settings: object) -> Command:
        """Start `coterie serve`; settings: name → value."""
        more = [text for name, value in settings.items() for text in ("--set", f"{name.replace('__', '.')}={value}")]
        place = ("--folder", self.federation, "--host", HOST, "--port", self.port)
        return self.start("serve", "serve", *arguments, *more, *place)

    def join(self, client: str, *arguments: object) -> Command:
        """Start `coterie join`."""
        certificate = ("--ca", self.federation / "ca.crt", "--folder", self.home(client))
        key, data = self.folder / "keys" / f"{client}.key", self.data / f"{client}.npz"
        return self.start(
            client, "join", "--server", self.server, "--key", key, "--data", data, "--yes", *certificate, *arguments
        )

    def home(self, client: str) -> Path:
        """The folder of a client."""
        return self.folder / "homes" / client

    def log(self, client: str) -> list[dict]:
        """The log of a client."""
        return [json.loads(line) for line in (self.home(client) / "log.jsonl").read_text().splitlines()]

    def listed(self) -> dict[str, dict]:
        """What `coterie clients` says: client → its row."""
        listed = json.loads(self.run("clients", "--folder", self.federation, "--json").stdout)
        return {row["client"]: row for row in listed["clients"]}

    def processes(self) -> list[str]:
        """The processes that have something to do with this federation, by their command lines."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has ended
                found.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return [line for line in found if str(self.folder) in line]

    def end(self) -> None:
        """End everything that is still running, the clients first."""
        for command in reversed(self.running):
            command.end()


@pytest.fixture
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Commands]]:
    """Makes federations of so many clients."""
    with ExitStack() as stack:

        def create(clients: int) -> Commands:
            made = Commands(tmp_path_factory.mktemp("commands"), clients)
            stack.callback(made.end)
            return made

        yield create
