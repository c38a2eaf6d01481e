"""Data by name or by path; a loader is imported when its name is used."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from typing import Any

from coterie.data.federated import FederatedData
from coterie.errors import SpecError, unknown

#: What `load` knows by name, a line each.
DATASETS: dict[str, str] = {
    "digits": "1,797 handwritten digits, 8×8, from scikit-learn; turned, inverted or dealt out by class",
    "blobs": "images of Gaussian blobs with planted clusters, of any size and number of clients",
    "synthetic": "Synthetic(α, β) of FedProx: each client its own linear classifier and feature means",
    "regression": "linear regression with planted clusters, as in IFCA and SR-FCA",
}

_LOADERS: dict[str, str] = {
    "digits": "coterie.data.digits:digits",
    "blobs": "coterie.data.blobs:blobs",
    "synthetic": "coterie.data.synthetic:synthetic",
    "regression": "coterie.data.regression:regression",
}


def load(name: str | os.PathLike[str], **options: Any) -> FederatedData:
    """The data set of this name, or at this path, with these options.

    Args:
        name: A name in `DATASETS`; or the path of a folder with one .npz file a client, of a .csv or of a .parquet
            table (see `coterie.data.readers`). What holds a path separator, begins with a dot or exists is a path.
        options: Keyword arguments of the loader.
    """
    loader, what = _loader(name)
    known = [option for option in inspect.signature(loader).parameters if option != "path"]
    for option in options:
        if option not in known:
            raise SpecError(unknown(f"option of {what}", option, known))
    data: FederatedData = loader(**options) if what == name else loader(path=name, **options)
    return data


def loader_options(name: str) -> dict[str, Any]:
    """The options of a data set in `DATASETS` with their defaults."""
    loader, _ = _loader(name)
    return {option: entry.default for option, entry in inspect.signature(loader).parameters.items()}


def _loader(name: str | os.PathLike[str]) -> tuple[Callable[..., FederatedData], str]:
    """The loader, and the name under which errors speak of it."""
    if isinstance(name, str) and name in _LOADERS:
        module, _, function = _LOADERS[name].partition(":")
        return getattr(importlib.import_module(module), function), name
    text = os.fspath(name)
    separators = [os.sep, *([os.altsep] if os.altsep else [])]
    if text.startswith(".") or any(mark in text for mark in separators) or (text and os.path.exists(text)):
        readers = importlib.import_module("coterie.data.readers")
        if os.path.isdir(text):
            return readers.read_folder, "a folder"
        return readers.read_table, "a table"
    hint = " Or give the path of a folder of .npz files, a .csv or a .parquet table"
    raise SpecError(unknown("data set", text, DATASETS) + "." + hint)
