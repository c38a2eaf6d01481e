"""coterie run: run one method; coterie resume: continue an interrupted run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.cli import flags, signals
from coterie.cli.output import cluster_sizes, document, duration, facts, number, percent, plural, result, size
from coterie.cli.progress import ProgressDisplay
from coterie.cli.report import next_step, write_report

if TYPE_CHECKING:
    from rich.table import Table

    from coterie.runs.record import RunRecord
    from coterie.runs.spec import Spec


def run(
    spec: flags.SpecFile = None,
    data: flags.Data = None,
    method: flags.Method = None,
    model: flags.Model = None,
    clusters: flags.Clusters = None,
    rounds: flags.Rounds = None,
    clients_per_round: flags.ClientsPerRound = None,
    epochs: flags.Epochs = None,
    batch_size: flags.BatchSize = None,
    learning_rate: flags.LearningRate = None,
    seed: flags.Seed = None,
    settings: flags.Settings = None,
    out: flags.RecordFolder = None,
    report: flags.Report = False,
    watch: flags.Watch = False,
    track: flags.Track = None,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Run one method and record the results."""
    with ProgressDisplay(silent=quiet) as progress:
        from coterie.runs import loop

        given = flags.values(
            data=data,
            method=method,
            model=model,
            rounds=rounds,
            clients_per_round=clients_per_round,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            seed=seed,
        )
        made = flags.make_spec(spec, given, settings, clusters)
        observers = flags.trackers(track)
        folder = out or new_folder(made)
        progress.expect(made.run.rounds)
        with _resume_hint(folder), _watched(folder, watch, quiet=quiet):
            record = loop.run(made, out=folder, on_round=progress.step, observers=observers)
    print_result(record, as_json=as_json, report=report)


def resume(
    run: flags.Run,
    report: flags.Report = False,
    watch: flags.Watch = False,
    track: flags.Track = None,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Continue a run from its last checkpoint; for a finished run, print its results again."""
    with ProgressDisplay(silent=quiet) as progress:
        from coterie.runs import loop
        from coterie.runs.record import RunRecord
        from coterie.runs.spec import read_toml

        done = sum(1 for row in RunRecord.read(run).rounds if row.get("stage") == "train")
        # Not as a Spec: a method object has a name that no built-in method has, and resuming says what to do.
        rounds = read_toml(run / "spec.toml").get("run", {}).get("rounds", 1)
        progress.expect(max(1, rounds - done) if isinstance(rounds, int) else 1)
        observers = flags.trackers(track)
        with _resume_hint(run), _watched(run, watch, quiet=quiet):
            record = loop.resume(run, on_round=progress.step, observers=observers)
    print_result(record, as_json=as_json, report=report)


def _watched(folder: Path, watch: bool, *, quiet: bool) -> AbstractContextManager[None]:
    """With `--watch`, a context in which the page of the run is served."""
    if not watch:
        return nullcontext()
    from coterie.cli.watch import beside, require

    require()
    return beside(folder, quiet=quiet)


def new_folder(spec: Spec) -> Path:
    """runs/DATA-METHOD-SEED; if it exists, with a number appended."""
    data = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(spec.data.name).stem) or "data"
    first = Path("runs") / f"{data}-{spec.method.name}-{spec.run.seed}"
    others = (first.with_name(f"{first.name}-{n}") for n in count(2))
    return first if not first.exists() else next(folder for folder in others if not folder.exists())


@contextmanager
def _resume_hint(folder: Path) -> Iterator[None]:
    """On Ctrl-C, add the command that resumes the run to the message."""
    try:
        with signals.during("run"):
            yield
    except KeyboardInterrupt:
        if (folder / "checkpoint").is_dir():
            command = shlex.join(["coterie", "resume", str(folder)])
            raise KeyboardInterrupt(f"A checkpoint was saved. Continue with: {command}") from None
        raise KeyboardInterrupt("The run had not started; nothing was saved.") from None


def print_result(record: RunRecord, *, as_json: bool, report: bool = False) -> None:
    """Print the results of a run, and write a page about it if `report` is set."""
    summary = record.summary
    assert record.path is not None
    page = write_report(record.path) if report else None
    if as_json:
        document({**summary, "path": str(record.path), **({} if page is None else {"page": str(page)})})
        return
    title = "{method} on {data} with {model}, seed {seed}".format_map(summary)
    title += f": {plural(summary['rounds'], 'round')}, {plural(summary['clients'], 'client')}"
    shown = next_step(record.path) if page is None else f"Page: {page}"
    result(title, "", _figures(summary), "", f"Record: {record.path}", shown)


def _figures(summary: Mapping[str, Any]) -> Table:
    shown = facts()
    accuracy, clusters, truth = summary["accuracy"], summary["clusters"], summary["truth"]
    if accuracy:
        rest = f"mean over clients {percent(accuracy['mean'])} %, worst 10 % {percent(accuracy['worst_tenth'])} %"
        shown.add_row("accuracy", f"{percent(accuracy['weighted'])} %{_at(summary['coverage'])} ({rest})")
        window = "the last ten rounds" if summary["rounds"] >= 10 else "all rounds"
        mean = f"mean of {window} {percent(accuracy['weighted_last_ten'])} %{_at(accuracy['last_ten_coverage'])}"
        best = f"best round {percent(accuracy['weighted_best'])} %{_at(accuracy['weighted_best_coverage'])}"
        shown.add_row("over rounds", f"{mean}, {best}")
    phases = [(phase["phase"], phase["accuracy"]) for phase in summary["phases"] if phase["accuracy"]]
    if phases:
        shown.add_row("by phase", ", ".join(f"{name} {percent(reached['mean'])} %" for name, reached in phases))
    shown.add_row("test loss", number(summary["test_loss"], "4g"))
    for name, entry in (summary.get("metrics") or {}).items():
        if name not in ("accuracy", "loss"):
            rest = f"mean over clients {number(entry['mean'], '4g')}, worst 10 % {number(entry['worst_tenth'], '4g')}"
            rest += ", mean of the values of clients" if entry["how"] == "client mean" else ""
            shown.add_row(name, f"{number(entry['value'], '4g')} ({rest})")
    if chosen := summary.get("best_round"):
        reached = f"{chosen['metric']} {number(chosen['test'], '4g')} on test examples"
        stopped = f"; stopped early, after round {summary['rounds']}" if summary.get("stopped_early") else ""
        served = "; its models are served" if chosen["served"] else "; the models of the last round are served"
        shown.add_row(
            "best round", f"round {chosen['t'] + 1}, chosen on validation examples: {reached}{stopped}{served}"
        )
    if clusters and clusters["adapted"]:
        shown.add_row("clusters", "none: every client has its own model")
    elif clusters:
        index = f"; adjusted Rand index {truth['adjusted_rand']:.2f} against the true clusters" if truth else ""
        shown.add_row("clusters", f"{cluster_sizes(clusters['sizes'])}{index}")
    if summary["coverage"] not in (None, 1.0):
        shown.add_row(
            "coverage",
            f"the method has assigned a model to {percent(summary['coverage'])} % of the clients; the others are "
            "scored with the fallback model",
        )
    if attackers := summary.get("attackers"):
        shown.add_row("attackers", f"{attackers} of {summary['clients']} clients")
    if summary["drift"]:
        for name, text in _drift(summary["drift"]).items():
            shown.add_row(name, text)
    if summary["privacy"]:
        from coterie.runs.privacy import in_words

        shown.add_row("privacy", in_words(summary["privacy"]))
    traffic, seconds = summary["traffic"], summary["seconds"]
    shown.add_row("traffic", f"{size(traffic['down_bytes'])} down, {size(traffic['up_bytes'])} up")
    times = {"training": "training", "evaluation": "evaluation", "compilation": "compile"}
    each = ", ".join(f"{name} {duration(seconds[key])}" for name, key in times.items())
    shown.add_row("time", f"{duration(seconds['total'])} ({each})")
    if rejected := summary["rejected_replies"]:
        shown.add_row("rejected replies", ", ".join(f"{n} {reason}" for reason, n in rejected.items()))
    numbers = {"lost_replies": "lost replies", "skipped_rounds": "skipped rounds"}
    for key, text in {**numbers, "clients_without_examples": "clients without examples"}.items():
        if summary.get(key):
            shown.add_row(text, str(summary[key]))
    return shown


def _at(coverage: float) -> str:
    """The coverage of an accuracy, if it is below 1."""
    return "" if coverage == 1.0 else f" at coverage {percent(coverage)} %"


def _drift(drift: Mapping[str, Any]) -> dict[str, str]:
    """Drift metrics as text."""
    delay = "" if drift["delay"] is None else f", after {drift['delay']:.1f} rounds on average"
    alarms = drift["false_alarms"]
    text = f"{drift['detected']} of {drift['shifts']} shifts detected{delay}"
    text += f"; {plural(alarms, 'false alarm')}"
    if drift["true_cluster_changes"]:
        changes = plural(drift["true_cluster_changes"], "change")
        text += f"; {drift['true_cluster_changes_detected']} of {changes} of the true cluster detected"
    checked = (
        ""
        if drift["migrations_correct"] is None
        else f", {drift['migrations_correct']} correct, {drift['migrations_wrong']} wrong"
    )
    return {"drift": text, "migrations": f"{drift['migrations']}{checked}"}
