"""Keys, certificates, and one real deployment on the loopback interface."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

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
