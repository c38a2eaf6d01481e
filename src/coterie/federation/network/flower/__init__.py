"""Flower as a channel between server and clients. Only this package imports flwr.

channel.py      `FlowerChannel`: a `Channel` over a Flower grid
nodes.py        `Nodes`: who is connected, by key
named_nodes.py  `NamedNodes`: who is connected, by name, for Flower apps (coterie.flower)
node_state.py   `client_folder`: what a client of a Flower app remembers between messages
executor.py     `answer_tasks`: the client's side, in a resident process
node.py         `deactivate_node`: after a SuperNode was killed
server.py       `server_grid`, `Control`: the server's side, in the process of the run loop
connection.py   HTTP clients, retries, heartbeats
content.py      bytes ↔ the content of Flower messages
internals.py    the names of flwr that are not public
"""

from coterie.errors import SpecError

try:
    import flwr as _flwr  # noqa: F401
except ImportError as fault:
    raise SpecError("Runs between machines need an extra: pip install 'coterie[network]'") from fault

from coterie.federation.network.flower.channel import FlowerChannel
from coterie.federation.network.flower.executor import answer_tasks
from coterie.federation.network.flower.node import deactivate_node
from coterie.federation.network.flower.nodes import ConnectedNode, Grid, Nodes
from coterie.federation.network.flower.server import Control, server_grid

__all__ = [
    "ConnectedNode",
    "Control",
    "FlowerChannel",
    "Grid",
    "Nodes",
    "answer_tasks",
    "deactivate_node",
    "server_grid",
]
