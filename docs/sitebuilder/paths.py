"""Folders of the documentation, and a fingerprint of the sources."""

from __future__ import annotations

import hashlib
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WORK = ROOT / "build" / "docs"
PAGES = WORK / "pages"
SITE = ROOT / "build" / "site"


def fingerprint(*more: Path | str) -> str:
    """A hash of the library's sources and of these files and texts, to know what is out of date."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted((ROOT / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    for each in more:
        digest.update(each.read_bytes() if isinstance(each, Path) else each.encode())
    return digest.hexdigest()


def write(path: Path, text: str) -> None:
    """Write a text file, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
