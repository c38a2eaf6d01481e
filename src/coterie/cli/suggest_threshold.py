"""coterie suggest-threshold: suggest a threshold λ for SR-FCA and ONE_SHOT-IFCA from distances between clients."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.cli import flags
from coterie.cli.output import cluster_sizes, document, facts, plural, result, table
from coterie.cli.progress import ProgressDisplay

if TYPE_CHECKING:
    from rich.table import Table

#: Length of the longest bar of the histogram, in characters.
_WIDTH = 40


def suggest_threshold(
    spec: flags.SpecFile = None,
    data: flags.Data = None,
    model: flags.Model = None,
    epochs: flags.Epochs = None,
    batch_size: flags.BatchSize = None,
    learning_rate: flags.LearningRate = None,
    seed: flags.Seed = None,
    settings: flags.Settings = None,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Suggest a threshold for srfca from the distances between clients.

    Every client trains alone, and the distances between all pairs are shown as
    a histogram. Two clients are in the same cluster if a chain of clients
    connects them in which neighbors are no farther apart than the threshold.
    Clients also measure a noise floor: the distance that a client has from
    itself, with other examples. The suggestion lies below the first distance at
    which two clusters merge that differ by more than this floor. Its scale
    depends on data, model and local training, so use the settings of the later
    run.

    If there are clear clusters, the histogram has two peaks, pairs within and
    pairs across clusters, with a gap between them. A single peak means that
    there are no clusters, or that clients have trained too little to show them
    (method.init_steps, local.learning_rate).
    """
    with ProgressDisplay(silent=quiet) as progress:
        from coterie.runs.threshold import DEFAULT_METHOD, starts_with_one_shot, suggest

        method = None if starts_with_one_shot(flags.base_spec(spec)) else DEFAULT_METHOD
        given = flags.values(
            data=data,
            method=method,
            model=model,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            seed=seed,
        )
        found = suggest(flags.make_spec(spec, given, settings), progress.describe)
    if as_json:
        document(found)
        return
    kind = {"cross": "loss of each client's model on the other's examples", "l2": "l2 distance of the models"}
    pairs, name = found["distances"]["pairs"], found["spec"]["data"]["name"]
    title = f"{found['clients']} clients of {name}, {plural(pairs, 'pair')}. Distance: {kind[found['distance']]}."
    flag_values = {
        "--data": data,
        "--model": model,
        "--epochs": epochs,
        "--batch-size": batch_size,
        "--learning-rate": learning_rate,
        "--seed": seed,
    }
    command = _run_command(spec, flag_values, settings, found)
    result(title, _histogram(found), _suggestion(found), "", f"Run it: {command}")


def _histogram(found: Mapping[str, Any]) -> Table:
    longest = max(bar["pairs"] for bar in found["histogram"])
    shown = table("distance", "pairs", "", left=1)
    shown.columns[2].justify = "left"
    for bar in found["histogram"]:
        length = -(-_WIDTH * bar["pairs"] // longest)  # rounded up, so that a single pair is visible
        mark = "  ← threshold" if bar["from"] <= found["threshold"] < bar["to"] else ""
        shown.add_row(f"{bar['from']:.3g} – {bar['to']:.3g}", f"{bar['pairs']:,}", "█" * length + mark)
    return shown


def _suggestion(found: Mapping[str, Any]) -> Table:
    gap, sizes, truth = found["gap"], [len(members) for members in found["clusters"]], found["truth"]
    shown = facts()
    shown.add_row(
        "threshold",
        f"{found['threshold']}, in a gap between merge distances: {gap['low']:.4g} to {gap['high']:.4g}",
    )
    if found["noise_floor"] is not None:
        shown.add_row("noise floor", f"{found['noise_floor']:.4g}, the distance of a client from itself")
    index = f"; adjusted Rand index {truth['adjusted_rand']:.2f} against the true clusters" if truth else ""
    shown.add_row("clusters", f"{cluster_sizes(sizes)}{index}")
    if found["unassigned"]:
        shown.add_row(
            "unassigned", f"{plural(len(found['unassigned']), 'client')}; REFINE moves them to the nearest cluster"
        )
    return shown


def _run_command(
    spec: Path | None,
    flag_values: Mapping[str, str | float | None],
    settings: Sequence[str] | None,
    found: Mapping[str, Any],
) -> str:
    """The command that runs the method with the suggested threshold."""
    given = [str(spec)] if spec else []
    for flag, value in flag_values.items():
        given += [flag, str(value)] if value is not None else []
    kept = [text for text in settings or () if not text.startswith(("method.threshold", "method.name"))]
    sets = [part for text in [*kept, f"method.threshold={found['threshold']}"] for part in ("--set", text)]
    return shlex.join(["coterie", "run", *given, "--method", found["method"], *sets])
