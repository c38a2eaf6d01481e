"""The command line. Commands parse their arguments, call the library and print the result.

app.py             all commands with their help texts and examples
flags.py           flags that several commands share, and the spec made from them
run.py runs.py compare.py reproduce.py tune.py estimate.py export.py pni.py suggest_threshold.py: commands
keys.py admissions.py clients.py: the commands for federations between machines
listing.py         lists of methods, data sets and models, and a page about one of them
output.py          tables, JSON and number formats
progress.py jobs_progress.py      progress display on stderr
compare_table.py conclusion.py    what `compare` prints
watch.py           live pages of runs, and the server beside `coterie run --watch`
error_handling.py  turns exceptions into error messages and exit codes
signals.py         Ctrl-C and SIGTERM
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line; entry point of the `coterie` script."""
    from coterie.cli import signals

    signals.install()
    from coterie.cli.app import app

    app(prog_name="coterie")
