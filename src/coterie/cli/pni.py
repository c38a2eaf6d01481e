"""coterie pni: measure how different the clients' data are, before training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import flags
from coterie.cli.output import document, facts, number, plural, result
from coterie.cli.progress import ProgressDisplay

if TYPE_CHECKING:
    from rich.table import Table


def pni(
    data: flags.RequiredData,
    model: flags.Model = None,
    draws: Annotated[
        int, typer.Option(metavar="N", help="Number of random models to average over; the paper uses 100.")
    ] = 100,
    seed: flags.Seed = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            show_default=False,
            help="Any setting of data and model; repeatable.",
        ),
    ] = None,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Measure how different the clients' data are: the non-IID index PNI of FedSim.

    Every client evaluates the same random models on its training examples
    and reports one number per model, the RMSE of the predicted class numbers.
    PNI measures how much these numbers differ between clients: 0 if they are
    equal, larger for more heterogeneous data. Nothing is trained.

    PNI has no unit. It depends on the numbering of the classes and on the
    model, and it grows with the number of clients. Compare only the scaled
    value, and only between data sets with the same classes. Small clients
    differ by chance; an IID partition of the same data shows by how much.
    PNI misses clusters on which random models make equally large errors, such
    as rotated images: a low PNI does not mean that one model is enough.
    """
    with ProgressDisplay(silent=quiet) as progress:
        from coterie.runs.pni import pni as measure

        made = flags.make_spec(None, flags.values(data=data, model=model, seed=seed), settings)
        progress.expect(draws)
        found = measure(made, draws=draws, on_draw=lambda count: progress.done(count, f"{count} random models"))
    if as_json:
        document(found)
        return
    title = "{data} with {model}, seed {seed}".format_map(found)
    title += f": {plural(found['clients'], 'client')}, {plural(found['draws'], 'random model')}"
    result(title, "", _figures(found), "", _interpretation(found))


def _figures(found: Mapping[str, Any]) -> Table:
    shown = facts()
    shown.add_row("PNI", number(found["pni"]["mean"], "4g", found["pni"]["deviation"]))
    shown.add_row(
        "scaled", f"{number(found['scaled']['mean'], '4g', found['scaled']['deviation'])} (PNI / √(clients - 1))"
    )
    rmse = found["rmse"]
    ends = [f"{rmse[end]['rmse']:.4g} (client {rmse[end]['client']})" for end in ("lowest", "highest")]
    shown.add_row("RMSE", f"{rmse['mean']:.4g} on average, from {ends[0]} to {ends[1]}")
    return shown


def _interpretation(found: Mapping[str, Any]) -> str:
    if not found["pni"]["mean"]:
        return "The random models have the same error on all clients."
    ratio = found["scaled"]["mean"] / found["rmse"]["mean"] if found["rmse"]["mean"] else 0.0
    return (
        f"Two clients differ by about {100 * ratio:.0f} % of the average RMSE. "
        "Compare the scaled value with that of other data sets with the same classes."
    )
