"""coterie data: what there is, and more about one."""

from __future__ import annotations

import inspect
import sys
import typing

from coterie.cli import flags, screen
from coterie.cli.about import About, meanings, page, setting


def data(
    name: flags.DataName = None,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """List the data sets, or show how one is dealt out among clients, and its settings."""
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
    page(About("data set", name, text, settings), as_json=as_json)


def _catalogue(*, as_json: bool) -> None:
    from coterie.data.presets import catalogue

    entries = catalogue()
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
        "More about one: coterie data NAME, which also says how to get what is not at hand.",
    )


def _known(name: str) -> list[str]:
    """What is known of a data set without loading it: where it comes from, its paper, its true clusters."""
    from coterie.data.presets import catalogue

    entry = next((entry for entry in catalogue() if entry["name"] == name), None)
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
