"""coterie estimate: what a run will cost, before it is run."""

from __future__ import annotations

from coterie.cli import flags
from coterie.cli.progress import Ticker
from coterie.cli.screen import document, duration, facts, result, size


def estimate(
    spec: flags.SpecFile = None,
    data: flags.Data = None,
    method: flags.Method = None,
    model: flags.Model = None,
    rounds: flags.Rounds = None,
    clients_per_round: flags.ClientsPerRound = None,
    seed: flags.Seed = None,
    settings: flags.Settings = None,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Say what a run will take, from a few of its rounds: seconds, bytes, memory."""
    with Ticker(silent=quiet, waiting="loading data, compiling, trying a few rounds"):
        from coterie.runs.estimate import estimate as cost_of

        made = flags.spec_of(
            spec,
            data=data,
            method=method,
            model=model,
            rounds=rounds,
            clients_per_round=clients_per_round,
            seed=seed,
            settings=settings,
        )
        cost = cost_of(made)
    if as_json:
        document(cost)
        return
    seconds, traffic = cost["seconds"], cost["traffic"]
    shown = facts()
    parts = [f"{name.replace('_', ' ')} {duration(seconds[name])}" for name in ("set_up", "preparing", "compile")]
    each = f"a round {duration(seconds['round'])}, a scoring {duration(seconds['scoring'])}"
    shown.add_row("time", f"{duration(seconds['total'])} ({', '.join(parts)}; {each})")
    shown.add_row("traffic", f"{size(traffic['down_bytes'])} down, {size(traffic['up_bytes'])} up")
    shown.add_row("memory", size(cost["peak_rss_bytes"]))
    shown.add_row("model", f"{cost['parameters']:,} parameters, {size(cost['model_bytes'])}")
    title = f"{made.method.name} on {made.data.name}: {cost['rounds']} rounds, {cost['clients']} clients"
    result(title, "", shown, "", f"Measured on {cost['tried_rounds']} rounds.")
