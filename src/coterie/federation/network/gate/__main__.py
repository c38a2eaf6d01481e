"""Run the gate: `python -m coterie.federation.network.gate CONFIG.json`."""

from __future__ import annotations

import sys
from pathlib import Path

from coterie.errors import Error
from coterie.federation.network.gate.config import GateConfig


def main(arguments: list[str]) -> None:
    """Run the gate with the settings in a file, until SIGTERM or SIGINT."""
    if len(arguments) != 1:
        sys.exit("Usage: python -m coterie.federation.network.gate CONFIG.json")
    try:
        config = GateConfig.load(Path(arguments[0]))
        for path in (config.certificate, config.key, config.upstream_certificate):
            if not Path(path).is_file():
                sys.exit(f"No file {path!r}")
        try:
            from coterie.federation.network.gate.server import serve
        except ImportError:
            sys.exit("The gate needs an extra: pip install 'coterie[network]'")
        serve(config)
    except Error as fault:
        sys.exit(str(fault))


if __name__ == "__main__":
    main(sys.argv[1:])
