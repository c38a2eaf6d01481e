"""Finds the files of a data set on disk, downloads missing ones, and says how to get those that cannot be downloaded.

Files are searched in the folder that COTERIE_DATA names and then in the user's cache. In each of the two, the
publisher's files are searched first (in the subfolders that the catalog names), then the archive. Files that are in
neither place are downloaded into the cache if the catalog has an address for them.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coterie.data.catalog import Download, Files
from coterie.data.download import checksum, fetch
from coterie.errors import DataError

log = logging.getLogger(__name__)

#: Environment variable with the path of the folder for data files.
VARIABLE = "COTERIE_DATA"


def cache_folder() -> Path:
    """The folder for data in the user's cache; it may not exist yet."""
    import platformdirs

    return platformdirs.user_cache_path("coterie", appauthor=False) / "data"


def folders() -> list[Path]:
    """The folders in which files are searched, in this order."""
    named = os.environ.get(VARIABLE)
    if not named:
        return [cache_folder()]
    folder = Path(os.path.expanduser(named))
    if not folder.is_dir():
        _warn(folder)
    return [folder, cache_folder()]


@functools.cache
def _warn(folder: Path) -> None:
    """Log a warning, once per folder."""
    log.warning("%s names %s, which is not a folder", VARIABLE, folder)


def find(file: str) -> Path | None:
    """The path of a single file, or None."""
    return next((folder / file for folder in folders() if (folder / file).is_file()), None)


def require(file: str, how: str = "") -> Path:
    """The path of a single file; if it is missing, the error says how to get it."""
    path = find(file)
    if path is None:
        is_set = "" if os.environ.get(VARIABLE) else " (it is not set)"
        places = " and ".join(str(folder) for folder in folders())
        raise DataError(
            f"There is no file {file}; looked in {places}."
            f" Set the environment variable {VARIABLE}{is_set} to the folder that holds it{how and f'. {how}'}"
        )
    return path


@dataclass(frozen=True)
class Source:
    """The files on disk that a data set is read from.

    Attributes:
        files: Entry of the catalog.
        paths: Paths of the files.
        published: Whether these are the publisher's files; False for the archive.
        altered: Whether the checksum of a file differs from the published one.
    """

    files: Files
    paths: tuple[Path, ...]
    published: bool = False
    altered: bool = False

    def __str__(self) -> str:
        """File names as text."""
        if not self.published:
            return self.paths[0].name
        more = len(self.paths) - 1
        others = "" if not more else f" and {more} more" if more > 1 else f" and {self.paths[1].name}"
        return f"{self.paths[0].name}{others}{'' if self.altered else ', as published'}"

    def reader(self) -> Callable[[Sequence[Path]], Any]:
        """The function that reads these files."""
        named = self.files.read_published if self.published else self.files.read
        module, _, function = named.partition(":")
        read: Callable[[Sequence[Path]], Any] = getattr(
            importlib.import_module(f"coterie.data.formats.{module}"), function
        )
        return read

    def checked(self, digests: Sequence[str] = ()) -> Source:
        """Compare the files with the published checksums; log a warning for each that differs.

        Args:
            digests: SHA-256 of each file, if already known.
        """
        altered = False
        for place, file in enumerate(self.files.downloads if self.published else ()):
            if file.checksum is None:
                continue
            kind, _, digits = file.checksum.partition(":")
            got = digests[place] if kind == "sha256" and digests else checksum(self.paths[place], kind)
            if got != digits:
                altered = True
                log.warning("%s is not as published: its %s is %s, not %s", self.paths[place], kind, got, digits)
        return replace(self, altered=altered)

    def share(self) -> float:
        """Fraction of the published examples in these files, as far as known from their headers."""
        if self.published or self.files.size is None:
            return 1.0
        return sum(self._lengths()[0]) / sum(self.files.size)

    def describe(self, count: tuple[int, int] | None = None) -> str:
        """Title and file names, with the numbers of examples if the files are a subset.

        Args:
            count: Number of training and test examples in the files. None: read from the headers of the archive;
                a publisher's files are assumed to be complete.
        """
        recropped = ""
        if not self.published and self.files.images is not None:
            lengths, names = self._lengths()
            count = count or lengths
            remade = self.files.images.recropped and "image_train" in names
            recropped = ", cropped again from the full pictures" if remade else ""
        return f"{self.files.title}{self._subset(count)}{recropped}, from {self}"

    def _subset(self, count: tuple[int, int] | None) -> str:
        size = self.files.size
        if size is None or count is None or all(held >= total for held, total in zip(count, size, strict=True)):
            return ""
        parts = zip(count, size, ("training", "test"), strict=True)
        numbers = [f"{held:,} of {total:,} {part}" for held, total, part in parts if total]
        return f", a subset: {' and '.join(numbers)} images"

    def _lengths(self) -> tuple[tuple[int, int], set[str]]:
        """Numbers of training and test examples in an archive, by its headers, and the names of its arrays."""
        from coterie.data.formats.npz import how, read_lengths

        assert self.files.images is not None
        train, test = self.files.images.lengths
        wanted = [array for array in (train, test) if array]
        lengths, names = read_lengths(self.paths[0], wanted, how(wanted))
        counted = dict(zip(wanted, lengths, strict=True))
        return (counted.get(train, 0), counted.get(test, 0)), names


def locate(files: Files) -> Source | None:
    """The files on disk, or None if some are missing."""
    for folder in folders():
        paths = _within(folder, files)
        if paths is not None:
            return Source(files, paths, published=True)
        if (folder / files.archive).is_file():
            return Source(files, (folder / files.archive,))
    if not files.downloads:
        return None
    scattered = [_find(file, files) for file in files.downloads]
    paths = tuple(path for path in scattered if path is not None)
    return Source(files, paths, published=True) if len(paths) == len(scattered) else None


def obtain(files: Files) -> Source:
    """The files on disk; missing ones are downloaded if there is an address for them."""
    source = locate(files)
    if source is not None:
        return source
    if not files.folders:
        return Source(files, (require(files.archive, files.how),))
    if not files.downloads:
        raise DataError(f"{files.name} is not available. {_by_hand(files, files.names)}")
    return Source(files, tuple(_fetched(file, files) for file in files.downloads), published=True)


def advice(files: Files) -> str:
    """How to get files that are not on disk, in a sentence or two."""
    if not files.folders:
        return f"put {files.archive} into $COTERIE_DATA. {files.how}"
    if not files.downloads:
        return complete(files)
    address = files.downloads[0].addresses[0].removesuffix(files.downloads[0].name)
    return f"downloaded on first use from {address}; or {complete(files)}"


def complete(files: Files) -> str:
    """How to get the complete data set if the archive on disk is a subset; empty if only the archive can be used."""
    if not files.folders:
        return ""
    by_hand = f"put {files.names} into $COTERIE_DATA/{files.folders[0]}"
    return f"{by_hand}; {files.how}" if files.how else by_hand


def _within(folder: Path, files: Files) -> tuple[Path, ...] | None:
    """The publisher's files in the first subfolder that has all of them, or None."""
    for place in files.folders:
        if files.pattern:
            found = [
                [path for path in (folder / place).glob(pattern) if path.is_file()]
                for pattern in files.pattern.split(" and ")
            ]
            ordered = (sorted(each, key=lambda path: (len(path.name), path.name)) for each in found)  # 2 before 10
            paths = tuple(path for each in ordered for path in each) if all(found) else ()
        else:
            paths = tuple(folder / place / file.name for file in files.downloads)
        if paths and all(path.is_file() for path in paths):
            return paths
    return None


def _find(file: Download, files: Files) -> Path | None:
    paths = (folder / place / file.name for folder in folders() for place in files.folders)
    return next((path for path in paths if path.is_file()), None)


def _fetched(file: Download, files: Files) -> Path:
    try:
        return _find(file, files) or fetch(file, cache_folder() / files.folders[0])
    except DataError as error:
        why = f"{file.name} of {files.name} is not available and could not be downloaded ({error})"
        missing = [each for each in files.downloads if _find(each, files) is None]
        named = " and ".join(f"{each.name} ({' or '.join(each.addresses)})" for each in missing)
        raise DataError(f"{why}.\n{_by_hand(files, named)}") from error


def _by_hand(files: Files, names: str) -> str:
    where = folders()[0] / files.folders[0]
    unset = f"; or into {files.folders[0]} in a folder of your choice, and set {VARIABLE} to that folder"
    start = f"Put {names} into {where}{'' if os.environ.get(VARIABLE) else unset}"
    return f"{start}. {files.how}" if files.how else f"Download by other means. {start}"
