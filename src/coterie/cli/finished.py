"""How a run ends: its figures, or the command that goes on with it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.cli.screen import document, duration, facts, number, percent, result, size

if TYPE_CHECKING:
    from coterie.runs.record import RunRecord


@contextmanager
def interrupted(folder: Path) -> Iterator[None]:
    """Say, when Ctrl-C ends a run, how to go on with it."""
    try:
        yield
    except KeyboardInterrupt:
        if (folder / "checkpoint").is_dir():
            go_on = shlex.join(["coterie", "resume", str(folder)])
            raise KeyboardInterrupt(f"There is a checkpoint. Go on with: {go_on}") from None
        raise KeyboardInterrupt("The run had not begun; there is nothing to go on with.") from None


def finished(record: RunRecord, *, as_json: bool) -> None:
    """The figures of a run, and where its record is."""
    summary = record.summary
    if as_json:
        document({**summary, "path": str(record.path)})
        return
    title = "{method} on {data} with {model}, seed {seed}: {rounds} rounds, {clients} clients".format_map(summary)
    result(title, "", _figures(summary), "", f"Record: {record.path}")


def _figures(summary: Mapping[str, Any]) -> Any:
    shown = facts()
    accuracy, clusters, truth = summary["accuracy"], summary["clusters"], summary["truth"]
    if accuracy:
        more = {"mean of clients": "mean", "worst tenth": "worst_tenth", "best round": "weighted_best"}
        rest = ", ".join(f"{name} {percent(accuracy[key])} %" for name, key in more.items())
        shown.add_row("accuracy", f"{percent(accuracy['weighted'])} % ({rest})")
    ends = [(part["phase"], part["accuracy"]) for part in summary["phases"] if part["accuracy"]]
    if ends:
        shown.add_row("after", ", ".join(f"{label} {percent(reached['mean'])} %" for label, reached in ends))
    shown.add_row("test loss", number(summary["test_loss"], "4g"))
    if clusters and clusters["adapted"]:
        shown.add_row("clusters", "none: every client has a model of its own")
    elif clusters:
        known = f"; adjusted Rand {truth['adjusted_rand']:.2f} with the true ones" if truth else ""
        shown.add_row("clusters", f"{clusters['count']}, of {', '.join(map(str, clusters['sizes']))} clients{known}")
    if summary["coverage"] not in (None, 1.0):
        shown.add_row("coverage", f"{percent(summary['coverage'])} % of the clients have a model")
    if attackers := summary.get("attackers"):
        shown.add_row("attackers", f"{attackers} of {summary['clients']} clients")
    if summary["drift"]:
        for name, text in _drift(summary["drift"]).items():
            shown.add_row(name, text)
    traffic, seconds = summary["traffic"], summary["seconds"]
    shown.add_row("traffic", f"{size(traffic['down_bytes'])} down, {size(traffic['up_bytes'])} up")
    parts = ", ".join(f"{name} {duration(seconds[name])}" for name in ("training", "evaluation", "compile"))
    shown.add_row("time", f"{duration(seconds['total'])} ({parts})")
    if refused := summary["rejected_replies"]:
        shown.add_row("refused replies", ", ".join(f"{count} {reason}" for reason, count in refused.items()))
    for key, text in (("skipped_rounds", "skipped rounds"), ("clients_without_examples", "clients without examples")):
        if summary[key]:
            shown.add_row(text, str(summary[key]))
    return shown


def _drift(drift: Mapping[str, Any]) -> dict[str, str]:
    """What the method made of the clients' shifts."""
    delay = "" if drift["delay"] is None else f", {drift['delay']:.1f} rounds later on average"
    alarms = drift["false_alarms"]
    lines = {
        "drift": f"{drift['detected']} of {drift['shifts']} shifts noticed{delay}; "
        f"{alarms} false alarm{'' if alarms == 1 else 's'}"
    }
    if drift["true_cluster_changes"]:
        lines["drift"] += (
            f"; of {drift['true_cluster_changes']} to another true cluster, {drift['true_cluster_changes_detected']}"
        )
    judged = (
        ""
        if drift["migrations_correct"] is None
        else f", {drift['migrations_correct']} right, {drift['migrations_wrong']} wrong"
    )
    return lines | {"migrations": f"{drift['migrations']}{judged}"}
