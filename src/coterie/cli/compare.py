"""coterie compare: several methods on the same clients, cohorts and seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import flags
from coterie.cli.progress import Ticker
from coterie.cli.screen import document, number, percent, result, table
from coterie.cli.sentence import sentence

if TYPE_CHECKING:
    from coterie.runs.compare import Comparison
    from coterie.runs.spec import Spec


#: Where clients drift: how a column is headed, and which it is.
_DRIFT = {
    "shifts": "shifts",
    "noticed": "shifts_detected",
    "rounds later": "delay",
    "false alarms": "false_alarms",
    "migrations right": "migrations_correct",
    "wrong": "migrations_wrong",
}


def compare(
    spec: flags.SpecFile = None,
    data: flags.Data = None,
    methods: flags.Methods = None,
    model: flags.Model = None,
    rounds: flags.Rounds = None,
    clients_per_round: flags.ClientsPerRound = None,
    seed: flags.Seed = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Runs of each method, from seeds counted up.")] = 1,
    jobs: Annotated[int, typer.Option(metavar="N", help="Runs at a time, each in a process of its own.")] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            show_default=False,
            help="Any setting of {shared sections} for all; METHOD.KEY=VALUE for one method.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", show_default=False, help="A folder for a record of every run.")
    ] = None,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Run several methods on the same cohorts and seeds, side by side.

    Without a spec and without --data: the demonstration, digits that are turned in four ways.
    """
    with Ticker(silent=quiet) as ticker:
        from coterie.runs.compare import compare as compare_runs

        shorthands = {"data.name": data, "model.name": model, "run.rounds": rounds}
        shorthands |= {"run.clients_per_round": clients_per_round, "run.seed": seed}
        specs = _specs(spec, methods, shorthands, settings)
        _check(seeds=seeds, jobs=jobs)
        ticker.expect(sum(each.run.rounds for each in specs.values()) * seeds)
        if jobs > 1:
            ticker.say(f"{len(specs) * seeds} runs, {jobs} at a time")
        try:
            found = compare_runs(specs, seeds=seeds, jobs=jobs, out=out, on_step=ticker.step_of)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_left(out)) from None
    if as_json:
        document({**found.to_dict(), "sentence": sentence(found), "path": None if out is None else str(out)})
        return
    tests = [_what_p_is(found), ""] if seeds > 1 else []
    where = [] if out is None else [f"Records: {out}"]
    result(_table(found, seeds), *_drift_table(found), *tests, sentence(found), *where)


def _what_p_is(found: Comparison) -> str:
    corrected = f", corrected for {len(found.significance)} tests by Holm's rule" if len(found.significance) > 1 else ""
    return f"p: paired t-test that the last ten rounds are better than those of {found.reference}{corrected}."


def _specs(
    file: Path | None, methods: str | None, shorthands: dict[str, Any], settings: list[str] | None
) -> dict[str, Spec]:
    """Method → spec, with flags applied."""
    from coterie.errors import SpecError, unknown
    from coterie.runs.compare import METHODS, demonstration
    from coterie.runs.spec import SECTIONS, Spec

    names = [name.strip() for name in methods.split(",") if name.strip()] if methods is not None else list(METHODS)
    if not names:
        raise SpecError("--methods takes names with commas between them, such as fedavg,ifca")
    if file is None and shorthands["data.name"] is None:
        specs = demonstration(names)
    else:
        if methods is None:  # not every data set knows its true clusters
            names.remove("oracle")
        base = Spec.of(file)
        specs = {name: base.with_settings([f"method.name={name}"]) for name in names}
    shared = [text for text in settings or () if text.partition(".")[0].strip() in SECTIONS]
    own = [text for text in settings or () if text not in shared]
    for text in own:
        if (name := text.partition(".")[0].strip()) not in specs:
            raise SpecError(unknown("section of a spec or method of this comparison", name, {*SECTIONS, *specs}))
    return {
        name: flags.changed(spec, shorthands, shared).with_settings(
            ["method." + text.partition(".")[2] for text in own if text.partition(".")[0].strip() == name]
        )
        for name, spec in specs.items()
    }


def _check(**counts: int) -> None:
    from coterie.errors import SpecError

    for name, value in counts.items():
        if value < 1:
            raise SpecError(f"--{name} must be at least 1, got {value}")


def _left(out: Path | None) -> str:
    if out is None:
        return "Nothing was written; --out DIR keeps a record of every run."
    return f"The records are in {out}; coterie resume goes on with a single one."


def _table(found: Comparison, seeds: int) -> Any:
    """One row a method; columns that nobody has a number for are left out."""
    rows = found.table

    def has(column: str) -> bool:
        return any(row[column] is not None for row in rows)

    scored, known = has("accuracy"), has("adjusted_rand")
    columns = ["accuracy %", "worst tenth %"] if scored else ["test loss"]
    columns += ["adjusted Rand"] if known else []
    columns += ["MB down", "MB up", "seconds", *(["p"] if seeds > 1 else [])]
    shown = table("method", *columns)
    for row in rows:
        spread = {name: row[f"{name}_deviation"] for name in row if f"{name}_deviation" in row}
        cells = [row["method"]]
        if scored:
            cells += [percent(row[name], spread[name]) for name in ("accuracy", "worst_tenth")]
        else:
            cells += [number(row["test_loss"], "4g", spread["test_loss"])]
        if known:
            alone = found.records[row["method"]][0].summary["clusters"]["adapted"]
            cells += ["–" if alone else number(row["adjusted_rand"], "2f", spread["adjusted_rand"])]
        cells += [number(row[name] / 1e6, "2f") for name in ("down_bytes", "up_bytes")]
        cells += [number(row["seconds"], "1f", spread["seconds"])]
        if seeds > 1:
            cells += [number(found.significance.get(row["method"], {}).get("t_test_holm"), "3f")]
        shown.add_row(*cells)
    return shown


def _drift_table(found: Comparison) -> list[Any]:
    """What each method made of the clients' shifts; nothing where none could happen."""
    columns = {name: key for name, key in _DRIFT.items() if any(row[key] is not None for row in found.table)}
    if not columns:
        return []
    shown = table("method", *columns)
    for row in found.table:
        cells = [number(row[key], "1f", row[f"{key}_deviation"]) for key in columns.values()]
        shown.add_row(row["method"], *cells)
    return [shown]
