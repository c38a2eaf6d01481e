"""Handwriting by writer: MNIST, FEMNIST and Chars74K, and FedProx's FEMNIST-200.

A client has the images of one writer, which are split into training and test images; FEMNIST-200 is partitioned by
letter instead.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from coterie.data import partition
from coterie.data.catalog import CATALOG
from coterie.data.checks import at_least, at_most
from coterie.data.datasets.pool import Pool, pool
from coterie.data.federated import FederatedData, Index
from coterie.data.files import obtain
from coterie.data.formats.idx import read_writers
from coterie.data.formats.npz import read_arrays
from coterie.errors import DataError, SpecError, unknown
from coterie.seeds import Seed
from coterie.types import Array

_ARRAYS = ("writer_train", "hsf_train", "writer_test", "hsf_test")
_WRITERS = ("train", "test", "all")

_FIRST_LETTER = 36  # the label of the letter a in FEMNIST
_LETTERS = "abcdefghij"
_MAX_PER_LETTER = 4000


def by_writer(writers: Array, clients: int, seed: int, what: str = "writers") -> tuple[Index, list[str]]:
    """The images of each writer, or of some writers drawn at random, and the writers as strings, in sorted order.

    Args:
        writers: (images,) the writer of each image.
        clients: Number of writers; 0 for all.
        seed: Random seed of the draw.
        what: Noun for the writers in error messages.
    """
    fit, ids = partition.by_column(writers)
    if not clients:
        return fit, ids
    at_least("clients", clients, 1)
    at_most("clients", clients, len(ids), f"the number of {what}")
    drawn = sorted(Seed(seed).fold("writers").sample(len(ids), clients))
    return Index.from_lists([fit.of(i) for i in drawn]), [ids[i] for i in drawn]


def mnist_writers(
    *,
    clients: int = 0,
    writers: Literal["train", "test", "all"] = "train",
    test_share: float = 0.1,
    seed: int = 0,
) -> FederatedData:
    """The 539 writers of MNIST's training images, with 19 to 131 images each; a client's id is the writer's number.

    The writers are those of QMNIST (Yadav and Bottou, "Cold Case: the Lost MNIST Digits", NeurIPS 2019,
    arXiv:1905.10498). The true clusters are the two NIST series: 0, Census Bureau employees (hsf_0), and 1, high-school
    students (hsf_4). MNIST's test images were written by other people, so they cannot be used to test these clients:
    each writer's images are split 90/10 instead, as LEAF splits FEMNIST.

    Args:
        clients: Number of writers, drawn at random; 0 for all.
        writers: "train": writers of the training images. "test": the 297 writers of the test images. "all": all 836.
        test_share: Fraction of each writer's images used for testing.
        seed: Random seed.
    """
    if writers not in _WRITERS:
        raise SpecError(unknown("writers", writers, _WRITERS))
    images, writer, series = _with_writers(pool("mnist-writers"))
    part = {"train": slice(0, images.train), "test": slice(images.train, None), "all": slice(None)}[writers]
    fit, ids = by_writer(writer[part], clients, seed)
    fit = Index(fit.order + (part.start or 0), fit.offsets)
    truth = (series[fit.order[fit.offsets[:-1]]] != 0).astype(np.int64)  # all images of a writer are of one series
    names = [f"{int(number):04d}" for number in ids]
    return images.federated(fit, test_share=test_share, seed=seed, clients=names, truth=truth)


def _with_writers(images: Pool) -> tuple[Pool, Array, Array]:
    """MNIST with the label file of QMNIST added to its source, and the writer and series of each image."""
    origin = obtain(CATALOG["mnist-writers"].files[1])
    arrays: tuple[Array, ...]
    if origin.published:
        arrays = read_writers(origin.paths, len(images.y) - images.train)
    else:
        how = f"It must hold arrays {', '.join(_ARRAYS)}, in the order of mnist.npz"
        arrays = read_arrays(origin.paths[0], lambda _: _ARRAYS, how)
    who, series, who_test, series_test = arrays
    if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in arrays):
        raise DataError(f"{origin.paths[0]}: {', '.join(_ARRAYS)} must each be a list of integers")
    writer, hsf = np.concatenate([who, who_test]).astype(np.int64), np.concatenate([series, series_test])
    if len(who) != images.train or len(writer) != len(images.y) or len(hsf) != len(writer):
        raise DataError(
            f"{origin.paths[0]} has {len(writer)} writers for {len(images.y)} images. Use the file made for this MNIST"
        )
    return dataclasses.replace(images, source=f"{images.source} and {origin.checked()}"), writer, hsf


def femnist(*, clients: int = 50, test_share: float = 0.1, seed: int = 0) -> FederatedData:
    """LEAF's FEMNIST: digits and letters, one client per writer; a client's id is the writer's name in LEAF.

    Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097. Digits have labels 0..9, capital
    letters 10..35, small letters 36..61; images are black on white, pixels from 0 to 1. SR-FCA (Vardhan et al., TMLR
    2024, arXiv:2210.11538) draws 50 writers; IFCA and FeSEM use the same data. Each writer's images are split 90/10, as
    LEAF splits them by sample. The true clusters are unknown.

    Args:
        clients: Number of writers, drawn at random; 0 for all.
        test_share: Fraction of each writer's images used for testing.
        seed: Random seed.
    """
    return _by_writer("femnist", clients, test_share, seed)


def chars74k(*, clients: int = 0, test_share: float = 0.1, seed: int = 0) -> FederatedData:
    """Chars74K: 55 people who each wrote every digit and letter once; a client's id is the writer's number.

    De Campos, Babu, Varma, "Character Recognition in Natural Images", VISAPP 2009, the part EnglishHnd: 62 classes as
    in FEMNIST, which it can replace if LEAF's files are not available. Images are drawn from the pen strokes, white on
    black. With one image per class, the test classes of a client never occur among its own training images: it has to
    learn them from other clients. True clusters are unknown.

    Args:
        clients: Number of writers, drawn at random; 0 for all 55.
        test_share: Fraction of each writer's images used for testing.
        seed: Random seed.
    """
    return _by_writer("chars74k", clients, test_share, seed)


def _by_writer(name: str, clients: int, test_share: float, seed: int) -> FederatedData:
    images = pool(name)
    fit, ids = by_writer(images.columns["writer"], clients, seed)
    return images.federated(fit, test_share=test_share, seed=seed, clients=images.names_of("writer", ids))


def femnist_200(
    *,
    clients: int = 200,
    per_client: int = 5,
    compat_prefix: bool = False,
    classes: int = 10,
    test_share: float = 0.1,
    seed: int = 0,
) -> FederatedData:
    """FEMNIST-200, FedProx's generator: five neighboring letters out of a to j for each of 200 clients.

    Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, arXiv:1812.06127; used by FedGroup,
    FlexCFL and FedSim, which call it FEMNIST and give 62, 10 and 26 classes: there are ten labels, and the models of
    FedGroup and FedSim have 26 outputs. Clients are not writers. The pool has up to 4,000 images of each letter in a
    random order; client u has letters (u + j) mod 10 for j = 0..4, max(2, int(n_u/5)) images of each, n_u ~
    LogNormal(4, 1) + 5.

    Departures: the published script gives 3 letters to a client; the data in the papers have 5. The script also starts
    again with the first image of a letter for every client, so that all clients get the same first images, and an image
    in one client's training set is in another client's test set. Here images are used in turn, and again only
    when a letter is exhausted; `compat_prefix` does what the script does. Expect lower accuracies without that leak.

    Args:
        clients: Number of clients.
        per_client: Number of letters per client: 5 in the papers' data, 3 in the published script.
        compat_prefix: Partition as the published script does: all clients take the same first images.
        classes: Number of model outputs; 26 as in FedGroup and FedSim, where 16 of them never occur.
        test_share: Fraction of each client's images used for testing.
        seed: Random seed.
    """
    at_least("classes", classes, len(_LETTERS))
    images = pool("femnist-200")
    chosen = []
    for place, letter in enumerate(_LETTERS):
        rows = np.flatnonzero(images.y == _FIRST_LETTER + place)
        if len(rows) == 0:
            raise DataError(f"There is no letter {letter!r} in {images.source}. Use more of its files")
        order = Seed(seed).fold("letter", letter).permutation(len(rows))
        chosen.append(rows[order[:_MAX_PER_LETTER]])
    numbers = np.concatenate(chosen)
    labels = np.repeat(np.arange(len(_LETTERS)), [len(rows) for rows in chosen])
    fit = partition.by_lognormal(labels, clients, per_client=per_client, compat_prefix=compat_prefix, seed=seed)
    y = np.zeros_like(images.y)  # also 0 for images that no client has
    y[numbers] = labels
    images = dataclasses.replace(images, y=y, classes=classes)
    return images.federated(Index(numbers[fit.order], fit.offsets), test_share=test_share, seed=seed)
