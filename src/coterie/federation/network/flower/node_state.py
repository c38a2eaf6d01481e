"""What a client remembers between two messages of Flower, each of which may be answered by another process.

With `coterie-folder` in the configuration of the node it is in this folder, and outlives the node. Otherwise it is in
Flower's state of the node: any process of Flower's simulation engine gets it, and a SuperNode has it until it ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord

#: Key in the node configuration: folder in which the client stores what it must remember.
FOLDER = "coterie-folder"

#: Key in the state of a node.
_STATE = "coterie"


@contextmanager
def client_folder(context: Any) -> Iterator[Path]:
    """The folder with what a client remembers; what changes in it is kept.

    Args:
        context: The context of a Flower message.
    """
    if context.node_config.get(FOLDER):
        yield Path(str(context.node_config[FOLDER])).expanduser()
        return
    with tempfile.TemporaryDirectory(prefix="coterie-") as name:
        folder = Path(name)
        for path, data in context.state.get(_STATE, {}).items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        yield folder
        files = sorted(each for each in folder.rglob("*") if each.is_file())
        context.state[_STATE] = ConfigRecord({each.relative_to(folder).as_posix(): each.read_bytes() for each in files})
