"""The commands `methods`, `data` and `models`: a list of all entries, or a page about one, made from its docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from coterie.cli import flags
from coterie.cli.about import About, listing, own_settings, page, setting, shared_settings
from coterie.cli.output import document, result, table

#: Number of true clusters whose sizes are shown.
_SIZES_SHOWN = 10
#: What a run does with the columns of a table by default.
_SCALING = "a run standardizes the inputs: mean 0 and deviation 1 over the training examples (model.normalize = auto)"
_AUTO_MODEL = (
    "Default model (auto): mclr for classification, linear-regression for regression, char-lstm for character ids."
)


# ------------------------------------------------------------------------------------------------------------- commands


def methods(
    name: flags.MethodName = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="method.KEY=VALUE",
            show_default=False,
            help="Measure traffic and privacy with this setting instead of the defaults; repeatable.",
        ),
    ] = None,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """List the methods, or show one: paper, equations, settings, traffic, and what the server sees."""
    from coterie.errors import SpecError

    if name is None:
        from coterie.methods import descriptions

        if settings:
            raise SpecError("--set needs a method, such as: coterie methods ifca --set method.clusters=8")
        listing("method", descriptions(), as_json=as_json)
        return
    from coterie.cli.progress import ProgressDisplay
    from coterie.methods import documentation
    from coterie.runs.method_card import ROUNDS, measure_card, shipped_card

    text = documentation(name)
    options = _method_options(name, settings)
    found = shipped_card(name) if not options else None
    if found is None:
        waiting = f"measuring {name} on a small simulated federation ({ROUNDS} rounds)"
        with ProgressDisplay(silent=as_json, waiting=waiting):
            found = measure_card(name, options)
    about = About(
        "method", name, text, own_settings(name), shared_settings(), found.sentences(), dataclasses.asdict(found)
    )
    page(about, as_json=as_json, measured_with=", ".join(settings or ()))


def models(
    name: flags.ModelName = None,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """List the models, or show the settings of one."""
    from coterie.models.library import MODELS, builder
    from coterie.models.task import Task
    from coterie.runs.resolve import Scaling
    from coterie.runs.settings_help import NORMALIZE_HELP, doc_entries
    from coterie.runs.spec import model_defaults

    if name is None:
        listing("model", MODELS, as_json=as_json, more=_AUTO_MODEL)
        return
    if name == "auto":
        text = f"{_AUTO_MODEL}\nIts settings are those of the chosen model."
        page(About("model", name, text, ()), as_json=as_json)
        return
    defaults = model_defaults(name)
    made = builder(name)
    hints, descriptions = typing.get_type_hints(made), doc_entries(Task, "Attributes") | doc_entries(made, "Args")
    hints["normalize"] = Scaling
    descriptions["normalize"] = NORMALIZE_HELP
    settings = [
        setting(f"model.{key}", hints[key], default, descriptions.get(key, "")) for key, default in defaults.items()
    ]
    summary = (inspect.getdoc(made) or "").split("\n\n")[0]
    page(About("model", name, summary, settings), as_json=as_json)


def data(
    name: flags.DataName = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="data.KEY=VALUE",
            show_default=False,
            help="Load it with this setting, such as data.client=hospital for a table; repeatable.",
        ),
    ] = None,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """List the data sets, or show one, by name or path: its partition, settings and content."""
    from coterie.cli.progress import ProgressDisplay
    from coterie.data.loading import find_loader, loader_options
    from coterie.runs.settings_help import doc_entries

    if name is None:
        _data_list(as_json=as_json)
        return
    chosen = _data_options(name, settings)
    options = {key: value for key, value in loader_options(name).items() if key != "path"}
    loader, _ = find_loader(name)
    types, means = typing.get_type_hints(loader), doc_entries(loader, "Args")
    about = (inspect.getdoc(loader) or "").partition("\n\nArgs:")[0]
    text = "\n\n".join([inspect.cleandoc(sys.modules[loader.__module__].__doc__ or ""), about, *_data_facts(name)])
    rows = [setting(f"data.{key}", types[key], value, means.get(key, "")) for key, value in options.items()]
    with ProgressDisplay(silent=as_json, waiting=f"loading {name}"):
        holds = _data_content(name, chosen)
    page(
        About("data set", name, text, rows, holds=holds),
        as_json=as_json,
        holds=_content_text(holds) if holds else {},
        loaded_with=", ".join(settings or ()),
    )


def _data_options(name: str, settings: Sequence[str] | None) -> dict[str, Any]:
    """The settings of a data set given with `--set`, checked and converted."""
    from coterie.errors import SpecError
    from coterie.runs.resolve import fill_defaults
    from coterie.runs.spec import Spec

    given = flags.parsed(settings)
    for path in given:
        if not path.startswith("data.") or path == "data.name":
            raise SpecError(f"coterie data takes settings of the data, such as data.test_share=0.2, got {path}")
    if not given:
        return {}
    resolved = fill_defaults(Spec().with_values({"data.name": name, **given}), given=("model", "method"))
    return {path.partition(".")[2]: resolved.data.options[path.partition(".")[2]] for path in given}


def _method_options(name: str, settings: Sequence[str] | None) -> dict[str, object]:
    """The settings of a method given with `--set`, checked and converted."""
    from coterie.errors import SpecError
    from coterie.runs.resolve import fill_defaults
    from coterie.runs.spec import Spec

    given = flags.parsed(settings)
    for path in given:
        if not path.startswith("method.") or path == "method.name":
            raise SpecError(f"coterie methods takes settings of the method, such as method.clusters=8, got {path}")
    resolved = fill_defaults(Spec().with_values({"method.name": name, **given}), given=("data", "model"))
    return {path.partition(".")[2]: resolved.method.options[path.partition(".")[2]] for path in given}


# ------------------------------------------------------------------------------------------------------------ data sets


def _data_content(name: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Properties of a data set; None if it is read from files of a publisher, which may be large or missing."""
    from coterie.data.catalog import CATALOG
    from coterie.data.loading import load

    return None if name in CATALOG and CATALOG[name].files else load(name, **options).describe()


def _content_text(holds: Mapping[str, Any]) -> dict[str, str]:
    """The properties of a data set as text, for the terminal."""
    examples, sizes, clusters = holds["examples"], holds["sizes"], holds["clusters"]
    shape = " × ".join(map(str, holds["shape"])) + (" numbers" if len(holds["shape"]) == 1 else "")
    labels = f"{holds['classes']} classes{_names_text(holds['class_names'])}, {{}} per client"
    members = sorted(clusters.values(), reverse=True) if clusters else []
    listed = ", ".join(map(str, members[:_SIZES_SHOWN])) + (", …" if len(members) > _SIZES_SHOWN else "")
    return {
        "clients": f"{holds['clients']:,}",
        "examples": f"{examples['fit']:,} for training, {examples['test']:,} for testing",
        "per client": f"{_range_text(sizes['fit'])} for training, {_range_text(sizes['test'])} for testing",
        "inputs": f"{shape}, stored as {holds['dtype']}",
        **(
            {"columns": ", ".join(map(_column_text, holds["columns"])), "scaling": _SCALING} if holds["columns"] else {}
        ),
        **({"weights": "each example has its own"} if holds["weighted"] else {}),
        "transforms": ", ".join(holds["transforms"]),
        "labels": "numbers (regression)"
        if holds["classes"] is None
        else labels.format(_range_text(holds["classes_per_client"])),
        "true clusters": f"{len(members)}, of {listed} clients" if members else "unknown",
    }


def _names_text(names: Sequence[str] | None) -> str:
    """Class names in parentheses, if they say more than their number."""
    if names is None or list(names) == [str(number) for number in range(len(names))]:
        return ""
    return f" ({', '.join(names[:_SIZES_SHOWN])}{', …' if len(names) > _SIZES_SHOWN else ''})"


def _column_text(column: Mapping[str, Any]) -> str:
    """A column of a table: its name, and what it holds unless that is numbers."""
    kind, categories = column["kind"], column.get("categories", ())
    more = f"{kind}: {', '.join(categories[:_SIZES_SHOWN])}" if categories else kind
    more += ", …" if len(categories) > _SIZES_SHOWN else ""
    return column["name"] if kind == "number" else f"{column['name']} ({more})"


def _range_text(numbers: Mapping[str, float]) -> str:
    low, middle, high = (f"{numbers[key]:,.10g}" for key in ("min", "median", "max"))
    return low if low == high else f"{low} to {high} (median {middle})"


def _data_list(*, as_json: bool) -> None:
    from coterie.data.loading import summaries

    entries = summaries()
    if as_json:
        document({entry["name"]: entry for entry in entries})
        return
    shown = table("name", "what", "clients", "examples", "classes", "available", left=2)
    for entry in entries:
        numbers = [f"{entry[key]:,}" if entry[key] is not None else "–" for key in ("clients", "samples", "classes")]
        shown.add_row(entry["name"], entry["description"], *numbers, "yes" if entry["available"] else "no")
    result(
        shown,
        "Your own data: the path of a folder of .npz files (one per client: x, y), or of a table in CSV or Parquet.",
        "Details: coterie data NAME, which also says how to get missing files, or coterie data PATH.",
    )


def _data_facts(name: str) -> list[str]:
    """Source, paper, settings and true clusters of a data set, without loading it."""
    from coterie.data.loading import summaries

    entry = next((entry for entry in summaries() if entry["name"] == name), None)
    if entry is None:
        return []
    state = "available" if entry["available"] else "not on disk"
    if entry["advice"]:
        state += f"; for all of it, {entry['advice']}" if entry["available"] else f": {entry['advice']}"
    lines = {
        "Source": f"{entry['source']} ({state})",
        "Paper": entry["paper"],
        "Settings": entry["settings"],
        "True clusters": entry["truth"] or "unknown",
    }
    return ["\n".join(f"{key}: {value}" for key, value in lines.items() if value)]
