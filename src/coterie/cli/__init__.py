"""The command line: one file per command, which parses, calls and prints. `main` is the entry point."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command that the shell gave."""
    from coterie.cli.app import app

    app(prog_name="coterie")
