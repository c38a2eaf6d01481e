"""The server of `coterie run --watch`: a process beside the run, so that it cannot disturb it.

Prints its address as a line of JSON. It ends when its standard input does: when the run has ended, however that
happened. Browsers first get the record as it is then.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from pathlib import Path

from coterie.reports.live.server import LiveServer


def main() -> None:
    """Serve the record in the folder that is the first argument."""
    with contextlib.suppress(AttributeError, OSError):
        os.nice(5)  # the run comes first
    server = LiveServer(Path(sys.argv[1]))
    threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
    print(json.dumps({"address": server.address}), flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.run()


def _end_with_input(server: LiveServer) -> None:
    sys.stdin.buffer.read()
    server.stop(last=True)


if __name__ == "__main__":
    main()
