"""LEAF's json: {"users": [id, …], "num_samples": [n, …], "user_data": {id: {"x": [[…], …], "y": […]}}}.

FEMNIST comes as many such files, all_data_0.json and so on, of 100 writers each; an image is a row of 784 numbers from
0 to 1, the paper white (1). Fed-MEx has the same form, with one file for training and one for testing.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.checks import fits_int32
from coterie.data.decoded import Decoded, joined
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
    """Five pictures of 16×16 pressures an example, with the column `client`, from a training and a test file."""
    parts = []
    names: list[str] = []
    for path in paths:
        users = sorted(read_users(path, 5 * 16 * 16), key=lambda user: user[0])
        names = names or [user for user, _, _ in users]
        if [user for user, _, _ in users] != names:
            raise DataError(f"{path} has other users than {paths[0]}. Take both files of one version")
        client = np.repeat(np.arange(len(users)), [len(y) for _, _, y in users])
        x, y = (np.concatenate([user[place] for user in users]) for place in (1, 2))
        parts.append((x.astype(np.float32).reshape(-1, 5, 16, 16), y, client))
    (x, y, client), (x_test, y_test, client_test) = parts
    made = joined(x, y, x_test, y_test, client=(client, client_test))
    return Decoded(made.x, made.y, made.train, made.columns, {"client": names})


def read_users(path: Path, features: int) -> list[tuple[str, Array, Array]]:
    """Each user of a file with its examples, (n, features) floats, and its labels, (n,) whole numbers."""
    try:
        with path.open(encoding="utf-8") as stream:
            # The same few hundred numbers make up millions of pixels: each is made once.
            held = json.load(stream, parse_float=functools.lru_cache(1 << 16)(float))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # what is not JSON or not UTF-8 raises a ValueError
        raise DataError(f"{path} is not JSON, or not whole: {error}. Make it or download it again") from error
    if not isinstance(held, dict) or not {"users", "num_samples", "user_data"} <= set(held):
        raise DataError(f"{path} must hold an object with users, num_samples and user_data, as LEAF writes it")
    users, sizes, data = held["users"], held["num_samples"], held["user_data"]
    if not (isinstance(users, list) and isinstance(sizes, list) and isinstance(data, dict)):
        raise DataError(f"{path}: users and num_samples must be lists, user_data an object by user")
    if not users or len(users) != len(sizes):
        raise DataError(f"{path} has {len(sizes)} entries in num_samples for {len(users)} users")
    return [(str(user), *_examples(path, user, data, size, features)) for user, size in zip(users, sizes, strict=True)]


def _examples(path: Path, user: Any, data: dict[str, Any], size: Any, features: int) -> tuple[Array, Array]:
    whose = f"{path}, user {user!r}"
    own = data.get(user) if isinstance(user, str) else None
    if not isinstance(own, dict) or not {"x", "y"} <= set(own):
        raise DataError(f"{whose}: user_data has no x and y for it")
    try:
        x, y = np.asarray(own["x"], np.float64), np.asarray(own["y"])
    except (ValueError, TypeError) as error:  # rows of unequal length, or texts
        raise DataError(f"{whose}: x must be rows of {features} numbers each, and y a list of numbers") from error
    if x.size == 0 and y.shape == (0,):
        x, y = x.reshape(0, features), y.astype(np.int64)
    if x.shape != (size, features) or y.shape != (size,):
        raise DataError(f"{whose}: must have {size} rows of {features} numbers and as many labels")
    # FedProx's scripts write labels as 3.0.
    if y.dtype.kind not in "iuf" or not np.isfinite(x).all() or (y != np.floor(y)).any() or (y < 0).any():
        raise DataError(f"{whose}: labels must be whole numbers from 0 on, and all numbers finite")
    if not fits_int32(y):
        raise DataError(f"{whose}: labels must be whole numbers of 32 bits, got {y.max()}")
    return x, y.astype(np.int32)
