"""The processes of a deployment: SuperLink and gate on the server, SuperNode on a client.

Each has a folder of its own, with its log. None outlives the process that started it.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

from coterie.errors import SpecError
from coterie.federation.network.gate.config import GateConfig
from coterie.federation.network.loopback import HOST, answers, free_port, new_certificate, new_secret
from coterie.federation.network.process import Process

#: How the log of a SuperNode names its node.
_NODE = re.compile(r"SuperNode ID: (\d+)")


class SuperLink:
    """Flower's server, on the loopback interface only: its Control API lets anyone who reaches it start runs.

    Node keys are required. Flower requires TLS for that, so the SuperLink gets a certificate for the loopback interface
    that only this process and the gate know. A run does not survive its SuperLink, so it is not restarted.

    Attributes:
        address: Its host and port.
        certificate: File with its certificate.
        root_certificates: The same as PEM.
        secret: Secret that `server_grid` needs.
        process: The process.
    """

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        """Prepare a SuperLink.

        Args:
            folder: Its folder. The database in it is kept, so registered keys stay registered.
            port: Its port; None: a free one.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        number = free_port() if port is None else port
        self.address = f"{HOST}:{number}"
        self.certificate, key = folder / "certificate.pem", folder / "key.pem"
        self.root_certificates = new_certificate(self.certificate, key)
        self.secret = new_secret(folder / "secret")
        command = [
            *_flower("flower-superlink"),
            *("--host", HOST, "--port", str(number)),
            *("--isolation", "process", "--disable-runtime-dependency-installation"),
            *("--database", str(folder / "superlink.db"), "--enable-supernode-auth"),
            *("--ssl-ca-certfile", str(self.certificate), "--ssl-certfile", str(self.certificate)),
            *("--ssl-keyfile", str(key), "--superexec-auth-secret-file", str(folder / "secret")),
        ]
        self.process = Process(
            "SuperLink",
            command,
            folder / "superlink.log",
            lambda: answers(number, tls=True),
            environment=_environment(folder),
        )

    def start(self, timeout: float = 60.0) -> None:
        """Start it and wait until it answers; raises FederationError with the end of its log if it does not."""
        self.process.start(timeout)

    def stop(self) -> None:
        """Stop it."""
        self.process.stop()


class Gate:
    """The gate in front of a SuperLink; it is restarted if it ends.

    Attributes:
        address: Its host and port.
        process: The process.
    """

    def __init__(self, folder: Path, config: GateConfig) -> None:
        """Prepare a gate.

        Args:
            folder: Its folder.
            config: Its settings.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _require("uvicorn")
        config.save(folder / "gate.json")
        self.address = f"{config.host}:{config.port}"
        probe = HOST if config.host in ("0.0.0.0", "", "::") else config.host
        self.process = Process(
            "Gate",
            [sys.executable, "-m", "coterie.federation.network.gate", str(folder / "gate.json")],
            folder / "gate.log",
            lambda: answers(config.port, tls=True, host=probe),
            restart=True,
        )

    def start(self, timeout: float = 30.0) -> None:
        """Start it and wait until it answers; raises FederationError with the end of its log if it does not."""
        self.process.start(timeout)

    def stop(self) -> None:
        """Stop it."""
        self.process.stop()


class SuperNode:
    """Flower's client; it is restarted if it ends. `answer_tasks` takes its messages.

    Attributes:
        address: Host and port of its Runtime API, on the loopback interface.
        secret: Secret that `answer_tasks` needs.
        process: The process.
    """

    def __init__(
        self, folder: Path, server: str, *, private_key: Path, root_certificates: Path, port: int | None = None
    ) -> None:
        """Prepare a SuperNode.

        Args:
            folder: Its folder.
            server: Host and port of the gate.
            private_key: File with the client's private key, as OpenSSH writes it.
            root_certificates: File with the certificate of the authority that signed the gate's certificate.
            port: Port of its Runtime API; None: a free one.
        """
        for path in (private_key, root_certificates):
            if not Path(path).is_file():
                raise SpecError(f"No file {str(path)!r}")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        number = free_port() if port is None else port
        self.address = f"{HOST}:{number}"
        self.secret = new_secret(folder / "secret")
        command = [
            *_flower("flower-supernode"),
            *("--superlink", server, "--root-certificates", str(root_certificates)),
            *("--auth-supernode-private-key", str(private_key), "--isolation", "process"),
            *("--host", HOST, "--port", str(number), "--superexec-auth-secret-file", str(folder / "secret")),
        ]
        self.process = Process(
            "SuperNode",
            command,
            folder / "supernode.log",
            lambda: answers(number, tls=False),
            environment=_environment(folder),
            restart=True,
            before_start=self._declare_offline,
        )
        self._server, self._private_key, self._root_certificates = server, private_key, root_certificates

    def _declare_offline(self) -> None:
        """Free the node of an earlier SuperNode in this folder, which may have been killed; its log names the node."""
        from coterie.federation.network.flower import deactivate_node

        log = self.process.log
        found = _NODE.findall(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else []
        if found:
            deactivate_node(
                self._server,
                int(found[-1]),
                private_key=self._private_key,
                root_certificates=self._root_certificates,
            )

    def start(self, timeout: float = 60.0) -> None:
        """Start it and wait until its Runtime API answers; it may not have reached the server by then."""
        self.process.start(timeout)

    def stop(self) -> None:
        """Stop it."""
        self.process.stop()


def check_installed() -> None:
    """Raise SpecError if Flower is not installed."""
    _require("flwr")


def _environment(folder: Path) -> dict[str, str]:
    """Variables of Flower's processes: nothing is sent to its makers, and nothing is shared with other deployments."""
    return {
        "FLWR_HOME": str(folder / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
    }


def _flower(program: str) -> list[str]:
    """The command of a program of Flower, installed beside this interpreter."""
    _require("flwr")
    path = Path(sys.executable).parent / program
    if not path.is_file():
        raise SpecError(f"No program {str(path)!r}. Install it: pip install 'coterie[network]'")
    return [sys.executable, str(path)]


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise SpecError("Runs between machines need an extra: pip install 'coterie[network]'")
