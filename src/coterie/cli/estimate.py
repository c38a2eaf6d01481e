"""coterie estimate: predict the cost of a run from a few rounds."""

from __future__ import annotations

from coterie.cli import flags
from coterie.cli.output import document, duration, facts, plural, result, size
from coterie.cli.progress import ProgressDisplay


def estimate(
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
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Predict the time, traffic and memory of a run by running a few of its rounds."""
    with ProgressDisplay(silent=quiet, waiting="loading data, compiling, running a few rounds"):
        from coterie.runs.estimate import estimate as estimate_cost

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
        cost = estimate_cost(made)
    if as_json:
        document(cost)
        return
    seconds, traffic = cost["seconds"], cost["traffic"]
    once = {"setup": "set_up", "preparation": "preparing", "compilation": "compile"}
    parts = [f"{name} {duration(seconds[key])}" for name, key in once.items()]
    shown = facts()
    shown.add_row("time", f"{duration(seconds['total'])} (of which {', '.join(parts)})")
    shown.add_row("one round", f"{duration(seconds['round'])}, evaluation {duration(seconds['scoring'])}")
    shown.add_row("traffic", f"{size(traffic['down_bytes'])} down, {size(traffic['up_bytes'])} up")
    shown.add_row("memory", "unknown" if cost["peak_rss_bytes"] is None else size(cost["peak_rss_bytes"]))
    shown.add_row("model", f"{cost['parameters']:,} parameters, {size(cost['model_bytes'])}")
    title = f"{made.method.name} on {made.data.name}: "
    title += f"{plural(cost['rounds'], 'round')}, {plural(cost['clients'], 'client')}"
    result(title, "", shown, "", f"Extrapolated from {plural(cost['tried_rounds'], 'round')}.")
