"""Broken links: of Markdown pages before the site is built, and of the built site."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sitebuilder.staging import parts

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^ {0,3}#+ +(.+?)(?:\s+\{[^}]*\})?\s*#*$", re.MULTILINE)
_ANCHOR = re.compile(r'(?:\{ *#([\w-]+)|\bid="([^"]+)")')


def slug(heading: str) -> str:
    """The anchor of a heading, as Python-Markdown makes it."""
    plain = re.sub(r"\]\([^)]*\)", "", re.sub(r"[`*\[\]$]|<[^>]+>", "", heading)).replace("\\", "")
    kept = re.sub(r"[^\w\s-]", "", plain.encode("ascii", "ignore").decode()).strip().lower()
    return re.sub(r"[-\s]+", "-", kept)


def anchors(text: str) -> set[str]:
    """All anchors of a Markdown page."""
    prose = "".join(part for part, fenced in parts(text) if not fenced)
    found: set[str] = set()
    for heading in _HEADING.findall(prose):
        name, number = slug(heading), 0
        while (unique := f"{name}_{number}" if number else name) in found:
            number += 1
        found.add(unique)
    return found | {first or second for first, second in _ANCHOR.findall(prose)}


def broken(pages: Path) -> list[str]:
    """Links of Markdown pages to files or anchors that do not exist, as "page: link"."""
    known = {path.resolve(): anchors(path.read_text(encoding="utf-8")) for path in pages.rglob("*.md")}
    found = []
    for path in sorted(known):
        text = "".join(part for part, fenced in parts(path.read_text(encoding="utf-8")) if not fenced)
        for link in _LINK.findall(re.sub(r"`[^`\n]*`", "", text)):
            address = urlsplit(link)
            if address.scheme or link.startswith("//"):
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            anchor = "" if address.fragment in ("only-light", "only-dark") else address.fragment
            if not target.is_file() or (anchor and anchor not in known.get(target, {anchor})):
                found.append(f"{path.relative_to(pages.resolve())}: {link}")
    return found


class _Page(HTMLParser):
    """Links and anchors of one HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.requests: list[str] = []
        self.anchors: set[str] = {""}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what links and what is loaded."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "next", "prev") and "href" in given:
            self.requests.append(given["href"])
        elif tag in ("img", "script", "iframe", "source") and "src" in given:
            self.requests.append(given["src"])


def broken_in_site(site: Path) -> list[str]:
    """Links of a built site to files or anchors that do not exist, and requests to other hosts."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        pages[path.resolve()] = page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        found += [f"{name}: loads {link}" for link in page.requests if urlsplit(link).netloc]
        if name.name == "404.html":
            continue
        for link in [*page.links, *page.requests]:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (target in pages and unquote(address.fragment) not in pages[target].anchors):
                found.append(f"{name}: {link}")
    return sorted(set(found))
