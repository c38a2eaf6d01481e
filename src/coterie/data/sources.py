"""Which files a data set is read from: an .npz archive or its publisher's files, found on disk or downloaded.

In each folder of `files.folders()` in turn, the one that COTERIE_DATA names and then the cache, the publisher's files
are looked for in the sub-folders that `publishers.listing` names, and then the archive. What is nowhere is downloaded
into the cache, where the publisher has an address for it; files that are there already are not fetched again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coterie.data import files
from coterie.data.publishers.downloading import fetch
from coterie.data.publishers.growing import checksum
from coterie.data.publishers.listing import MADE, PUBLISHED, File, Published
from coterie.errors import DataError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """The files that a data set is read from.

    Attributes:
        paths: Where they are.
        published: What they are if they are the publisher's; None: an archive.
        altered: Whether one of them is known to differ from what was published.
    """

    paths: tuple[Path, ...]
    published: Published | None = None
    altered: bool = False

    def __str__(self) -> str:
        """What to call them."""
        if self.published is None:
            return self.paths[0].name
        more = len(self.paths) - 1
        others = "" if not more else f" and {more} more" if more > 1 else f" and {self.paths[1].name}"
        return f"{self.paths[0].name}{others}{'' if self.altered else ', as published'}"

    def checked(self, digests: Sequence[str] = ()) -> Source:
        """The same files, compared with the published checksums; a warning names those that differ.

        Args:
            digests: Their SHA-256, if it has been computed already.
        """
        altered = False
        for place, file in enumerate(self.published.files if self.published is not None else ()):
            if file.checksum is None:
                continue
            kind, _, digits = file.checksum.partition(":")
            got = digests[place] if kind == "sha256" and digests else checksum(self.paths[place], kind)
            if got != digits:
                altered = True
                log.warning("%s is not as published: its %s is %s, not %s", self.paths[place], kind, got, digits)
        return replace(self, altered=altered)


def found(archive: str) -> Source | None:
    """What is on disk of the data set that goes by the name of this archive; None: not all of it."""
    published = PUBLISHED.get(archive)
    for folder in files.folders():
        paths = published.within(folder) if published is not None else None
        if paths is not None:
            return Source(paths, published)
        if (folder / archive).is_file():
            return Source((folder / archive,))
    if published is None or not published.files:
        return None
    scattered = [_somewhere(file, published) for file in published.files]
    paths = tuple(path for path in scattered if path is not None)
    return Source(paths, published) if len(paths) == len(scattered) else None


def source(archive: str) -> Source:
    """The files of the data set that goes by the name of this archive, which are downloaded if they are nowhere."""
    there = found(archive)
    if there is not None:
        return there
    published = PUBLISHED.get(archive)
    if published is None:
        return Source((files.find(archive, MADE.get(archive, "")),))
    if not published.files:
        raise DataError(f"{published.title} is not at hand. {_by_hand(published, published.names)}")
    return Source(tuple(_fetched(file, published) for file in published.files), published)


def advice(archive: str) -> str:
    """How to get a data set that is not at hand, in a sentence or two."""
    published = PUBLISHED.get(archive)
    if published is None:
        how = f". {MADE[archive]}" if archive in MADE else ""
        return f"put {archive} into $COTERIE_DATA{how}"
    if not published.files:
        return whole(archive)
    return f"downloaded when it is first used, from {_folder(published.files[0])}; or {whole(archive)}"


def whole(archive: str) -> str:
    """How to get all of a data set of which a part is at hand, in a sentence; empty if nobody hands it out."""
    published = PUBLISHED.get(archive)
    if published is None:
        return ""
    by_hand = f"put {published.names} into $COTERIE_DATA/{published.folders[0]}"
    return f"{by_hand}; {published.how}" if published.how else by_hand


def _somewhere(file: File, published: Published) -> Path | None:
    for folder in files.folders():
        for place in published.folders:
            if (folder / place / file.name).is_file():
                return folder / place / file.name
    return None


def _fetched(file: File, published: Published) -> Path:
    try:
        return _somewhere(file, published) or fetch(file, files.cache() / published.folders[0])
    except DataError as error:
        why = f"{file.name} of {published.title} is not at hand and could not be downloaded ({error})"
        missing = [each for each in published.files if _somewhere(each, published) is None]
        named = " and ".join(f"{each.name} ({' or '.join(each.addresses)})" for each in missing)
        raise DataError(f"{why}.\n{_by_hand(published, named)}") from error


def _by_hand(published: Published, names: str) -> str:
    where = files.folders()[0] / published.folders[0]
    unset = f"; or into {published.folders[0]} in a folder of your choice, and set {files.VARIABLE} to that folder"
    start = f"Put {names} into {where}{'' if os.environ.get(files.VARIABLE) else unset}"
    return f"{start}. {published.how}" if published.how else f"Download by other means. {start}"


def _folder(file: File) -> str:
    return file.addresses[0].removesuffix(file.name)
