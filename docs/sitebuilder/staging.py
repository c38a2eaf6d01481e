"""Copies the pages of docs/ and makes the files of the project that they link to part of the site.

A link that leaves docs/ would be broken in the site. Markdown files of the project (CHANGELOG.md, CONTRIBUTING.md) are
copied to project/, other files are shown as pages in code/.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from sitebuilder.paths import DOCS, ROOT, write

#: Folders of docs/ that are not pages, or whose pages are generated from them.
_NOT_PAGES = {"sitebuilder", "methods"}
_ASSETS = {".svg", ".png", ".css", ".js"}
_LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".service": "ini"}
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_FENCE = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.DOTALL | re.MULTILINE)


class Staging:
    """The pages of the site while they are put together.

    Args:
        target: Folder of the pages; it is emptied.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self._added: set[Path] = set()
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)

    def copy_docs(self) -> None:
        """Copy every page and picture of docs/."""
        for path in sorted(DOCS.rglob("*")):
            inside = path.relative_to(DOCS)
            if inside.parts[0] in _NOT_PAGES and inside != Path("methods/README.md"):
                continue
            if path.suffix == ".md":
                self.add_page(str(inside), path.read_text(encoding="utf-8"), path.parent)
            elif path.suffix in _ASSETS:
                (self.target / inside).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, self.target / inside)

    def add_page(self, name: str, text: str, source: Path) -> None:
        """Write a page, and add the files of the project that it links to.

        Args:
            name: Path of the page inside the site.
            text: Its Markdown.
            source: Folder that its relative links start from.
        """
        write(self.target / name, self._with_links(text, source, Path(name).parent))

    def _with_links(self, text: str, source: Path, folder: Path) -> str:
        def replaced(match: re.Match[str]) -> str:
            opening, link, end = match.groups()
            if ":" in link or link.startswith("/"):
                return match[0]
            path = Path(os.path.normpath(source / link))
            if not path.exists() or not path.is_relative_to(ROOT):
                return match[0]
            page = path.relative_to(DOCS) if path.is_relative_to(DOCS) else self.add_project_file(path)
            return f"{opening}{os.path.relpath(page, folder)}{end}"

        return "".join(part if fenced else _LINK.sub(replaced, part) for part, fenced in parts(text))

    def add_project_file(self, path: Path) -> Path:
        """The page of a file outside docs/; it is written when it is first linked to."""
        inside = path.relative_to(ROOT)
        if path == ROOT / "README.md":
            return Path("index.md")
        markdown = path.suffix == ".md"
        page = (
            Path("project") / inside
            if markdown
            else Path("code") / (f"{inside}/index.md" if path.is_dir() else f"{inside}.md")
        )
        if page not in self._added:
            self._added.add(page)
            if markdown:
                self.add_page(str(page), path.read_text(encoding="utf-8"), path.parent)
            elif path.is_dir():
                self.add_page(str(page), _listing(path), path)
            else:
                self.add_code(inside)
        return page

    def add_code(self, inside: Path) -> None:
        """Write the page that shows a file of the project."""
        page = Path("code") / f"{inside}.md"
        self._added.add(page)
        text = (ROOT / inside).read_text(encoding="utf-8").rstrip()
        language = _LANGUAGES.get(inside.suffix, "text")
        head = "---\nsearch:\n  exclude: true\nhide: [navigation]\n---\n"
        write(self.target / page, f"{head}# {inside}\n\n````{language}\n{text}\n````\n")


def parts(text: str) -> Iterator[tuple[str, bool]]:
    """The text in parts, and whether each is fenced code."""
    end = 0
    for match in _FENCE.finditer(text):
        yield text[end : match.start()], False
        yield match[0], True
        end = match.end()
    yield text[end:], False


def _listing(folder: Path) -> str:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return f"# {folder.relative_to(ROOT)}\n\n" + "\n".join(f"- [{path.name}]({path.name})" for path in files) + "\n"
