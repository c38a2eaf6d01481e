"""Shakespeare's plays by role: the next character from the 80 before it.

Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097, after McMahan et al., arXiv:1602.05629;
SR-FCA (Vardhan et al., TMLR 2024, arXiv:2210.11538) draws 50 roles. A client is a role, in one play. Every character
of what it says is an example: its label is the character, its input the 80 before it, with spaces before the
beginning. The first four fifths are for training, the rest for testing; the 79 characters in between are left out, as
in LEAF, for their inputs would overlap with what is trained on. Nobody knows true clusters of the roles.

LEAF's own files are used where they are at hand. `shakespeare.json.gz` has other roles, cut from another edition:
there a role's lines follow each other with a line break between them, while in LEAF each speech begins anew with
spaces.
"""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data import sources
from coterie.data.federated import FederatedData, Index, aligned
from coterie.data.partition import assemble
from coterie.data.partition.counting import at_least, at_most
from coterie.data.publishers.leaf_text import User, read_split
from coterie.data.text import CHARACTERS, characters
from coterie.errors import DataError
from coterie.seeds import Seed
from coterie.types import Array

FILE = "shakespeare.json.gz"
TITLE = "Shakespeare's plays by role"
WINDOW = 80
#: The share of a role's characters for training; of as many as are for training, a quarter are for testing.
SHARE = 0.8

_HOW = (
    f"It must hold an object by role, each with a list of texts called lines, or be LEAF's files: {WINDOW} characters"
)
#: Inputs and labels of a role.
_Examples = tuple[Array, Array]


def shakespeare(*, clients: int = 50, most: int = 0, seed: int = 0) -> FederatedData:
    """Some roles with all that they say; a client's id is play and role.

    Args:
        clients: How many roles, drawn at random; 0 for all.
        most: Training examples of a role at the most, the first ones, and a quarter as many for testing; 0 for all.
        seed: Fixes every draw.
    """
    at_least("clients", clients, 0)
    at_least("most", most, 0)
    origin = sources.source(FILE)
    if origin.published is None:
        roles: dict[str, Any] = _read(origin.paths[0])
    else:
        roles = dict(read_split(origin.paths, _is_window, f"x must be {WINDOW} characters and y the next one"))
    names = sorted(roles)
    if clients:
        at_most("clients", clients, len(names), "the number of roles")
        names = [names[i] for i in sorted(Seed(seed).fold("roles").sample(len(names), clients))]
    parts = [_of_leaf(role) if isinstance(role, User) else _of_text(role) for role in (roles[name] for name in names)]
    if most:
        parts = [(_first(fit, most), _first(test, max(1, most // 4))) for fit, test in parts]
    (x, y, fit), (x_test, y_test, test) = (_joined([pair[side] for pair in parts]) for side in (0, 1))
    return assemble(
        "shakespeare",
        (x, y),
        fit,
        test=(x_test, y_test),
        tested=test,
        seed=seed,
        classes=len(CHARACTERS),
        tokens=len(CHARACTERS),
        clients=names,
        source=f"{TITLE}, from {origin}",
    )


def _read(path: Path) -> dict[str, str]:
    """What each role says."""
    try:
        with gzip.open(path) as stream:
            held = json.load(stream)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {str(error).rstrip('.')}. {_HOW}") from error
    if not isinstance(held, dict) or not held:
        raise DataError(f"{path} has no roles. {_HOW}")
    texts = {}
    for role, entry in held.items():
        lines = entry.get("lines") if isinstance(entry, dict) else None
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise DataError(f"{path}, role {role!r}: has no list of texts called lines. {_HOW}")
        texts[role] = "\n".join(lines)
    return texts


def _is_window(x: Any, y: Any) -> bool:
    return isinstance(x, str) and isinstance(y, str) and len(x) == WINDOW and len(y) == 1


def _of_text(text: str) -> tuple[_Examples, _Examples]:
    """Training and test examples of a role from all that it says."""
    ids = characters(" " * WINDOW + text)
    x, y = np.lib.stride_tricks.sliding_window_view(ids, WINDOW)[: len(text)], ids[WINDOW:]
    kept = min(len(text), max(1, int(SHARE * len(text))))
    first = kept + WINDOW - 1
    return (x[:kept], y[:kept]), (x[first:], y[first:])


def _of_leaf(role: User) -> tuple[_Examples, _Examples]:
    fit, test = (
        (characters("".join(x)).reshape(-1, WINDOW), characters("".join(y))) for x, y in (role.train, role.test)
    )
    return fit, test


def _first(examples: _Examples, count: int) -> _Examples:
    return examples[0][:count], examples[1][:count]


def _joined(parts: list[_Examples]) -> tuple[Array, Array, Index]:
    """All inputs in one array, all labels in another, and whose they are."""
    sizes = np.array([len(y) for _, y in parts], np.int64)
    x = aligned(np.empty((int(sizes.sum()), WINDOW), np.uint8))
    np.concatenate([own for own, _ in parts], out=x)
    y = np.concatenate([own for _, own in parts]).astype(np.int32)
    return x, y, Index.from_sizes(np.arange(len(y)), sizes)
