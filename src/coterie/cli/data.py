"""coterie data: list the data sets, or show one, by name or path."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Mapping
from typing import Any

from coterie.cli import flags, output
from coterie.cli.listing import About, doc_entries, page, setting
from coterie.cli.progress import ProgressDisplay


def data(
    name: flags.DataName = None,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """List the data sets, or show one, by name or path: its partition, settings and content."""
    from coterie.data.loading import find_loader, loader_options

    if name is None:
        _list(as_json=as_json)
        return
    options = {key: value for key, value in loader_options(name).items() if key != "path"}
    loader, _ = find_loader(name)
    types, means = typing.get_type_hints(loader), doc_entries(loader, "Args")
    about = (inspect.getdoc(loader) or "").partition("\n\nArgs:")[0]
    text = "\n\n".join([inspect.cleandoc(sys.modules[loader.__module__].__doc__ or ""), about, *_facts(name)])
    settings = [setting(f"data.{key}", types[key], value, means.get(key, "")) for key, value in options.items()]
    with ProgressDisplay(silent=as_json, waiting=f"loading {name}"):
        holds = _described(name)
    page(About("data set", name, text, settings, holds=holds), as_json=as_json, holds=_in_words(holds) if holds else {})


def _described(name: str) -> dict[str, Any] | None:
    """Content with default settings; None for data sets with files, which may be large or not on disk."""
    from coterie.data.catalog import CATALOG
    from coterie.data.loading import load

    return None if name in CATALOG and CATALOG[name].files else load(name).describe()


def _in_words(holds: Mapping[str, Any]) -> dict[str, str]:
    """The same as text."""
    examples, sizes, clusters = holds["examples"], holds["sizes"], holds["clusters"]
    shape = " × ".join(map(str, holds["shape"])) + (" numbers" if len(holds["shape"]) == 1 else "")
    labels = f"{holds['classes']} classes, {{}} per client"
    members = sorted(clusters.values(), reverse=True) if clusters else []
    listed = ", ".join(map(str, members[:_SHOWN])) + (", …" if len(members) > _SHOWN else "")
    return {
        "clients": f"{holds['clients']:,}",
        "examples": f"{examples['fit']:,} for training, {examples['test']:,} for testing",
        "per client": f"{_spread(sizes['fit'])} for training, {_spread(sizes['test'])} for testing",
        "inputs": f"{shape}, stored as {holds['dtype']}",
        "transforms": ", ".join(holds["transforms"]),
        "labels": "numbers (regression)"
        if holds["classes"] is None
        else labels.format(_spread(holds["classes_per_client"])),
        "true clusters": f"{len(members)}, of {listed} clients" if members else "unknown",
    }


#: Number of clusters whose sizes are shown.
_SHOWN = 10


def _spread(numbers: Mapping[str, float]) -> str:
    low, middle, high = (f"{numbers[key]:,.10g}" for key in ("min", "median", "max"))
    return low if low == high else f"{low} to {high} (median {middle})"


def _list(*, as_json: bool) -> None:
    from coterie.data.loading import summaries

    entries = summaries()
    if as_json:
        output.document({entry["name"]: entry for entry in entries})
        return
    shown = output.table("name", "what", "clients", "examples", "classes", "available", left=2)
    for entry in entries:
        numbers = [f"{entry[key]:,}" if entry[key] is not None else "–" for key in ("clients", "samples", "classes")]
        shown.add_row(entry["name"], entry["description"], *numbers, "yes" if entry["available"] else "no")
    output.result(
        shown,
        "Your own data: the path of a folder of .npz files (one per client: x, y), or of a .csv or .parquet table.",
        "Details: coterie data NAME, which also says how to get missing files, or coterie data PATH.",
    )


def _facts(name: str) -> list[str]:
    """Source, paper, settings and true clusters of a data set, without loading it."""
    from coterie.data.loading import summaries

    entry = next((entry for entry in summaries() if entry["name"] == name), None)
    if entry is None:
        return []
    state = "available" if entry["available"] else "not on disk"
    if entry["advice"]:
        state += f"; for all of it, {entry['advice']}" if entry["available"] else f": {entry['advice']}"
    facts = {
        "Source": f"{entry['source']} ({state})",
        "Paper": entry["paper"],
        "Settings": entry["settings"],
        "True clusters": entry["truth"] or "unknown",
    }
    return ["\n".join(f"{key}: {value}" for key, value in facts.items() if value)]
