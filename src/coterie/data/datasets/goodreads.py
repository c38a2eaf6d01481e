"""Fed-Goodreads: sentences of book reviews, labeled as spoiler or not, with one client per reviewer.

Palihawadana et al., "FedSim: Similarity Guided Model Aggregation for Federated Learning", Neurocomputing 2022, from
Goodreads' reviews (Wan et al. 2019): 100 reviewers with 2 to 8 sentences each, 355 training and 130 test sentences in
total, with the published split. `goodreads` has counts of 2,517 words, `goodreads-sentences` the same sentences as 40
words, each a frozen vector (see `coterie.data.formats.text`). The data set is very small: one test sentence is 0.8
percentage points of accuracy. The true clusters are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.catalog import CATALOG
from coterie.data.checks import at_least, at_most
from coterie.data.federated import FederatedData, Index, aligned
from coterie.data.files import Source, obtain
from coterie.data.formats import text
from coterie.data.formats.leaf import read_split
from coterie.data.formats.npz import read_arrays
from coterie.data.partition import assemble, numbered
from coterie.errors import DataError
from coterie.seeds import Seed
from coterie.types import Array

#: Words per sentence.
WORDS = 40

#: Subfolders of the published files: counts, and sentences.
_COUNTS, _SENTENCES = "data_text", "data"
#: Names of the reviewers; inputs, labels and index of the training part; the same of the test part.
_Parts = tuple[list[str], list[tuple[Any, Array, Index]]]


def goodreads(*, clients: int = 0, seed: int = 0) -> FederatedData:
    """Sentences as word counts, not normalized.

    Args:
        clients: Number of reviewers, drawn at random; 0 for all.
        seed: Random seed.
    """
    origin, names, parts = _read(_COUNTS, clients, seed)
    (x, y, fit), (x_test, y_test, test) = parts
    return assemble(
        "goodreads",
        (np.asarray(x), y),
        fit,
        test=(np.asarray(x_test), y_test),
        tested=test,
        seed=seed,
        classes=2,
        clients=names,
        normalize=(0.0, 1.0),
        source=origin.describe(),
    )


def goodreads_sentences(*, clients: int = 0, vectors: text.Vectors = "auto", seed: int = 0) -> FederatedData:
    """Sentences as sequences of word vectors.

    Args:
        clients: Number of reviewers, drawn at random; 0 for all.
        vectors: Word vectors: "glove", random ones by hash ("hashed"), or GloVe's if available ("auto").
        seed: Random seed.
    """
    origin, names, parts = _read(_SENTENCES, clients, seed)
    (x, y, fit), (x_test, y_test, test) = parts
    made = text.embedded([*x, *x_test], WORDS, vectors=vectors, padding="after", seed=seed)
    return assemble(
        "goodreads-sentences",
        (aligned(made.x), np.concatenate([y, y_test])),
        fit,
        tested=Index(test.order + len(y), test.offsets),
        seed=seed,
        classes=2,
        tokens=len(made.table),
        table=made.table,
        clients=names,
        source=f"{origin.describe()}; {text.describe_vectors(vectors)}",
    )


def _read(what: str, clients: int, seed: int) -> tuple[Source, list[str], list[tuple[Any, Array, Index]]]:
    """The files, the names of the reviewers, and the training and test parts."""
    at_least("clients", clients, 0)
    origin = obtain(CATALOG["goodreads"].files[0])
    names, parts = _of_json(origin.paths, what) if origin.published else _of_archive(origin.paths[0], what)
    if clients:
        at_most("clients", clients, len(names), "the number of reviewers")
        drawn = sorted(Seed(seed).fold("reviewers").sample(len(names), clients))
        names = [names[i] for i in drawn]
        parts = [(x, y, Index.from_lists([index.of(i) for i in drawn])) for x, y, index in parts]
    return origin, names, parts


def _of_archive(path: Path, what: str) -> _Parts:
    field = "x" if what == _COUNTS else "text"
    wanted = tuple(f"{name}_{part}" for part in ("train", "test") for name in (field, "y", "offsets"))
    arrays = read_arrays(path, lambda _: wanted, f"It must hold arrays {', '.join(wanted)}, as numpy.savez writes them")
    parts = []
    for x, y, offsets in (arrays[:3], arrays[3:]):
        if x.ndim != (2 if what == _COUNTS else 1) or x.dtype.kind != ("u" if what == _COUNTS else "U"):
            kind = "rows of counts, unsigned integers" if what == _COUNTS else "a sentence for each example"
            raise DataError(f"{path}: {field} must hold {kind}, got {x.dtype} of shape {x.shape}")
        if y.shape != x.shape[:1] or y.dtype.kind not in "iu" or not np.isin(y, (0, 1)).all():
            raise DataError(f"{path}: y must hold 0 or 1 for each of the {len(x)} examples")
        increasing = offsets.ndim == 1 and len(offsets) > 1 and offsets.dtype.kind in "iu"
        if not (increasing and offsets[0] == 0 and offsets[-1] == len(y) and (offsets[1:] >= offsets[:-1]).all()):
            raise DataError(f"{path}: offsets must be integers that increase from 0 to {len(y)}")
        index = Index(np.arange(len(y)), offsets.astype(np.int64))
        parts.append((x if what == _COUNTS else x.tolist(), y.astype(np.int32), index))
    if len(parts[0][2]) != len(parts[1][2]):
        raise DataError(f"{path}: offsets_train and offsets_test have different numbers of reviewers")
    return list(numbered(len(parts[0][2]))), parts


def _of_json(paths: Sequence[Path], what: str) -> _Parts:
    chosen = [path for path in paths if path.parent.parent.name == what]
    if not chosen:
        raise DataError(f"{paths[0].parent.parent.parent} has no folder {what} with train and test in it")
    how = "x must be a row of counts and y 0 or 1" if what == _COUNTS else "x must be a sentence and y 0 or 1"
    users = read_split(chosen, _is_count if what == _COUNTS else _is_sentence, how)
    parts = []
    for part in ("train", "test"):
        own = [getattr(user, part) for user in users.values()]
        x = [each for xs, _ in own for each in xs]
        y = np.array([int(each) for _, ys in own for each in ys], np.int32)
        sizes = np.array([len(ys) for _, ys in own], np.int64)
        parts.append((_counts(chosen[0], x) if what == _COUNTS else x, y, Index.from_sizes(np.arange(len(y)), sizes)))
    return list(users), parts


def _counts(path: Path, rows: list[list[int]]) -> Array:
    if len({len(row) for row in rows}) > 1:
        raise DataError(f"{path}: rows of counts differ in length. Make it or download it again")
    return np.array(rows, np.uint8)


def _is_count(x: Any, y: Any) -> bool:
    return isinstance(x, list) and all(type(each) is int and 0 <= each < 256 for each in x) and y in (0, 1)


def _is_sentence(x: Any, y: Any) -> bool:
    return isinstance(x, str) and y in (0, 1)
