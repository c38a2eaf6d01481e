"""Converts text to token ids: characters, or words that are represented by frozen vectors.

The alphabet is LEAF's; any other character gets the last id, as in LEAF, where a failed search returns -1. Words are
runs of letters, digits, underscores and apostrophes, in lower case, and each of the marks . , ! ? ; is a word. This is
LEAF's rule, except that words are in lower case because GloVe has only lower-case words.

The vectors are those of GloVe (Pennington, Socher, Manning, "GloVe: Global Vectors for Word Representation", EMNLP
2014), 300 numbers per word, from the published text file glove.6B.300d.txt. If it is not available, each word has a
random vector, uniform in ±1/2, that depends on the seed and the word. Similar words then have unrelated vectors, so
accuracies are lower than published ones. The `source` of the data says which vectors are used. Id 0 is for words
without a vector and for padding; its vector is zero, as in LEAF.
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

#: LEAF's 80 characters; the position of a character is its id.
CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"

#: File name of the vectors.
GLOVE = "glove.6B.300d.txt"
_HOW = "It is published at nlp.stanford.edu/projects/glove; or set data.vectors=hashed for random vectors"
#: Length of a vector.
WIDTH = 300

#: `auto`: GloVe's vectors if the file is available, hashed ones otherwise.
Vectors = Literal["auto", "glove", "hashed"]
#: Where short texts are padded: after the words (FedProx, FedGroup, LEAF) or before them (FlexCFL).
Padding = Literal["after", "before"]

_WORD = re.compile(r"[\w']+|[.,!?;]")
_LAST = len(CHARACTERS) - 1
_IDS = np.full(128, _LAST, np.uint8)
_IDS[[ord(character) for character in CHARACTERS]] = np.arange(len(CHARACTERS))


def characters(text: str) -> npt.NDArray[np.uint8]:
    """The ids of the characters of a text."""
    # A single surrogate, which JSON can contain, is treated like any other unknown character.
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return np.where(points < len(_IDS), _IDS[np.minimum(points, len(_IDS) - 1)], np.uint8(_LAST))


def words(text: str) -> list[str]:
    """The words and punctuation marks of a text."""
    return _WORD.findall(text.lower())


@dataclass(frozen=True, eq=False)
class Embedded:
    """Texts as token ids, and the vectors of the tokens.

    Attributes:
        x: (texts, length) ids.
        table: (ids, 300) float32.
    """

    x: Array
    table: npt.NDArray[np.float32]


def embedded(texts: Sequence[str], length: int, *, vectors: Vectors, padding: Padding, seed: int) -> Embedded:
    """Texts as rows of ids of equal length: longer texts are truncated, shorter ones padded with id 0.

    Args:
        texts: One per example.
        length: Number of words per example.
        vectors: Vectors of the words.
        padding: Where short texts are padded.
        seed: Random seed of hashed vectors.
    """
    for setting, value, allowed in (
        ("vectors", vectors, ("auto", "glove", "hashed")),
        ("padding", padding, ("after", "before")),
    ):
        if value not in allowed:
            raise SpecError(unknown(setting, value, allowed))
    truncated = [words(text)[:length] for text in texts]
    known = sorted({word for each in truncated for word in each})
    path = _glove(vectors)
    found = hashed(known, seed) if path is None else read_glove(path, known)
    if path is None and vectors == "auto":
        log.warning("%s is not available: words have random vectors instead, and accuracies will be lower", GLOVE)
    place = {word: number for number, word in enumerate(found, start=1)}
    x = np.zeros((len(truncated), length), np.min_scalar_type(len(found)))
    for row, each in zip(x, truncated, strict=True):
        used = slice(0, len(each)) if padding == "after" else slice(length - len(each), length)
        row[used] = [place.get(word, 0) for word in each]
    return Embedded(x, np.stack([np.zeros(WIDTH, np.float32), *found.values()]))


def describe_vectors(vectors: Vectors) -> str:
    """The vectors of the words, for the source of the data."""
    if _glove(vectors) is not None:
        return f"words as vectors of {GLOVE}"
    missing = "" if vectors == "hashed" else f", since {GLOVE} is not available"
    return f"words as random vectors by hash{missing}"


def _glove(vectors: Vectors) -> Path | None:
    """Path of the vectors, or None for hashed ones."""
    if vectors == "hashed":
        return None
    return files.require(GLOVE, _HOW) if vectors == "glove" else files.find(GLOVE)


def hashed(known: Sequence[str], seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """A vector for each word that depends on the seed and the word only."""
    root = Seed(seed).fold("vectors")
    return {word: (root.fold(word).uniform(WIDTH) - 0.5).astype(np.float32) for word in known}


def read_glove(path: Path, known: Collection[str]) -> dict[str, npt.NDArray[np.float32]]:
    """The vectors of the words that are in the file, in the order of the words.

    Each line is a word and 300 numbers, separated by spaces; there is no header.
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
        raise DataError(f"{path} has no vector for any of the {len(wanted)} words. Use the published file")
    return {word: found[word] for word in sorted(found)}


def _vector(path: Path, number: int, rest: bytes) -> npt.NDArray[np.float32]:
    try:
        vector = np.array(rest.split(), np.float32)
    except ValueError:
        vector = np.zeros(0, np.float32)
    if vector.shape != (WIDTH,) or not np.isfinite(vector).all():
        raise DataError(f"{path}, line {number}: a word must be followed by {WIDTH} numbers")
    return vector
