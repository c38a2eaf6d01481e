"""The settings of the gate."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.errors import SpecError, unknown


@dataclass(frozen=True)
class GateConfig:
    """The settings of the gate.

    Attributes:
        port: Port to listen on.
        certificate: File with the gate's certificate, PEM.
        key: File with its private key, PEM.
        upstream: Host and port of the SuperLink.
        upstream_certificate: File with the certificate of the SuperLink.
        allowed_keys: File with the public keys that may pass, one OpenSSH key per line; read again when it changes.
        about: What the run is about, as JSON; shown to clients whose key is admitted.
        host: Address to listen on.
        max_body_bytes: Largest request.
        max_bytes_in_flight: Largest sum of requests that are being passed on: the SuperLink holds them in memory.
        max_header_bytes: Largest headers of a request.
        max_requests: Number of requests at once.
        max_connections: Number of connections at once.
        max_connections_per_peer: Number of connections at once from one address.
        requests_per_second: Of one key.
        requests_per_second_per_peer: Of one address. Several clients may share one.
        burst: A key or address may send this many seconds' worth of requests at once.
        header_timeout: Seconds for a TLS handshake, and for the headers of a request.
        idle_timeout: Seconds without data in the body of a request, or between two requests.
        body_timeout: Seconds for the body of a request.
        upstream_timeout: Seconds for the SuperLink's response.
    """

    port: int
    certificate: str
    key: str
    upstream: str
    upstream_certificate: str
    allowed_keys: str
    about: str = "{}"
    host: str = "0.0.0.0"
    max_body_bytes: int = 16 << 20
    max_bytes_in_flight: int = 128 << 20
    max_header_bytes: int = 16 << 10
    max_requests: int = 64
    max_connections: int = 512
    max_connections_per_peer: int = 128
    requests_per_second: float = 50.0
    requests_per_second_per_peer: float = 200.0
    burst: float = 10.0
    header_timeout: float = 10.0
    idle_timeout: float = 20.0
    body_timeout: float = 300.0
    upstream_timeout: float = 60.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            number = field.type in ("int", "float")
            if number and (not isinstance(value, int | float) or isinstance(value, bool) or value <= 0):
                raise SpecError(f"{field.name} of the gate must be a number above 0, got {value!r}")
            if not number and not (isinstance(value, str) and value):
                raise SpecError(f"{field.name} of the gate must be a text, got {value!r}")
        if not 0 < self.port < 65536:
            raise SpecError(f"port of the gate must be between 1 and 65535, got {self.port}")
        if self.max_bytes_in_flight < self.max_body_bytes:
            raise SpecError("max_bytes_in_flight of the gate must be at least max_body_bytes")

    def save(self, path: Path) -> None:
        """Write the settings as JSON."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> GateConfig:
        """Read what `save` wrote.

        Raises:
            SpecError: If the file is missing or malformed, or if a setting is unknown or out of range.
        """
        try:
            content: Any = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as fault:
            raise SpecError(f"The settings of the gate cannot be read: {fault}") from fault
        if not isinstance(content, dict):
            raise SpecError("The settings of the gate cannot be read: not a JSON object")
        fields = dataclasses.fields(cls)
        names = {field.name for field in fields}
        for name in content:
            if name not in names:
                raise SpecError(unknown("setting", name, names, "of the gate"))
        missing = [each.name for each in fields if each.default is dataclasses.MISSING and each.name not in content]
        if missing:
            raise SpecError(f"The gate needs: {', '.join(missing)}")
        return cls(**content)
