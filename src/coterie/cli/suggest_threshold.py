"""coterie suggest-threshold: the λ of SR-FCA and ONE_SHOT-IFCA, from the distances of clients that train alone."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie.cli import flags
from coterie.cli.progress import Ticker
from coterie.cli.screen import document, facts, result, table

#: Columns of the longest bar.
_WIDTH = 40


def suggest_threshold(
    spec: flags.SpecFile = None,
    data: flags.Data = None,
    model: flags.Model = None,
    seed: flags.Seed = None,
    settings: flags.Settings = None,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Propose a threshold for srfca: how far apart clients are that train alone, and where the widest gap is.

    Two clients are in one cluster where a chain of clients joins them of whom each is no farther from the next than the
    threshold. Its scale depends on data, model and local training, so give the ones that you will run with. In a clear
    case the pairs within clusters and those across are two hills with a gap between them; in one hill there are no
    clusters to be found, or clients have trained too little (method.init_steps, local.learning_rate) to show them.
    """
    with Ticker(silent=quiet, waiting="loading data, compiling") as ticker:
        from coterie.runs.spec import Spec
        from coterie.runs.threshold import DEFAULT_METHOD, begins, suggest

        method = None if begins(Spec.of(spec)) else DEFAULT_METHOD
        none: dict[str, Any] = {"rounds": None, "clients_per_round": None}
        made = flags.spec_of(spec, data=data, method=method, model=model, seed=seed, settings=settings, **none)
        found = suggest(made, ticker.say)
    if as_json:
        document(found)
        return
    kind = {"cross": "losses of each one's model on the other's examples", "l2": "l2 distances of models"}
    spread, shown = found["distances"], found["spec"]
    title = (
        f"{found['clients']} clients of {shown['data']['name']}, {spread['pairs']:,} pairs: {kind[found['distance']]}"
    )
    result(
        title, _histogram(found), _proposal(found), "", f"Run it: {_command(spec, data, model, seed, settings, found)}"
    )


def _histogram(found: Mapping[str, Any]) -> Any:
    most = max(bar["pairs"] for bar in found["histogram"])
    shown = table("distance", "pairs", "", left=1)
    shown.columns[2].justify = "left"
    for bar in found["histogram"]:
        length = -(-_WIDTH * bar["pairs"] // most)  # a single pair is seen, too
        here = "  ← threshold" if bar["from"] <= found["threshold"] < bar["to"] else ""
        shown.add_row(f"{bar['from']:.3g} – {bar['to']:.3g}", f"{bar['pairs']:,}", "█" * length + here)
    return shown


def _proposal(found: Mapping[str, Any]) -> Any:
    gap, sizes, truth = found["gap"], [len(members) for members in found["clusters"]], found["truth"]
    shown = facts()
    shown.add_row("threshold", f"{found['threshold']}, in the gap from {gap['low']:.4g} to {gap['high']:.4g}")
    known = f"; adjusted Rand {truth['adjusted_rand']:.2f} with the true ones" if truth else ""
    shown.add_row("clusters", f"{len(sizes)}, of {', '.join(map(str, sizes))} clients{known}")
    if found["unassigned"]:
        shown.add_row(
            "without", f"{len(found['unassigned'])} clients, which join the nearest cluster when it is refined"
        )
    return shown


def _command(
    spec: Path | None,
    data: str | None,
    model: str | None,
    seed: int | None,
    settings: list[str] | None,
    found: Mapping[str, Any],
) -> str:
    """The command that runs the method with what is proposed."""
    given = [*([str(spec)] if spec else [])]
    for flag, value in (("--data", data), ("--model", model), ("--seed", seed)):
        given += [flag, str(value)] if value is not None else []
    kept = [each for each in settings or () if not each.startswith(("method.threshold", "method.name"))]
    sets = [part for each in [*kept, f"method.threshold={found['threshold']}"] for part in ("--set", each)]
    return shlex.join(["coterie", "run", *given, "--method", found["method"], *sets])
