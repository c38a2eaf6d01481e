"""Fenced code of the documentation."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from sitebuilder.paths import ROOT

PAGES = sorted(
    path
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    if path.parent.name != "decisions" or path.name == "README.md"
)
_FENCE = re.compile(
    r"^(?:(?P<indent> *)<!-- not run: (?P<reason>.+?) -->\n)?"
    r"(?P<space> *)(?P<ticks>`{3,}) *(?P<language>\S*).*\n(?P<body>(?:.*\n)*?)(?P=space)(?P=ticks) *$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Fence:
    """A block of fenced code.

    Attributes:
        page: Path of the page in the repository.
        line: Number of its first line.
        language: Word after the backticks.
        body: The code.
        reason: Why it is not run, from a comment before it; None if it is run.
    """

    page: str
    line: int
    language: str
    body: str
    reason: str | None

    def commands(self) -> list[str]:
        """The commands of a shell block, without comments and with continued lines joined."""
        joined = self.body.replace("\\\n", " ")
        lines = (_without_comment(line).strip() for line in joined.splitlines())
        return [line for line in lines if line]


def _without_comment(line: str) -> str:
    quotes = re.split(r"('[^']*'|\"[^\"]*\")", line)
    for place, part in enumerate(quotes):
        if place % 2 == 0 and (found := re.search(r"(?:^|\s)#", part)):
            return "".join(quotes[:place]) + part[: found.start()]
    return line


def fences(path: Path) -> list[Fence]:
    """All blocks of a page."""
    text = path.read_text(encoding="utf-8")
    return [
        Fence(
            str(path.relative_to(ROOT)),
            text.count("\n", 0, match.start()) + 1,
            match["language"],
            match["body"],
            match["reason"],
        )
        for match in _FENCE.finditer(text)
    ]


def words(command: str) -> list[str]:
    """The words of a command of coterie, up to a pipe or a redirection."""
    parsed = shlex.split(command, comments=False)
    for place, word in enumerate(parsed):
        if word in ("|", ">", "2>", "&&"):
            return parsed[:place]
    return parsed
