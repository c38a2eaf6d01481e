"""Data by name or by path; a loader is imported when its name is used."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from typing import Any

from coterie.data.federated import FederatedData
from coterie.data.presets import PRESETS
from coterie.errors import SpecError, unknown

#: What `load` knows by name, a line each.
DATASETS: dict[str, str] = {name: preset.description for name, preset in PRESETS.items()}

_LOADERS: dict[str, str] = {
    "digits": "coterie.data.digits:digits",
    "blobs": "coterie.data.blobs:blobs",
    "synthetic": "coterie.data.synthetic:synthetic",
    "regression": "coterie.data.regression:regression",
    "mnist": "coterie.data.images:mnist",
    "fmnist": "coterie.data.images:fmnist",
    "cifar10": "coterie.data.images:cifar10",
    "svhn": "coterie.data.images:svhn",
    "mnist-powerlaw": "coterie.data.papers.fedprox:mnist_powerlaw",
    "mnist-classes": "coterie.data.papers.fedprox:mnist_classes",
    "fmnist-500": "coterie.data.papers.ditto:fmnist_500",
    "mnist-rotated": "coterie.data.papers.srfca:mnist_rotated",
    "mnist-inverted": "coterie.data.papers.srfca:mnist_inverted",
    "mnist-rotated-ifca": "coterie.data.papers.srfca:mnist_rotated_ifca",
    "cifar10-rotated": "coterie.data.papers.srfca:cifar10_rotated",
    "cifar10-classes": "coterie.data.papers.srfca:cifar10_classes",
    "mnist-skew20": "coterie.data.papers.flag:mnist_skew20",
    "mnist-skew30": "coterie.data.papers.flag:mnist_skew30",
    "mnist-dirichlet": "coterie.data.papers.flag:mnist_dirichlet",
    "fmnist-skew20": "coterie.data.papers.flag:fmnist_skew20",
    "fmnist-skew30": "coterie.data.papers.flag:fmnist_skew30",
    "fmnist-dirichlet": "coterie.data.papers.flag:fmnist_dirichlet",
    "cifar10-skew20": "coterie.data.papers.flag:cifar10_skew20",
    "cifar10-skew30": "coterie.data.papers.flag:cifar10_skew30",
    "cifar10-dirichlet": "coterie.data.papers.flag:cifar10_dirichlet",
    "svhn-skew20": "coterie.data.papers.flag:svhn_skew20",
    "svhn-skew30": "coterie.data.papers.flag:svhn_skew30",
    "svhn-dirichlet": "coterie.data.papers.flag:svhn_dirichlet",
    "mnist-writers": "coterie.data.writers:mnist_writers",
    "cifar100": "coterie.data.images:cifar100",
    "cifar100-skew20": "coterie.data.papers.flag:cifar100_skew20",
    "cifar100-skew30": "coterie.data.papers.flag:cifar100_skew30",
    "cifar100-dirichlet": "coterie.data.papers.flag:cifar100_dirichlet",
    "femnist": "coterie.data.papers.leaf:femnist",
    "femnist-200": "coterie.data.papers.nist:femnist_200",
    "chars74k": "coterie.data.chars74k:chars74k",
    "fed-mex": "coterie.data.papers.fedmex:fed_mex",
    "shakespeare": "coterie.data.papers.shakespeare:shakespeare",
    "sent140": "coterie.data.papers.sent140:sent140",
    "goodreads": "coterie.data.papers.goodreads:goodreads",
    "goodreads-sentences": "coterie.data.papers.goodreads:goodreads_sentences",
    "synthetic-1-1": "coterie.data.synthetic:synthetic_1_1",
    "synthetic-0.75-0.75": "coterie.data.synthetic:synthetic_075_075",
    "synthetic-0.5-0.5": "coterie.data.synthetic:synthetic_05_05",
    "synthetic-0.25-0.25": "coterie.data.synthetic:synthetic_025_025",
    "synthetic-0-0": "coterie.data.synthetic:synthetic_0_0",
    "synthetic-iid": "coterie.data.synthetic:synthetic_iid",
}


def load(name: str | os.PathLike[str], **options: Any) -> FederatedData:
    """The data set of this name, or at this path, with these options.

    Args:
        name: A name in `DATASETS`; or the path of a folder with one .npz file a client, of a .csv or of a .parquet
            table (see `coterie.data.readers`). What holds a path separator, begins with a dot or exists is a path.
        options: Keyword arguments of the loader.
    """
    loader, what = find_loader(name)
    known = [option for option in inspect.signature(loader).parameters if option != "path"]
    for option in options:
        if option not in known:
            raise SpecError(unknown(f"option of {what}", option, known))
    data: FederatedData = loader(**options) if what == name else loader(path=name, **options)
    return data


def loader_options(name: str) -> dict[str, Any]:
    """The options of a data set in `DATASETS` with their defaults."""
    loader, _ = find_loader(name)
    return {option: entry.default for option, entry in inspect.signature(loader).parameters.items()}


def find_loader(name: str | os.PathLike[str]) -> tuple[Callable[..., FederatedData], str]:
    """The loader of a data set in `DATASETS` or of a path, and the name under which errors speak of it."""
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
