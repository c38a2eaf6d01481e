"""Every command under its name."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie import __version__
from coterie.cli.compare import compare
from coterie.cli.data import data
from coterie.cli.estimate import estimate
from coterie.cli.export import export
from coterie.cli.flags import Command
from coterie.cli.guard import guarded
from coterie.cli.methods import methods
from coterie.cli.models import models
from coterie.cli.pni import pni
from coterie.cli.resume import resume
from coterie.cli.run import run
from coterie.cli.suggest_threshold import suggest_threshold

_EPILOG = """Examples:

[bold]coterie compare[/]
  the demonstration: clients of four kinds, seven methods, about half a minute

[bold]coterie run --data digits --method ifca --set method.clusters=4[/]
  one run; its record goes to runs/digits-ifca-0

[bold]coterie methods ifca[/]
  what a method does, its settings and its paper

[bold]coterie run --data my-clients/ --method fedavg[/]
  data of your own: a folder with one .npz file a client, a .csv or a .parquet table"""

app = typer.Typer(
    help="Clustered federated learning: clients fall into kinds, and each gets the model of its kind.",
    epilog=_EPILOG,
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"coterie {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    pass


def _examples(*pairs: tuple[str, str]) -> str:
    shown = [f"[bold]{command}[/]\n  {what}" for command, what in pairs]
    return "\n\n".join(["Examples:", *shown])


app.command(
    epilog=_examples(
        ("coterie run --method ifca", "the embedded digits, clients of four kinds"),
        ("coterie run spec.toml --rounds 100 --seed 1", "a spec from a file, with two things changed"),
        ("coterie run --data blobs --set data.clients=8 --set local.learning_rate=0.1", "any setting by its name"),
        (
            "coterie run --set attack.name=sign-flip --set aggregation.rule=median",
            "clients that lie, and a rule that withstands",
        ),
        ("coterie run --method ifca --json | jq .accuracy.weighted", "for scripts: one JSON document"),
    ),
    cls=Command,
)(guarded(run))
app.command(
    epilog=_examples(
        ("coterie compare", "the demonstration"),
        ("coterie compare --methods fedavg,ifca --seeds 3 --jobs 2", "mean ± deviation and paired tests"),
        (
            "coterie compare --set ifca.clusters=2 --set local.learning_rate=0.05",
            "a setting of one method, and one of all",
        ),
        ("coterie compare --data my.csv --methods fedavg,ifca --out both", "your own data, and keep the records"),
    ),
    cls=Command,
)(guarded(compare))
app.command(
    epilog=_examples(
        ("coterie methods", "all of them, a line each"),
        ("coterie methods ifca", "what it does, its paper, its settings"),
        ("coterie methods fedprox --json | jq .settings", "for scripts"),
    )
)(guarded(methods))
app.command(
    epilog=_examples(
        ("coterie data", "what can be loaded by name"),
        ("coterie data digits", "how it is dealt out among clients, and the settings for that"),
        ("coterie data my-clients/", "whether data of your own can be read, and what they hold"),
        ("coterie data blobs --json | jq .holds", "for scripts"),
    )
)(guarded(data))
app.command(
    epilog=_examples(
        ("coterie models", "all of them, a line each"),
        ("coterie models mlp", "its settings"),
        ("coterie run --model mlp --set model.widths=[64,32]", "use one"),
    )
)(guarded(models))
app.command(
    epilog=_examples(
        ("coterie resume runs/digits-ifca-0", "go on from the last checkpoint"),
        ("coterie resume runs/digits-ifca-0 --json", "and print the figures in the end as JSON"),
        ("coterie run --set run.checkpoint_every=1", "a run that loses at most one round when it is killed"),
    )
)(guarded(resume))
app.command(
    epilog=_examples(
        ("coterie export runs/digits-ifca-0", "all models: digits-ifca-0.safetensors, and .json beside it"),
        ("coterie export runs/digits-ifca-0 --cluster 2 -o two.safetensors", "the model of one cluster"),
        ("coterie export runs/digits-ifca-0 --client 07", "the model that one client is served"),
    )
)(guarded(export))
app.command(
    epilog=_examples(
        ("coterie estimate --method ifca --rounds 1000", "before a long run"),
        ("coterie estimate spec.toml --json | jq .seconds.total", "for scripts"),
        ("coterie estimate --data synthetic --set data.clients=1000", "what more clients cost"),
    ),
    cls=Command,
)(guarded(estimate))
app.command(
    epilog=_examples(
        ("coterie pni digits", "clients whose digits are turned in four ways"),
        ("coterie pni digits --set data.partition=iid", "the same digits dealt out alike: what is left is chance"),
        ("coterie pni synthetic --set data.beta=1", "the larger beta, the less alike the clients' inputs"),
        ("coterie pni my-clients/ --json | jq .scaled.mean", "your own data, for scripts"),
    )
)(guarded(pni))
app.command(
    "suggest-threshold",
    epilog=_examples(
        ("coterie suggest-threshold", "the embedded digits, clients of four kinds"),
        (
            "coterie suggest-threshold --data my-clients/ --model mlp --set local.learning_rate=0.1",
            "as you will run it",
        ),
        ("coterie suggest-threshold --set method.distance=l2 --set method.init_steps=500", "other distances"),
        ("coterie suggest-threshold --json | jq .threshold", "for scripts"),
    ),
    cls=Command,
)(guarded(suggest_threshold))
