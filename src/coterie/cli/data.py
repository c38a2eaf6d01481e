"""coterie data: what there is, and more about one."""

from __future__ import annotations

import inspect
import sys
import typing

from coterie.cli import flags
from coterie.cli.about import About, listing, meanings, page, setting


def data(
    name: flags.DataName = None,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """List the data sets, or show how one is dealt out among clients, and its settings."""
    from coterie.data.loading import DATASETS, find_loader, loader_options

    if name is None:
        own = "Or the path of a folder of .npz files (one a client: x, y), of a .csv or a .parquet table."
        listing("data set", DATASETS, as_json=as_json, more=own)
        return
    options = {key: value for key, value in loader_options(name).items() if key != "path"}
    loader, _ = find_loader(name)
    types, means = typing.get_type_hints(loader), meanings(loader, "Args")
    summary = (inspect.getdoc(loader) or "").split("\n\n")[0]
    text = f"{inspect.cleandoc(sys.modules[loader.__module__].__doc__ or '')}\n\n{summary}"
    settings = [setting(f"data.{key}", types[key], value, means.get(key, "")) for key, value in options.items()]
    page(About("data set", name, text, settings), as_json=as_json)
