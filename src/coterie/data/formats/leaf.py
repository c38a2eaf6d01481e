"""Reader of LEAF's JSON: {"users": [id, …], "num_samples": [n, …], "user_data": {id: {"x": […], "y": […]}}}.

`read_users` reads numbers. FEMNIST comes as many files, all_data_0.json and so on, of 100 writers each; an image is a
row of 784 numbers from 0 to 1, white is 1. Fed-MEx has one file for training and one for testing.

`read_split` reads text, from folders `train` and `test` with one or more files each. In Shakespeare, x is 80
characters and y the next one. In Sent140, x is a list [id, date, query, account, text, …] and y is 1 for a positive
tweet, or "4" in the form that FedProx uses. In Fed-Goodreads, x is a sentence or a row of word counts.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.cache import Decoded, concatenated
from coterie.data.checks import fits_int32
from coterie.data.federated import aligned
from coterie.errors import DataError
from coterie.types import Array


def read_femnist(paths: Sequence[Path]) -> Decoded:
    """Images of 28×28 bytes with the column `writer`, from all files together."""
    images: list[Array] = []
    labels: list[Array] = []
    writers: list[Array] = []
    names: list[str] = []
    for path in paths:
        for user, x, y in read_users(path, 28 * 28):
            if len(x) and not (x.min() >= 0 and x.max() <= 1):
                raise DataError(f"{path}, user {user!r}: pixels must be numbers from 0 to 1")
            images.append(np.rint(255 * x).astype(np.uint8).reshape(-1, 28, 28))
            labels.append(y)
            writers.append(np.full(len(y), len(names), np.int32))
            names.append(user)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{paths[0].parent}: user {twice!r} occurs twice. Keep the files of one sampling only")
    x = aligned(np.empty((sum(map(len, images)), 28, 28), np.uint8))
    np.concatenate(images, out=x)
    y, writer = (aligned(np.concatenate(parts)) for parts in (labels, writers))
    return Decoded(x, y, len(y), {"writer": writer}, {"writer": names})


def read_fed_mex(paths: Sequence[Path]) -> Decoded:
    """Examples of five pictures of 16×16 pressures, with the column `client`, from a training and a test file."""
    parts = []
    names: list[str] = []
    for path in paths:
        users = sorted(read_users(path, 5 * 16 * 16), key=lambda user: user[0])
        names = names or [user for user, _, _ in users]
        if [user for user, _, _ in users] != names:
            raise DataError(f"{path} has other users than {paths[0]}. Use both files of one version")
        client = np.repeat(np.arange(len(users)), [len(y) for _, _, y in users])
        x, y = (np.concatenate([user[place] for user in users]) for place in (1, 2))
        parts.append((x.astype(np.float32).reshape(-1, 5, 16, 16), y, client))
    (x, y, client), (x_test, y_test, client_test) = parts
    made = concatenated(x, y, x_test, y_test, client=(client, client_test))
    return Decoded(made.x, made.y, made.train, made.columns, {"client": names})


def read_users(path: Path, features: int) -> list[tuple[str, Array, Array]]:
    """Each user of a file with examples, (n, features) floats, and labels, (n,) integers."""
    try:
        with path.open(encoding="utf-8") as stream:
            # Millions of pixels have a few hundred distinct values: each is parsed once.
            content = json.load(stream, parse_float=functools.lru_cache(1 << 16)(float))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # invalid JSON and invalid UTF-8 raise a ValueError
        raise _not_json(path, error) from error
    if not isinstance(content, dict) or not {"users", "num_samples", "user_data"} <= set(content):
        raise DataError(f"{path} must hold an object with users, num_samples and user_data, as LEAF writes it")
    users, sizes, data = content["users"], content["num_samples"], content["user_data"]
    if not (isinstance(users, list) and isinstance(sizes, list) and isinstance(data, dict)):
        raise DataError(f"{path}: users and num_samples must be lists, user_data an object by user")
    if not users or len(users) != len(sizes):
        raise DataError(f"{path} has {len(sizes)} entries in num_samples for {len(users)} users")
    return [(str(user), *_examples(path, user, data, size, features)) for user, size in zip(users, sizes, strict=True)]


def _examples(path: Path, user: Any, data: dict[str, Any], size: Any, features: int) -> tuple[Array, Array]:
    where = f"{path}, user {user!r}"
    own = data.get(user) if isinstance(user, str) else None
    if not isinstance(own, dict) or not {"x", "y"} <= set(own):
        raise DataError(f"{where}: user_data has no x and y for it")
    try:
        x, y = np.asarray(own["x"], np.float64), np.asarray(own["y"])
    except (ValueError, TypeError) as error:  # rows of unequal length, or strings
        raise DataError(f"{where}: x must be rows of {features} numbers each, and y a list of numbers") from error
    if x.size == 0 and y.shape == (0,):
        x, y = x.reshape(0, features), y.astype(np.int64)
    if x.shape != (size, features) or y.shape != (size,):
        raise DataError(f"{where}: must have {size} rows of {features} numbers and {size} labels")
    # FedProx's scripts write labels as 3.0.
    if y.dtype.kind not in "iuf" or not np.isfinite(x).all() or (y != np.floor(y)).any() or (y < 0).any():
        raise DataError(f"{where}: labels must be integers of at least 0, and all numbers finite")
    if not fits_int32(y):
        raise DataError(f"{where}: labels must be 32-bit integers, got {y.max()}")
    return x, y.astype(np.int32)


@dataclass
class User:
    """Examples of a user as in the files: (x, y) of the training and the test part."""

    train: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))
    test: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))


def read_split(paths: Sequence[Path], check: Callable[[Any, Any], bool], how: str) -> dict[str, User]:
    """The users of some files, in the order of their names.

    Args:
        paths: Files in folders called train and test.
        check: Whether an x and its y have the right format.
        how: The right format, for error messages.
    """
    users: dict[str, User] = {}
    for path in paths:
        part = path.parent.name
        for name, x, y in _text_users(path):
            bad = next((place for place, pair in enumerate(zip(x, y, strict=True)) if not check(*pair)), None)
            if bad is not None:
                raise DataError(f"{path}, user {name!r}, example {bad}: {how}")
            user = users.setdefault(name, User())
            if getattr(user, part) != ([], []):
                raise DataError(f"{path}: user {name!r} occurs twice. Keep the files of one sampling only")
            setattr(user, part, (x, y))
    parts = {path.parent.name for path in paths}
    if parts != {"train", "test"}:
        where = paths[0].parent.parent
        raise DataError(
            f"{where} must have the folders train and test with .json files, it has {', '.join(parts)} only"
        )
    return dict(sorted(users.items()))


def _text_users(path: Path) -> list[tuple[str, list[Any], list[Any]]]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise _not_json(path, error) from error
    if (
        not isinstance(content, dict)
        or not isinstance(content.get("users"), list)
        or not isinstance(content.get("user_data"), dict)
    ):
        raise DataError(f"{path} must hold an object with users, a list, and user_data, an object, as LEAF writes it")
    found = []
    for user in content["users"]:
        own = content["user_data"].get(user) if isinstance(user, str) else None
        x, y = (own.get("x"), own.get("y")) if isinstance(own, dict) else (None, None)
        if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
            raise DataError(f"{path}, user {user!r}: user_data must have lists x and y of one length for it")
        found.append((user, x, y))
    return found


def _not_json(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is not valid or not complete JSON: {error}. Make it or download it again")
