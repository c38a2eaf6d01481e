"""MNIST by writer: a client for each person who wrote the digits, in two true clusters.

The writers are those of QMNIST (Yadav and Bottou, "Cold Case: the Lost MNIST Digits", NeurIPS 2019, arXiv:1905.10498).
The true clusters are the two NIST series: 0, Census Bureau employees (hsf_0), and 1, high-school students
(hsf_4). MNIST's test images were written by other people than its training images, so they cannot test the clients:
each writer's images are split instead, 90/10 as LEAF splits FEMNIST. The test writers can be clients, too.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from coterie.data import partition
from coterie.data.federated import FederatedData, Index
from coterie.data.partition.counting import at_least, at_most
from coterie.data.pools import Pool, pool
from coterie.data.publishers.idx import read_writers
from coterie.data.readers.archive import read_arrays
from coterie.data.sources import source
from coterie.errors import DataError, SpecError, unknown
from coterie.seeds import Seed
from coterie.types import Array

FILE = "mnist_writers.npz"

_MEMBERS = ("writer_train", "hsf_train", "writer_test", "hsf_test")
_WHOSE = ("train", "test", "all")


def mnist_writers(
    *,
    clients: int = 0,
    writers: Literal["train", "test", "all"] = "train",
    test_share: float = 0.1,
    seed: int = 0,
) -> FederatedData:
    """The 539 writers of the training images, with 19 to 131 images each; a client's id is the writer's number.

    Args:
        clients: How many writers, drawn at random; 0 for all.
        writers: Those of the training images, the 297 of the test images, or all 836.
        test_share: Share of each writer's images for testing.
        seed: Fixes every draw.
    """
    if writers not in _WHOSE:
        raise SpecError(unknown("writers", writers, _WHOSE))
    mnist = pool("mnist")
    mnist, writer, hsf = _with_writers(mnist)
    part = {"train": slice(0, mnist.train), "test": slice(mnist.train, None), "all": slice(None)}[writers]
    fit, ids = by_writer(writer[part], clients, seed)
    fit = Index(fit.order + (part.start or 0), fit.offsets)
    truth = (hsf[fit.order[fit.offsets[:-1]]] != 0).astype(np.int64)  # of a writer's first image: all are of one series
    return mnist.dealt(
        "mnist-writers",
        fit,
        test_share=test_share,
        seed=seed,
        clients=[f"{int(number):04d}" for number in ids],
        truth=truth,
    )


def by_writer(writers: Array, clients: int, seed: int, what: str = "writers") -> tuple[Index, list[str]]:
    """The examples of each writer, or of some that are drawn at random, and the writers as texts, in sorted order.

    Args:
        writers: (examples,) who wrote each.
        clients: How many writers; 0 for all.
        seed: Fixes which.
        what: What to call them in errors.
    """
    fit, ids = partition.by_column(writers)
    if not clients:
        return fit, ids
    at_least("clients", clients, 1)
    at_most("clients", clients, len(ids), f"the number of {what}")
    drawn = sorted(Seed(seed).fold("writers").sample(len(ids), clients))
    return Index.from_lists([fit.of(i) for i in drawn]), [ids[i] for i in drawn]


def _with_writers(mnist: Pool) -> tuple[Pool, Array, Array]:
    """MNIST with the file of its writers named as a source, and the writer and the series of each image."""
    origin = source(FILE)
    held: tuple[Array, ...]
    if origin.published is not None:
        held = read_writers(origin.paths, len(mnist.y) - mnist.train)
    else:
        how = f"It must hold arrays {', '.join(_MEMBERS)}, in the order of mnist.npz"
        held = read_arrays(origin.paths[0], lambda _: _MEMBERS, how)
    who, series, who_test, series_test = held
    if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in held):
        raise DataError(f"{origin.paths[0]}: {', '.join(_MEMBERS)} must each be a list of whole numbers")
    writer, hsf = np.concatenate([who, who_test]).astype(np.int64), np.concatenate([series, series_test])
    if len(who) != mnist.train or len(writer) != len(mnist.y) or len(hsf) != len(writer):
        raise DataError(
            f"{origin.paths[0]} has {len(writer)} writers for {len(mnist.y)} images. Take the file made for this MNIST"
        )
    return dataclasses.replace(mnist, source=f"{mnist.source} and {origin.checked()}"), writer, hsf
