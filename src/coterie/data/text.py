"""Text as ids of tokens: characters, or words for which a frozen vector stands.

Characters are those of LEAF's list; any other counts as the last of it, as in LEAF, where a search that finds nothing
gives -1. Words are runs of letters, digits, underscores and apostrophes, in small letters, and the marks . , ! ? ; each
by itself: LEAF's rule, with small letters because GloVe has no others.

The vectors are those of GloVe (Pennington, Socher, Manning, "GloVe: Global Vectors for Word Representation", EMNLP
2014), 300 numbers a word, from the text file glove.6B.300d.txt as its publishers hand it out. Where it is not at hand,
each word has a vector of its own drawn by a seed and the word, uniform in ±1/2: alike words have nothing in common, so
accuracies are lower than published ones. What is used stands in the data's `source`. Id 0 is for what has no vector and
for what fills short texts up; its vector is zero, as in LEAF.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from coterie.data import files
from coterie.errors import DataError, SpecError, unknown
from coterie.seeds import Seed
from coterie.types import Array

log = logging.getLogger(__name__)

#: LEAF's 80 characters; a character's place is its id.
CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"

#: The file of vectors, and how many numbers each has.
GLOVE = "glove.6B.300d.txt"
_HOW = (
    "GloVe's publishers hand it out at nlp.stanford.edu/projects/glove; or set data.vectors=hashed for random vectors"
)
WIDTH = 300

#: `auto` takes GloVe's where the file is at hand and hashed ones otherwise.
Vectors = Literal["auto", "glove", "hashed"]
#: Where short texts are filled up: after the words (FedProx, FedGroup, LEAF) or before them (FlexCFL).
Fill = Literal["after", "before"]

_WORD = re.compile(r"[\w']+|[.,!?;]")
_LAST = len(CHARACTERS) - 1
_IDS = np.full(128, _LAST, np.uint8)
_IDS[[ord(character) for character in CHARACTERS]] = np.arange(len(CHARACTERS))


def characters(text: str) -> npt.NDArray[np.uint8]:
    """The ids of a text's characters."""
    # Half of a pair of surrogates, which JSON can hold, is another character like any other.
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return np.where(points < len(_IDS), _IDS[np.minimum(points, len(_IDS) - 1)], np.uint8(_LAST))


def words(text: str) -> list[str]:
    """The words and marks of a text."""
    return _WORD.findall(text.lower())


@dataclass(frozen=True, eq=False)
class Embedded:
    """Texts as ids, and the vectors that stand for them.

    Attributes:
        x: (texts, length) ids.
        table: (ids, 300) float32.
    """

    x: Array
    table: npt.NDArray[np.float32]


def embedded(texts: Sequence[str], length: int, *, vectors: Vectors, fill: Fill, seed: int) -> Embedded:
    """Texts as rows of as many ids: longer ones are cut off, shorter ones filled up with id 0.

    Args:
        texts: One an example.
        length: How many words an example has.
        vectors: Which stand for the words.
        fill: Where short texts are filled up.
        seed: Draws the vectors that are hashed.
    """
    for setting, value, allowed in (
        ("vectors", vectors, ("auto", "glove", "hashed")),
        ("fill", fill, ("after", "before")),
    ):
        if value not in allowed:
            raise SpecError(unknown(setting, value, allowed))
    cut = [words(text)[:length] for text in texts]
    known = sorted({word for each in cut for word in each})
    path = _glove(vectors)
    held = hashed(known, seed) if path is None else read_glove(path, known)
    if path is None and vectors == "auto":
        log.warning("%s is not at hand: words have random vectors instead, and accuracies will be lower", GLOVE)
    place = {word: number for number, word in enumerate(held, start=1)}
    x = np.zeros((len(cut), length), np.min_scalar_type(len(held)))
    for row, each in zip(x, cut, strict=True):
        here = slice(0, len(each)) if fill == "after" else slice(length - len(each), length)
        row[here] = [place.get(word, 0) for word in each]
    return Embedded(x, np.stack([np.zeros(WIDTH, np.float32), *held.values()]))


def said(vectors: Vectors) -> str:
    """Which vectors stand for the words, for the source of the data."""
    if _glove(vectors) is not None:
        return f"words as vectors of {GLOVE}"
    missing = "" if vectors == "hashed" else f", for {GLOVE} is not at hand"
    return f"words as random vectors by their hash{missing}"


def _glove(vectors: Vectors) -> Path | None:
    """Where the vectors are, or None for hashed ones."""
    if vectors == "hashed":
        return None
    return files.find(GLOVE, _HOW) if vectors == "glove" else files.found(GLOVE)


def hashed(known: Sequence[str], seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """For each word a vector that depends on the seed and on the word alone."""
    root = Seed(seed).fold("vectors")
    return {word: (root.fold(word).uniform(WIDTH) - 0.5).astype(np.float32) for word in known}


def read_glove(path: Path, known: Collection[str]) -> dict[str, npt.NDArray[np.float32]]:
    """The vectors of those of the words that the file has, in the order of the words.

    Each line is a word and 300 numbers with spaces between them, without any heading.
    """
    wanted = {word.encode(): word for word in known}
    found: dict[str, npt.NDArray[np.float32]] = {}
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                word, _, rest = line.partition(b" ")
                if word in wanted:
                    found[wanted[word]] = _vector(path, number, rest)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if not found:
        raise DataError(f"{path} has a vector for none of the {len(wanted)} words. Take the file as GloVe publishes it")
    return {word: found[word] for word in sorted(found)}


def _vector(path: Path, number: int, rest: bytes) -> npt.NDArray[np.float32]:
    try:
        vector = np.array(rest.split(), np.float32)
    except ValueError:
        vector = np.zeros(0, np.float32)
    if vector.shape != (WIDTH,) or not np.isfinite(vector).all():
        raise DataError(f"{path}, line {number}: a word must be followed by {WIDTH} numbers")
    return vector
