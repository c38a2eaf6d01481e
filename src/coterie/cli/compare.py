"""coterie compare: several methods with the same clients, cohorts and seeds."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import flags, signals
from coterie.cli.compare_table import drift_table, main_table
from coterie.cli.jobs_progress import JobsProgress
from coterie.cli.output import document, result, text
from coterie.cli.progress import ProgressDisplay
from coterie.cli.report import next_step, write_report

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from coterie.runs.spec import Spec


def compare(
    spec: flags.SpecFile = None,
    data: flags.Data = None,
    methods: flags.Methods = None,
    model: flags.Model = None,
    clusters: flags.Clusters = None,
    rounds: flags.Rounds = None,
    clients_per_round: flags.ClientsPerRound = None,
    epochs: flags.Epochs = None,
    batch_size: flags.BatchSize = None,
    learning_rate: flags.LearningRate = None,
    seed: flags.Seed = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Number of seeds per method, counted up from --seed.")] = 1,
    jobs: Annotated[int, typer.Option(metavar="N", help="Number of runs at a time, each in its own process.")] = 1,
    jobs_on: flags.JobsOn = "processes",
    settings: flags.SharedSettings = None,
    out: flags.RecordsFolder = None,
    report: flags.Report = False,
    track: flags.Track = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            rich_help_panel="Output",
            help="Form of the table: table, markdown, latex, csv or json; all but table print nothing else.",
        ),
    ] = "table",
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Run several methods with the same clients, cohorts and seeds, and compare the results.

    Without SPEC.toml and --data, this is the demonstration: handwritten digits
    on 40 clients in four clusters, with images rotated by 0°, 90°, 180° or 270°.
    """
    with ProgressDisplay(silent=quiet) as progress:
        from coterie.errors import SpecError
        from coterie.runs.compare import compare as compare_runs
        from coterie.runs.comparison_legend import legend
        from coterie.runs.comparison_tables import FORMATS
        from coterie.runs.conclusion import conclusion
        from coterie.runs.spread import checked_jobs_on

        given = flags.values(
            data=data,
            model=model,
            rounds=rounds,
            clients_per_round=clients_per_round,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            seed=seed,
        )
        form = _known_format(form, as_json=as_json)
        specs = _specs(spec, methods, given, settings, clusters)
        flags.check_counts(seeds=seeds, jobs=jobs)
        if report and out is None:
            raise SpecError("--report needs the records of the runs; give their folder: --out DIR")
        on = checked_jobs_on(jobs_on)  # a missing extra is reported before the first run
        flags.trackers(track)  # a wrong name or a missing extra is reported before the first run
        total = sum(each.run.rounds for each in specs.values()) * seeds
        shown = JobsProgress(progress, len(specs) * seeds, total)
        try:
            with signals.during("run"):
                found = compare_runs(
                    specs,
                    seeds=seeds,
                    jobs=jobs,
                    jobs_on=on,
                    out=out,
                    on_step=shown.step,
                    on_job=shown.job,
                    observers=None if track is None else lambda job: flags.trackers(track),
                )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_interrupted(out)) from None
    page = write_report(out) if report and out is not None else None
    if form == "json":
        shown_page = {} if page is None else {"page": str(page)}
        path = None if out is None else str(out)
        document({**found.to_dict(), "conclusion": conclusion(found), "path": path, **shown_page})
        return
    if form != "table":
        text(FORMATS[form](found))
        return
    where = [] if out is None else [f"Records: {out}", next_step(out) if page is None else f"Page: {page}"]
    result(main_table(found), *drift_table(found), *legend(found), "", conclusion(found), *where)


def _specs(
    file: Path | None,
    methods: str | None,
    given: Mapping[str, object],
    settings: Sequence[str] | None,
    clusters: str | None,
) -> dict[str, Spec]:
    """Method → spec, with flags applied."""
    from coterie.runs.compare import DEMONSTRATION_SETTINGS, METHODS, demonstration

    names = flags.method_names(methods, file, METHODS)
    if file is None and "data.name" not in given:
        specs = demonstration(names)
        if methods is not None:
            for name in names:
                own = DEMONSTRATION_SETTINGS.get(name, {})
                if shown := ", ".join(f"{k}={v}" for k, v in own.items() if k != "clusters" or clusters is None):
                    log.warning("%s runs with the demonstration's %s; --data digits uses the defaults.", name, shown)
    else:
        if methods is None:
            names.remove("oracle")  # it needs the true clusters, which most data sets do not have
        base = flags.base_spec(file, "--methods")
        specs = {name: base.with_values({"method.name": name}) for name in names}
    shared, own = flags.shared_and_own_settings(names, settings, clusters)
    return {
        name: spec.with_values({**given, **shared, **{f"method.{key}": value for key, value in own[name].items()}})
        for name, spec in specs.items()
    }


def _known_format(form: str, *, as_json: bool) -> str:
    from coterie.errors import SpecError, unknown
    from coterie.runs.comparison_tables import FORMATS

    known = ("table", *FORMATS, "json")
    if form not in known:
        raise SpecError(unknown("format", form, known))
    if as_json and form not in ("table", "json"):
        raise SpecError(f"--json and --format {form} exclude each other; give one of them")
    return "json" if as_json else form


def _interrupted(out: Path | None) -> str:
    if out is None:
        return "Nothing was saved; with --out DIR, the same command continues."
    if not out.exists():
        return "The runs had not started; nothing was saved."
    command = shlex.join(["coterie", *sys.argv[1:]])
    return f"Finished runs and checkpoints are in {out}. Continue with: {command}"
