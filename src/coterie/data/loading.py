"""Load data by name or path, and list the data sets. Loaders are imported when they are used."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from typing import Any

from coterie.data import files
from coterie.data.catalog import CATALOG, Dataset, Files
from coterie.data.federated import FederatedData
from coterie.errors import DataError, SpecError, did_you_mean, shown, unknown

#: Name → one-line description.
DATASETS: dict[str, str] = {name: row.description for name, row in CATALOG.items()}

#: Endings of names that are files, even if there is no such file.
_FILES = (".csv", ".tsv", ".gz", ".parquet", ".npz", ".xlsx", ".json", ".txt")


def load(name: str | os.PathLike[str], **options: Any) -> FederatedData:
    """Load a data set.

    Args:
        name: A name in `DATASETS`; or the path of a folder with one .npz file per client, or of a table in CSV or
            Parquet. Anything that contains a path separator, starts with a dot, ends like a file or exists on disk is
            a path.
        options: Keyword arguments of the loader; `coterie data NAME` lists them.
    """
    loader, what = find_loader(name)
    known = [option for option in inspect.signature(loader).parameters if option != "path"]
    for option in options:
        if option not in known:
            raise SpecError(unknown(f"option of {what}", option, known))
    data: FederatedData = loader(**options) if what == name else loader(path=name, **options)
    return data


def loader_options(name: str) -> dict[str, Any]:
    """The options of a data set with their defaults."""
    loader, _ = find_loader(name)
    return {option: entry.default for option, entry in inspect.signature(loader).parameters.items()}


def find_loader(name: str | os.PathLike[str]) -> tuple[Callable[..., FederatedData], str]:
    """The loader of a data set or of a path, and its name for error messages."""
    if isinstance(name, str) and name in CATALOG:
        module, _, function = CATALOG[name].loader.partition(":")
        return getattr(importlib.import_module(f"coterie.data.datasets.{module}"), function), name
    text = os.fspath(name)
    separators = [os.sep, *([os.altsep] if os.altsep else [])]
    is_path = text.startswith(".") or any(mark in text for mark in separators) or text.lower().endswith(_FILES)
    if is_path or (text and os.path.exists(text)):
        if os.path.isdir(text):
            return importlib.import_module("coterie.data.formats.folder").read_folder, "a folder"
        return importlib.import_module("coterie.data.formats.tables").read_table, "a table"
    if "." in text:  # no name of a data set has a dot
        beside = [each for each in os.listdir() if os.path.isdir(each) or each.lower().endswith(_FILES)]
        raise SpecError(
            f"There is no file or folder {shown(text)}.{did_you_mean(text, beside)} Data are a folder of .npz files, a "
            "table in CSV or Parquet, or a data set: `coterie data` lists them"
        )
    hint = " Or give the path of a folder of .npz files, or of a table in CSV or Parquet"
    raise SpecError(unknown("data set", text, DATASETS) + "." + hint)


def available(name: str) -> bool:
    """Whether the files that a data set needs are on disk."""
    if name not in CATALOG:
        raise SpecError(unknown("data set", name, CATALOG))
    return all(files.locate(each) is not None for each in CATALOG[name].files)


def summaries() -> list[dict[str, Any]]:
    """Describe all data sets without loading them; only the headers of files on disk are read.

    Returns:
        For each data set its name, description, paper, settings, truth, clients, samples, classes, needs (files),
        source (a sentence, which says if the files are a subset), available, and advice (how to get missing files).
        `samples` is scaled down if the archive on disk is a subset.
    """
    return [_summary(row) for row in CATALOG.values()]


def _summary(row: Dataset) -> dict[str, Any]:
    found = {each: files.locate(each) for each in row.files}
    missing = [each for each, source in found.items() if source is None]
    source, share = _source(row, found) if row.files else (row.source, 1.0)
    advice = [files.advice(each) for each in missing]
    if share < 1 and not missing:
        advice = [files.complete(row.files[0])]
    return {
        "name": row.name,
        "description": row.description,
        "paper": row.paper,
        "settings": row.settings,
        "truth": row.truth,
        "clients": row.clients,
        "samples": round(row.samples * share),
        "classes": row.classes,
        "needs": [each.archive for each in row.files],
        "source": source,
        "available": not missing,
        "advice": "; ".join(advice),
    }


def _source(row: Dataset, found: dict[Files, files.Source | None]) -> tuple[str, float]:
    """Source of the examples, and the fraction of the published examples that is on disk."""
    first, *others = row.files
    text, share = f"{first.title}, from {first.archive}", 1.0
    origin = found[first]
    if origin is not None:
        try:
            text, share = origin.describe(), origin.share()
        except DataError as error:  # a damaged file must not prevent the listing
            text = str(error)
    text += "".join(f" and {found[each] or each.archive}" for each in others)
    if row.word_vectors:
        from coterie.data.formats.text import describe_vectors

        text += f"; {describe_vectors('auto')}"
    return text, share
