"""Shakespeare's plays, with one client per role: predict the next character from the 80 before it.

Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097, after McMahan et al., arXiv:1602.05629;
SR-FCA (Vardhan et al., TMLR 2024, arXiv:2210.11538) draws 50 roles. A client is a role in one play. Each character of
its text is an example: the label is the character, the input the 80 characters before it, padded with spaces at the
beginning. The first 80 % are training examples, the rest are test examples; the 79 characters in between are left out,
as in LEAF, because their inputs overlap with training examples. The true clusters are unknown.

LEAF's files are used if they are available. `shakespeare.json.gz` has other roles, from another edition: there the
lines of a role are joined with line breaks, while in LEAF each speech starts again with spaces.
"""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.catalog import CATALOG
from coterie.data.checks import at_least, at_most
from coterie.data.federated import FederatedData, Index, aligned
from coterie.data.files import obtain
from coterie.data.formats.leaf import User, read_split
from coterie.data.formats.text import CHARACTERS, characters
from coterie.data.partition import assemble
from coterie.errors import DataError
from coterie.seeds import Seed
from coterie.types import Array

#: Characters per input.
WINDOW = 80
#: Fraction of a role's characters used for training.
SHARE = 0.8

_HOW = "It must hold an object by role, each with a list of strings called lines"
#: Inputs and labels of a role.
_Examples = tuple[Array, Array]


def shakespeare(*, clients: int = 50, max_samples: int = 0, seed: int = 0) -> FederatedData:
    """One client per role; its id is play and role.

    Args:
        clients: Number of roles, drawn at random; 0 for all.
        max_samples: Maximum number of training examples per role; the first ones are used, and a quarter of that number
            for testing. 0 for no maximum.
        seed: Random seed.
    """
    at_least("clients", clients, 0)
    at_least("max_samples", max_samples, 0)
    origin = obtain(CATALOG["shakespeare"].files[0])
    if not origin.published:
        roles: dict[str, Any] = _read(origin.paths[0])
    else:
        roles = dict(read_split(origin.paths, _is_window, f"x must be {WINDOW} characters and y the next one"))
    names = sorted(roles)
    if clients:
        at_most("clients", clients, len(names), "the number of roles")
        names = [names[i] for i in sorted(Seed(seed).fold("roles").sample(len(names), clients))]
    parts = [_of_leaf(role) if isinstance(role, User) else _of_text(role) for role in (roles[name] for name in names)]
    if max_samples:
        parts = [(_first(fit, max_samples), _first(test, max(1, max_samples // 4))) for fit, test in parts]
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
        source=origin.describe(),
    )


def _read(path: Path) -> dict[str, str]:
    """The text of each role."""
    try:
        with gzip.open(path) as stream:
            content = json.load(stream)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {str(error).rstrip('.')}. {_HOW}") from error
    if not isinstance(content, dict) or not content:
        raise DataError(f"{path} has no roles. {_HOW}")
    texts = {}
    for role, entry in content.items():
        lines = entry.get("lines") if isinstance(entry, dict) else None
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise DataError(f"{path}, role {role!r}: has no list of strings called lines. {_HOW}")
        texts[role] = "\n".join(lines)
    return texts


def _is_window(x: Any, y: Any) -> bool:
    return isinstance(x, str) and isinstance(y, str) and len(x) == WINDOW and len(y) == 1


def _of_text(text: str) -> tuple[_Examples, _Examples]:
    """Training and test examples of a role from its text."""
    ids = characters(" " * WINDOW + text)
    x, y = np.lib.stride_tricks.sliding_window_view(ids, WINDOW)[: len(text)], ids[WINDOW:]
    train = min(len(text), max(1, int(SHARE * len(text))))
    first = train + WINDOW - 1
    return (x[:train], y[:train]), (x[first:], y[first:])


def _of_leaf(role: User) -> tuple[_Examples, _Examples]:
    fit, test = (
        (characters("".join(x)).reshape(-1, WINDOW), characters("".join(y))) for x, y in (role.train, role.test)
    )
    return fit, test


def _first(examples: _Examples, count: int) -> _Examples:
    return examples[0][:count], examples[1][:count]


def _joined(parts: list[_Examples]) -> tuple[Array, Array, Index]:
    """All inputs in one array, all labels in another, and the index of the roles."""
    sizes = np.array([len(y) for _, y in parts], np.int64)
    x = aligned(np.empty((int(sizes.sum()), WINDOW), np.uint8))
    np.concatenate([own for own, _ in parts], out=x)
    y = np.concatenate([own for _, own in parts]).astype(np.int32)
    return x, y, Index.from_sizes(np.arange(len(y)), sizes)
