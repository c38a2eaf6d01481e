"""The gate: a reverse proxy in front of the SuperLink, and the only process that listens to other machines.

It passes only the calls of the Fleet API, and only those that are signed with an allowed key. This is checked before a
body is read: the SuperLink itself reads it first, and it would let anyone register keys and start runs.

config.py   `GateConfig`: the settings
keys.py     allowed keys, and the signature of a request
limits.py   rates, and bytes in flight
app.py      the proxy
server.py   TLS, timeouts, connections
"""

from coterie.federation.network.gate.config import GateConfig

__all__ = ["GateConfig"]
