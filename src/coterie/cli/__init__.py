"""The command line: one file per command, which parses the arguments, calls the library and prints the result.

app.py             all commands with their help texts and examples
flags.py           flags that several commands share, and the spec that they make
run.py compare.py estimate.py export.py pni.py suggest_threshold.py
listing.py         lists of methods, data sets and models, and a page about one of them
output.py          tables, JSON and number formats
progress.py        progress display on stderr
error_handling.py  exceptions to error messages and exit codes
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line; entry point of the `coterie` script."""
    from coterie.cli.app import app

    app(prog_name="coterie")
