"""All commands, with their help texts and examples."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie import __version__
from coterie.cli import keys
from coterie.cli.admissions import admit, revoke
from coterie.cli.clients import clients
from coterie.cli.compare import compare
from coterie.cli.error_handling import report_errors
from coterie.cli.estimate import estimate
from coterie.cli.export import export
from coterie.cli.figure import figure
from coterie.cli.flags import Command, Group
from coterie.cli.inspect import inspect
from coterie.cli.join import join, leave
from coterie.cli.listing import data, methods, models
from coterie.cli.place import place
from coterie.cli.pni import pni
from coterie.cli.predict import predict
from coterie.cli.ray import status as ray_status
from coterie.cli.recommend import recommend
from coterie.cli.report import report
from coterie.cli.reproduce import reproduce
from coterie.cli.run import resume, run
from coterie.cli.runs import runs
from coterie.cli.serve import serve
from coterie.cli.suggest_threshold import suggest_threshold
from coterie.cli.tune import tune
from coterie.cli.watch import watch


def _examples(*pairs: tuple[str, str]) -> str:
    shown = [f"[bold]{command}[/]\n  {what}" for command, what in pairs]
    return "\n\n".join(["Examples:", *shown])


app = typer.Typer(
    cls=Group,
    help="Clustered federated learning: find clusters of clients and train one model per cluster.",
    epilog=_examples(
        ("coterie compare", "demonstration: seven methods on 40 clients in four clusters, about half a minute"),
        ("coterie run --data digits --method ifca --clusters 4", "one run; its record goes to runs/digits-ifca-0"),
        ("coterie methods", "list the methods; `coterie methods ifca` shows one: paper, settings, traffic"),
        (
            "coterie run --data my-clients/ --method fedavg",
            "your own data: a folder with one .npz file per client, a .csv or a .parquet table",
        ),
    ),
    rich_markup_mode="rich",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(given: bool) -> None:
    if given:
        print(f"coterie {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


app.command(
    cls=Command,
    epilog=_examples(
        ("coterie run --method ifca --clusters 4", "on the embedded digits: 40 clients in four clusters"),
        (
            "coterie run --data blobs --lr 0.1 --batch-size 20 --epochs 5 --clients-per-round 8",
            "flags for common settings",
        ),
        ("coterie run --data blobs --set data.clients=8 --set local.momentum=0.9", "any setting by its name"),
        ("coterie run spec.toml --rounds 100 --seed 1", "a spec file, with two settings changed"),
        (
            "coterie run --set attack.name=sign-flip --set aggregation.rule=median",
            "malicious clients, and a robust aggregation rule",
        ),
        ("coterie run --method ifca --json | jq .accuracy.weighted", "in a script"),
    ),
)(report_errors(run))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie compare", "the demonstration"),
        ("coterie compare --methods fedavg,ifca --seeds 3 --jobs 2", "mean ± standard deviation, and paired tests"),
        ("coterie compare --methods fedavg,ifca,fedgroup --clusters 4 --lr 0.05", "settings for all methods"),
        ("coterie compare --set ifca.clusters=2", "a setting for one method"),
        ("coterie compare --seeds 5 --jobs 16 --jobs-on ray --set ray.address=auto", "on a Ray cluster"),
        (
            "coterie compare --data my.csv --methods fedavg,ifca --out records",
            "your own data; keep the records; again: continue",
        ),
    ),
)(report_errors(compare))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie recommend", "on the embedded digits: 40 clients in four clusters"),
        ("coterie recommend --data my.csv --budget medium", "your own data, more methods and seeds"),
        (
            "coterie recommend --data my-clients/ --budget 300 --out advice",
            "at most about five minutes; keep the result",
        ),
        ("coterie recommend --methods local,ifca --clusters 3 --set ifca.restarts=10", "methods of your choice"),
        ("coterie recommend --json | jq -r .command", "in a script"),
    ),
)(report_errors(recommend))
app.command(
    cls=Command,
    epilog=_examples(
        (
            "coterie reproduce",
            "list the tables and figures: what is compared, which data are at hand, how long it takes",
        ),
        ("coterie reproduce fedsim-table7 --quick", "scaled down, in less than two minutes"),
        ("coterie reproduce fedgroup-table3 --only MNIST-MCLR --seeds 5", "one row of a table, with more seeds"),
        ("coterie reproduce srfca-table1 srfca-table2 --jobs 16 --jobs-on ray --ray-address auto", "on a Ray cluster"),
        ("coterie reproduce fedsim-fig10 --json | jq '.entries[0].claims'", "in a script"),
    ),
)(report_errors(reproduce))
app.command(
    cls=Command,
    epilog=_examples(
        (
            "coterie tune --method ifca --over local.learning_rate=1e-3..1e-1:log method.clusters=2..8 --trials 30",
            "two settings at once; best.toml and the test are in runs/tune-digits-ifca",
        ),
        ("coterie tune spec.toml --over model.name=mclr,mlp --jobs 2", "choices instead of a range"),
        ("coterie run runs/tune-digits-ifca/best.toml --seed 101", "use the result"),
    ),
)(report_errors(tune))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie methods", "list all methods"),
        ("coterie methods ifca", "paper, equations, settings, traffic, what the server sees"),
        ("coterie methods ifca --set method.clusters=8", "traffic with other settings"),
        ("coterie methods fedprox --json | jq .settings", "in a script"),
    ),
)(report_errors(methods))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie data", "list all data sets"),
        ("coterie data digits", "source, partition, settings and size of one"),
        ("coterie data my-clients/", "check that your own data can be read"),
        ("coterie data blobs --json | jq .holds", "in a script"),
    ),
)(report_errors(data))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie models", "list all models"),
        ("coterie models mlp", "settings of one"),
        ("coterie run --model mlp --set model.widths=[64,32]", "use one"),
    ),
)(report_errors(models))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie resume runs/digits-ifca-0", "continue from the last checkpoint"),
        ("coterie resume runs/digits-ifca-0 --json", "print the results as JSON"),
        ("coterie run --set run.checkpoint_every=1", "a run that loses at most one round if it is killed"),
    ),
)(report_errors(resume))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie runs", "all records in the folder runs and its subfolders"),
        ("coterie runs --method ifca --where 'accuracy>0.9' --sort accuracy", "the best runs of one method"),
        ("coterie runs old --status unfinished,failed --delete", "delete unfinished and failed runs, after a question"),
        ("coterie runs --to-csv runs.csv", "for a spreadsheet; --json for a script"),
    ),
)(report_errors(runs))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie figure records -o curves.pdf", "accuracy over rounds of all methods of compare --out records"),
        ("coterie figure records --kind fairness --width two -o clients.svg", "scores of clients, two columns wide"),
        ("coterie figure records --metric primary,train_loss,discrepancy", "three rows of panels: curves.pdf"),
        ("coterie figure runs/digits-fedgroup-0 --kind map --label fedgroup=FedGroup", "clients in two dimensions"),
        ("coterie figure records --kind communication --json | jq .panels", "what was drawn, in a script"),
    ),
)(report_errors(figure))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie report runs/digits-ifca-0", "a page about one run, digits-ifca-0.html"),
        ("coterie report records -o comparison.html --open", "all runs in a folder side by side, in a browser"),
        ("coterie report 'runs/digits-*' --reference ifca", "a pattern; the others are tested against ifca"),
        ("coterie report runs/digits-ifca-0 --json | jq '.runs[0].clients'", "in a script"),
    ),
)(report_errors(report))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie watch runs/digits-ifca-0", "the live page of one run"),
        ("coterie watch", "the runs in the folder runs, with their progress"),
        ("coterie run --method ifca --rounds 500 --watch", "start a run together with its page"),
        ("coterie watch runs --port 8765", "on a server; on your machine: ssh -N -L 8765:localhost:8765 SERVER"),
    ),
)(report_errors(watch))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie export runs/digits-ifca-0", "all models: digits-ifca-0.safetensors and digits-ifca-0.json"),
        ("coterie export runs/digits-ifca-0 --cluster 2 -o two.safetensors", "the model of one cluster"),
        ("coterie export runs/digits-ifca-0 --client 07 -o 07.onnx", "the model of one client, for onnxruntime"),
        ("coterie export runs/digits-ifca-0 --format torch", "all models as a state dict: digits-ifca-0.pt"),
    ),
)(report_errors(export))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie predict runs/hospitals-ifca-0 --data new.csv -o out.csv", "a column client chooses each model"),
        ("coterie predict runs/hospitals-ifca-0 --data new.csv --client ward-a --proba", "one model, probabilities"),
        ("coterie predict runs/hospitals-ifca-0 --data new.npz --cluster 2 --json | jq .accuracy", "in a script"),
    ),
)(report_errors(predict))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie place runs/hospitals-ifca-0 --data newcomer.csv", "the cluster of a new client, and how sure it is"),
        ("coterie place runs/hospitals-ifca-0 --data all.csv --client ward-z", "one client of a table"),
        ("coterie place runs/hospitals-ifca-0 --data newcomer.npz --json | jq .cluster", "in a script"),
    ),
)(report_errors(place))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie inspect runs/digits-ifca-0", "all clients: cluster, since when, score, and why"),
        ("coterie inspect runs/digits-ifca-0 --client 07", "one client, with the values of all clusters"),
        ("coterie inspect runs/digits-ifca-0 --csv > clients.csv", "for a spreadsheet"),
    ),
)(report_errors(inspect))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie estimate --method ifca --clusters 8 --rounds 1000", "before a long run"),
        ("coterie estimate --data synthetic --set data.clients=1000", "the cost of more clients"),
        ("coterie estimate spec.toml --json | jq .seconds.total", "in a script"),
    ),
)(report_errors(estimate))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie pni digits", "clients with rotated digits"),
        ("coterie pni digits --set data.partition=iid", "IID clients, for reference"),
        ("coterie pni synthetic --set data.beta=1", "a larger beta gives more heterogeneous inputs"),
        ("coterie pni my-clients/ --json | jq .scaled.mean", "your own data, in a script"),
    ),
)(report_errors(pni))
app.command(
    "suggest-threshold",
    cls=Command,
    epilog=_examples(
        ("coterie suggest-threshold", "on the embedded digits: 40 clients in four clusters"),
        ("coterie suggest-threshold --data my-clients/ --model mlp --lr 0.1", "with the settings of the later run"),
        ("coterie suggest-threshold --set method.distance=l2 --set method.init_steps=500", "another distance"),
        ("coterie suggest-threshold --json | jq .threshold", "in a script"),
    ),
)(report_errors(suggest_threshold))


ray_app = typer.Typer(
    cls=Group,
    help="Simulations on the machines of a Ray cluster (run.backend = 'ray').",
    epilog=_examples(
        ("coterie ray status", "the machines of the cluster, and whether they can take part"),
        ("coterie run --set run.backend=ray --set ray.address=auto", "one run, with its clients on all machines"),
        ("coterie compare --jobs 8 --jobs-on ray --set ray.address=auto", "several runs, each on one machine"),
    ),
    rich_markup_mode="rich",
    invoke_without_command=True,
)


@ray_app.callback()
def _ray(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


ray_app.command(
    "status",
    cls=Command,
    epilog=_examples(
        ("coterie ray status", "the cluster that this machine belongs to"),
        ("coterie ray status --address ray://head:10001", "another one"),
        ("coterie ray status --json | jq '[.nodes[].cores] | add'", "in a script"),
    ),
)(report_errors(ray_status))
app.add_typer(ray_app, name="ray")


# ----------------------------------------------------------------------------------------------------- on real machines

keys_app = typer.Typer(
    cls=Group,
    help="Create certificates for a server and key pairs for clients on other machines.",
    epilog=_examples(
        ("coterie keys init --host fl.example.org", "on the server, once: a CA and the server's certificate"),
        ("coterie keys client hospital-a", "on each client: a key pair; the server gets hospital-a.pub"),
        ("coterie admit hospital-a.pub", "on the server: let this client join"),
    ),
    rich_markup_mode="rich",
    invoke_without_command=True,
)


@keys_app.callback()
def _keys(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


keys_app.command(
    cls=Command,
    epilog=_examples(
        ("coterie keys init --host fl.example.org", "clients connect to fl.example.org"),
        ("coterie keys init --host fl.example.org --host 192.0.2.7", "or to an IP address"),
        ("coterie keys init --host localhost --folder trial", "another folder, to try it on one machine"),
    ),
)(report_errors(keys.init))
keys_app.command(
    cls=Command,
    epilog=_examples(
        ("coterie keys client hospital-a", "hospital-a.key, which stays, and hospital-a.pub, which the server needs"),
        ("coterie keys client hospital-a --folder ~/.coterie", "in another folder"),
        ("coterie keys client hospital-a --json | jq -r .fingerprint", "in a script"),
    ),
)(report_errors(keys.client))
keys_app.command(
    cls=Command,
    epilog=_examples(
        ("coterie keys renew", "before the year is over; the same hosts"),
        ("coterie keys renew --host fl.example.org --host fl2.example.org", "other hosts"),
        ("coterie keys renew --json | jq -r .expires", "in a script"),
    ),
)(report_errors(keys.renew))
app.add_typer(keys_app, name="keys")
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie admit hospital-a.pub", "the client is named as in its key"),
        ("coterie admit id.pub --name hospital-b", "another name"),
        ("coterie admit hospital-a.pub --cluster 2", "its true cluster is known"),
        ("coterie admit hospital-a.pub --again", "after it was revoked"),
    ),
)(report_errors(admit))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie revoke hospital-a", "by its name"),
        ("coterie revoke hospital-a.pub", "by its key"),
        ("coterie revoke SHA256:Jx8nqQ0c", "by the fingerprint that `coterie clients` shows"),
    ),
)(report_errors(revoke))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie clients", "who may join, who is present"),
        ("watch coterie clients", "again every two seconds"),
        ("coterie clients --json | jq '.clients[] | select(.state == \"away\") | .client'", "in a script"),
    ),
)(report_errors(clients))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie serve spec.toml --clients 4", "wait for four clients, then run"),
        ("coterie serve --method flexcfl --rounds 50 --clients 4 --port 9443", "without a spec file"),
        ("coterie serve --resume runs/federation-flexcfl-0", "continue after Ctrl-C or a crash"),
    ),
)(report_errors(serve))
app.command(
    cls=Command,
    epilog=_examples(
        (
            "coterie join --server fl.example.org:9443 --key hospital-a.key --data hospital-a.npz --dry-run",
            "check everything, and show what the client would reveal",
        ),
        ("coterie join --server fl.example.org:9443 --key hospital-a.key --data hospital-a.npz", "take part"),
        (
            "coterie join --server fl.example.org:9443 --key hospital-a.key --data hospital-a.npz --yes --once",
            "in a script: agree, and end when the model has arrived",
        ),
    ),
)(report_errors(join))
app.command(
    cls=Command,
    epilog=_examples(
        ("coterie leave hospital-a-client", "withdraw"),
        ("coterie leave hospital-a-client --forget", "and delete what was stored for runs"),
        ("rm hospital-a-client/left && coterie join …", "take part again"),
    ),
)(report_errors(leave))
