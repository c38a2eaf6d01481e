"""coterie data: what there is, and more about one, by name or by path."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Mapping
from typing import Any

from coterie.cli import flags, screen
from coterie.cli.about import About, meanings, page, setting
from coterie.cli.progress import Ticker


def data(
    name: flags.DataName = None,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """List the data sets, or show one, by name or by path: how it is dealt out, its settings, what it holds."""
    from coterie.data.loading import find_loader, loader_options

    if name is None:
        _catalogue(as_json=as_json)
        return
    options = {key: value for key, value in loader_options(name).items() if key != "path"}
    loader, _ = find_loader(name)
    types, means = typing.get_type_hints(loader), meanings(loader, "Args")
    summary = (inspect.getdoc(loader) or "").split("\n\n")[0]
    text = "\n\n".join([inspect.cleandoc(sys.modules[loader.__module__].__doc__ or ""), summary, *_known(name)])
    settings = [setting(f"data.{key}", types[key], value, means.get(key, "")) for key, value in options.items()]
    with Ticker(silent=as_json, waiting=f"loading {name}"):
        holds = _described(name)
    page(About("data set", name, text, settings, holds=holds), as_json=as_json, holds=_in_words(holds) if holds else {})


def _described(name: str) -> dict[str, Any] | None:
    """What the data hold with their defaults; None for files that are known by name, which may be large or far."""
    from coterie.data.loading import load
    from coterie.data.presets import PRESETS

    return None if name in PRESETS and PRESETS[name].needs else load(name).describe()


def _in_words(holds: Mapping[str, Any]) -> dict[str, str]:
    """The same in words."""
    examples, sizes, clusters = holds["examples"], holds["sizes"], holds["clusters"]
    shape = " × ".join(map(str, holds["shape"])) + (" numbers" if len(holds["shape"]) == 1 else "")
    labels = f"{holds['classes']} classes, of which a client has {{}}"
    members = sorted(clusters.values(), reverse=True) if clusters else []
    listed = ", ".join(map(str, members[:_MOST])) + (", …" if len(members) > _MOST else "")
    return {
        "clients": f"{holds['clients']:,}",
        "examples": f"{examples['fit']:,} for training, {examples['test']:,} for testing",
        "of a client": f"{_spread(sizes['fit'])} for training, {_spread(sizes['test'])} for testing",
        "inputs": f"{shape}, stored as {holds['dtype']}",
        "transforms": ", ".join(holds["transforms"]),
        "to predict": "numbers" if holds["classes"] is None else labels.format(_spread(holds["classes_per_client"])),
        "true clusters": f"{len(members)}, of {listed} clients" if members else "nobody knows them",
    }


#: Clusters whose sizes are listed.
_MOST = 10


def _spread(numbers: Mapping[str, float]) -> str:
    low, middle, high = (f"{numbers[key]:,.10g}" for key in ("min", "median", "max"))
    return low if low == high else f"{low} to {high} (median {middle})"


def _catalogue(*, as_json: bool) -> None:
    from coterie.data.presets import catalog

    entries = catalog()
    if as_json:
        screen.document({entry["name"]: entry for entry in entries})
        return
    shown = screen.table("name", "what", "clients", "examples", "classes", "at hand", left=2)
    for entry in entries:
        numbers = [f"{entry[key]:,}" if entry[key] is not None else "–" for key in ("clients", "samples", "classes")]
        shown.add_row(entry["name"], entry["description"], *numbers, "yes" if entry["at_hand"] else "no")
    screen.result(
        shown,
        "Or the path of a folder of .npz files (one a client: x, y), of a .csv or a .parquet table.",
        "More about one: coterie data NAME, which also says how to get what is not at hand, or coterie data PATH.",
    )


def _known(name: str) -> list[str]:
    """What is known of a data set without loading it: where it comes from, its paper, its true clusters."""
    from coterie.data.presets import catalog

    entry = next((entry for entry in catalog() if entry["name"] == name), None)
    if entry is None:
        return []
    here = "at hand" if entry["at_hand"] else "not at hand"
    if entry["advice"]:
        here += f"; for all of it, {entry['advice']}" if entry["at_hand"] else f": {entry['advice']}"
    facts = {
        "Source": f"{entry['source']} ({here})",
        "Paper": entry["paper"],
        "Settings": entry["settings"],
        "True clusters": entry["truth"] or "nobody knows them",
    }
    return ["\n".join(f"{key}: {value}" for key, value in facts.items() if value)]
