"""coterie pni: how unlike the clients' examples are, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from coterie.cli import flags
from coterie.cli.progress import Ticker
from coterie.cli.screen import document, facts, number, result


def pni(
    data: flags.DataHere,
    model: flags.Model = None,
    draws: Annotated[int, typer.Option(metavar="N", help="Random models to average over; the paper takes 100.")] = 100,
    seed: flags.Seed = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            show_default=False,
            help="Any setting of data, model; may be repeated.",
        ),
    ] = None,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Say how unlike the clients' examples are: FedSim's non-IID index, PNI.

    All clients are given the same random models. Each says how far their
    answers are from its labels, as one number (RMSE on the numbers of the
    classes), and nothing else. PNI is how far apart these numbers are: 0 where
    random models err alike on all clients, the more the less alike their
    examples are. Nothing is trained.

    It has no unit. It depends on how the classes are numbered and on the
    model, and grows with the number of clients: compare the scaled value, and
    only data with the same classes. Small clients differ by chance; the same
    data dealt out alike (partition iid) show by how much. Of kinds on which
    random models err alike, such as turned images, it sees little: a low PNI
    does not say that one model is enough for all.
    """
    with Ticker(silent=quiet, waiting="loading data, compiling") as ticker:
        from coterie.runs.pni import pni as measure
        from coterie.runs.spec import Spec

        made = flags.changed(Spec(), {"data.name": data, "model.name": model, "run.seed": seed}, settings)
        ticker.expect(draws)
        found = measure(made, draws=draws, on_draw=lambda count: ticker.done(count, f"{count} random models"))
    if as_json:
        document(found)
        return
    title = "{data} with {model}, seed {seed}: {clients} clients, {draws} random models".format_map(found)
    result(title, "", _figures(found), "", _reading(found))


def _figures(found: Mapping[str, Any]) -> Any:
    shown = facts()
    shown.add_row("PNI", number(found["pni"]["mean"], "4g", found["pni"]["deviation"]))
    shown.add_row(
        "scaled", f"{number(found['scaled']['mean'], '4g', found['scaled']['deviation'])} (PNI / √(clients - 1))"
    )
    rmse = found["rmse"]
    ends = [f"{rmse[end]['rmse']:.4g} (client {rmse[end]['client']})" for end in ("lowest", "highest")]
    shown.add_row("errors", f"{rmse['mean']:.4g} on average, from {ends[0]} to {ends[1]}")
    return shown


def _reading(found: Mapping[str, Any]) -> str:
    if not found["pni"]["mean"]:
        return "Random models err alike on all clients."
    share = found["scaled"]["mean"] / found["rmse"]["mean"] if found["rmse"]["mean"] else 0.0
    return (
        f"Two clients differ by about {100 * share:.0f} % of the average error. "
        "Compare the scaled value with that of other data of the same classes."
    )
