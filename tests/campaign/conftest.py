"""Counts of the campaign, and the results that `docs/reliability.md` shows.

Each part of the campaign takes its counts from `campaign`: a small share by default, all of it with `--campaign-full`.
`tally` counts outcomes and, with `--campaign-results DIR`, writes them to a JSON file for `docs/reliability.py`.
"""

from __future__ import annotations

import contextlib
import json
import re
import resource
import signal
from collections import Counter
from pathlib import Path

import pytest

#: Longest error message that bad input may cause.
LONGEST = 2000
#: Seconds and bytes that one case may take beyond what the process has already.
SECONDS, MEMORY = 20, 4 << 30


class Tally:
    """Counts what happened in one test."""

    def __init__(self, part: str, case: str) -> None:
        self.part, self.case = part, case
        self.outcomes: Counter[str] = Counter()
        self.facts: dict[str, float] = {}

    def add(self, outcome: str, count: int = 1) -> None:
        """Count an outcome."""
        self.outcomes[outcome] += count

    def write(self, folder: Path) -> None:
        """Write the counts to a file of their own, since tests run in several processes."""
        name = re.sub(r"[^A-Za-z0-9]+", "-", f"{self.part}-{self.case}").strip("-").lower()
        content = {"part": self.part, "case": self.case, "outcomes": dict(sorted(self.outcomes.items())), **self.facts}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@pytest.fixture
def tally(request):
    """`tally(part, case)` → a `Tally`, written at the end of a test that passes."""
    made: list[Tally] = []

    def start(part: str, case: str) -> Tally:
        made.append(Tally(part, case))
        return made[-1]

    failed = request.session.testsfailed
    yield start
    folder = request.config.getoption("--campaign-results")
    if folder and request.session.testsfailed == failed:
        for each in made:
            each.write(Path(folder))


def checked_message(fault: Exception) -> str:
    """The message of an error; it is short enough, and its characters can be shown in any terminal."""
    text = str(fault)
    assert 0 < len(text) <= LONGEST, f"{len(text)} characters: {text[:200]}"
    strange = {character for character in text if not (character.isprintable() or character == "\n")}
    assert not strange, f"characters {sorted(map(ascii, strange))} in {text[:300]!a}"
    text.encode()
    return text


@pytest.fixture(scope="session")
def message():
    """`message(error)` → its text, after checking length and characters."""
    return checked_message


@contextlib.contextmanager
def limited():
    """No case may hang, or take all memory."""

    def late(*_):
        raise TimeoutError(f"took longer than {SECONDS} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture(scope="session")
def bounded():
    """A context manager for one case: `with bounded(): ...`."""
    return limited
