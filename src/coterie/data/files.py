"""Where files of data are looked for: the folder that COTERIE_DATA names, then the user's cache."""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path

from coterie.errors import DataError

log = logging.getLogger(__name__)

#: The environment variable that names the folder with the files.
VARIABLE = "COTERIE_DATA"


def cache() -> Path:
    """The folder for data in the user's cache; it need not exist."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "coterie" / "data"


def folders() -> list[Path]:
    """The folders in which a file is looked for, in this order."""
    named = os.environ.get(VARIABLE)
    if not named:
        return [cache()]
    folder = Path(os.path.expanduser(named))
    if not folder.is_dir():
        _warn(folder)
    return [folder, cache()]


@functools.cache
def _warn(folder: Path) -> None:
    """Once for each folder: it is looked for again and again."""
    log.warning("%s names %s, and there is no such folder", VARIABLE, folder)


def found(file: str) -> Path | None:
    """The path of a file, or None if it is nowhere."""
    for folder in folders():
        if (folder / file).is_file():
            return folder / file
    return None


def find(file: str, how: str = "") -> Path:
    """The path of a file; it is an error if it is nowhere, which says how the file can be had."""
    path = found(file)
    if path is None:
        is_set = "" if os.environ.get(VARIABLE) else " (it is not set)"
        places = " and ".join(str(folder) for folder in folders())
        raise DataError(
            f"There is no file {file}; looked in {places}."
            f" Set the environment variable {VARIABLE}{is_set} to the folder that holds it{how and f'. {how}'}"
        )
    return path
