"""LEAF's json with texts: {"users": [id, …], "user_data": {id: {"x": [text, …], "y": [label, …]}}}.

There is a folder `train` and a folder `test`, each with one such file or several. In Shakespeare, x is 80 characters
and y the one after them. In Sent140, x is a list [id, date, query, account, text, …] and y is 1 for a positive tweet,
or "4" in the form in which FedProx uses it. Fed-Goodreads has sentences, or rows of counts, for x.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.errors import DataError


@dataclass
class User:
    """A user's examples, as they stand in the files: (x, y) of each part."""

    train: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))
    test: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))


def read_split(paths: Sequence[Path], check: Callable[[Any, Any], bool], how: str) -> dict[str, User]:
    """The users of some files, in the order of their names.

    Args:
        paths: Files in folders called train and test.
        check: Whether an x and its y are what they should be.
        how: What they should be, for errors.
    """
    users: dict[str, User] = {}
    for path in paths:
        part = path.parent.name
        for user, x, y in _users(path):
            bad = next((place for place, pair in enumerate(zip(x, y, strict=True)) if not check(*pair)), None)
            if bad is not None:
                raise DataError(f"{path}, user {user!r}, example {bad}: {how}")
            held = users.setdefault(user, User())
            if getattr(held, part) != ([], []):
                raise DataError(f"{path}: user {user!r} occurs twice. Keep the files of one sampling only")
            setattr(held, part, (x, y))
    parts = {path.parent.name for path in paths}
    if parts != {"train", "test"}:
        where = paths[0].parent.parent
        raise DataError(
            f"{where} must have the folders train and test with .json files, it has {', '.join(parts)} only"
        )
    return dict(sorted(users.items()))


def _users(path: Path) -> list[tuple[str, list[Any], list[Any]]]:
    try:
        held = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON, or not whole: {error}. Make it or download it again") from error
    if (
        not isinstance(held, dict)
        or not isinstance(held.get("users"), list)
        or not isinstance(held.get("user_data"), dict)
    ):
        raise DataError(f"{path} must hold an object with users, a list, and user_data, an object, as LEAF writes it")
    found = []
    for user in held["users"]:
        own = held["user_data"].get(user) if isinstance(user, str) else None
        x, y = (own.get("x"), own.get("y")) if isinstance(own, dict) else (None, None)
        if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
            raise DataError(f"{path}, user {user!r}: user_data must have lists x and y of one length for it")
        found.append((user, x, y))
    return found
