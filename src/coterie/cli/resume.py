"""coterie resume: go on with a run that was interrupted."""

from __future__ import annotations

from coterie.cli import flags
from coterie.cli.finished import finished, interrupted
from coterie.cli.progress import Ticker


def resume(
    run: flags.Run,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Go on with a run from its last checkpoint; one that is over is shown again."""
    with Ticker(silent=quiet) as ticker, interrupted(run):
        from coterie.runs import loop
        from coterie.runs.record import RunRecord
        from coterie.runs.spec import Spec

        done = sum(1 for row in RunRecord.read(run).rounds if row.get("stage") == "train")
        ticker.expect(max(1, Spec.of(run / "spec.toml").run.rounds - done))
        record = loop.resume(run, on_round=ticker.step)
    finished(record, as_json=as_json)
