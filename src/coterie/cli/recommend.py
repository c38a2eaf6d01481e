"""coterie recommend: which method to use, from a comparison on validation examples."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import flags, signals
from coterie.cli.jobs_progress import JobsProgress
from coterie.cli.output import document, number, percent, plural, result, size, table
from coterie.cli.progress import ProgressDisplay

if TYPE_CHECKING:
    from rich.table import Table

    from coterie.runs.recommending import MethodResult, Recommendation

#: What the columns of the table mean.
_LEGEND = (
    "±: standard deviation of the score over seeds, in the next column over clients; standard error of the difference "
    "to fedavg over both. beyond chance: at least the margin, and more than the error explains."
)


def recommend(
    spec: flags.SpecFile = None,
    data: flags.Data = None,
    budget: Annotated[
        str,
        typer.Option(
            metavar="NAME|SECONDS",
            help="small: 6 methods, 3 seeds, at most 100 clients; medium: 13 methods, 5 seeds, at most 200 clients; "
            "a number of seconds: as medium, until the time is over.",
        ),
    ] = "small",
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            show_default=False,
            autocompletion=flags.method_lists,
            help="Methods to compare with one model for all clients (fedavg), separated by commas; default: those of "
            "--budget.",
        ),
    ] = None,
    model: flags.Model = None,
    clusters: flags.Clusters = None,
    rounds: flags.Rounds = None,
    clients_per_round: flags.ClientsPerRound = None,
    epochs: flags.Epochs = None,
    batch_size: flags.BatchSize = None,
    learning_rate: flags.LearningRate = None,
    seed: flags.Seed = None,
    settings: flags.SharedSettings = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            show_default=False,
            rich_help_panel="Output",
            help="Folder for recommendation.json and next.toml, the spec to run next. Default: nothing is written.",
        ),
    ] = None,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Say which method to use for your data: one model, local training or clusters, and why.

    Several methods are trained on part of the training examples and scored on
    the others, with several seeds. Test examples are not used. The answer names
    one method, its score, bytes and seconds, what it needs, what it reveals to
    the server, and the command to run next. One model for all clients is the
    answer unless another method is better by at least one percentage point (for
    losses: 2 %) and by more than the spread over clients and seeds explains.
    Methods that cannot run on the data are left out, with the reason.
    """
    with ProgressDisplay(silent=quiet) as progress:
        from coterie.runs.recommending import recommend as compare_methods
        from coterie.runs.recommending.panel import budget_of, panel

        limits = budget_of(budget)
        names = flags.method_names(methods, spec, limits.methods)
        shared, own = flags.shared_and_own_settings(names, settings, clusters)
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
        made = flags.base_spec(spec, "--methods").with_values({**given, **shared})
        runs = len(panel(made, limits, own)) * limits.seeds
        shown = JobsProgress(progress, runs, runs * made.run.rounds)
        try:
            with signals.during("run"):
                found = compare_methods(made, budget=budget, methods=own, out=out, on_step=shown.step, on_job=shown.job)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("Nothing was saved; --budget SECONDS limits the time.") from None
    command = _command(spec, found, out, {**given, **shared})
    if as_json:
        document({**found.to_dict(), "command": command, "path": None if out is None else str(out)})
        return
    result(*_lines(found, command))


def _lines(found: Recommendation, command: str) -> list[str | Table]:
    from coterie.runs.recommending.sentences import HEADLINES, about_clusters, about_data

    chosen = found.chosen
    runs = (
        f"{plural(len(found.ranking), 'method')}, {plural(len(found.seeds), 'seed')}, {plural(found.rounds, 'round')}"
    )
    left_out = [f"Left out: {name}: {reason}" for name, reason in found.left_out.items()]
    lines: list[str | Table] = ["The data", *about_data(found.data), *about_clusters(found.clusters), ""]
    lines += [f"Validation examples of {found.data['name']}: {runs}", _table(found), _LEGEND, *left_out, ""]
    lines += [HEADLINES[found.answer].format(found.method), *found.reasons]
    lines.append(f"Cost: {size(chosen.sent_bytes)} and {chosen.seconds:.1f} s per run in this comparison.")
    if chosen.needs:
        lines.append(f"Needs: {'; '.join(chosen.needs)}.")
    return [*lines, *chosen.reveals, "", f"Run it: {command}"]


def _table(found: Recommendation) -> Table:
    """The methods, best first."""
    accuracy = found.metric == "accuracy"
    unit = " %" if accuracy else ""
    shown = table(
        "method",
        f"{found.metric}{unit}",
        "over clients",
        "better by",
        "beyond chance",
        "clusters",
        "traffic",
        "seconds",
        "server sees clients' models",
    )
    shown.columns[-1].justify = "left"
    for each in found.ranking:
        shown.add_row(each.method, *_cells(each, accuracy=accuracy))
    return shown


def _cells(each: MethodResult, *, accuracy: bool) -> list[str]:
    def text(value: float | None, deviation: float | None = None) -> str:
        return percent(value, deviation) if accuracy else number(value, "4g", deviation)

    counts = each.clusters
    clusters = "–" if counts is None else "/".join(map(str, counts))
    return [
        text(each.score, each.seed_deviation),
        "–" if each.client_deviation is None else f"± {text(each.client_deviation)}",
        text(each.difference, each.error),
        "yes" if each.better else "no" if each.difference is not None else "–",
        clusters,
        size(each.sent_bytes),
        f"{each.seconds:.1f}",
        each.sees_individuals,
    ]


def _command(file: Path | None, found: Recommendation, out: Path | None, given: Mapping[str, object]) -> str:
    """The command that runs the recommended method, with the settings that were given."""
    from coterie.runs.recommending.method_choice import NEXT_FILE

    if out is not None:
        return shlex.join(["coterie", "run", str(out / NEXT_FILE)])
    words = ["coterie", "run", *([] if file is None else [str(file)])]
    named = {"data.name": "--data", "model.name": "--model", "run.rounds": "--rounds", "run.seed": "--seed"}
    for key, flag in named.items():
        words += [flag, str(given[key])] if key in given else []
    words += ["--method", found.method]
    rest = {key: value for key, value in given.items() if key not in named and not key.startswith("method.")}
    rest |= {f"method.{key}": value for key, value in found.chosen.settings.items()}
    return shlex.join([*words, *_settings(rest)])


def _settings(values: Mapping[str, object]) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key}={_text(value)}")]


def _text(value: object) -> str:
    """A value as `--set` reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{','.join(map(_text, value))}]"
    return str(value)
