"""Write the table of docs/reliability.md from the results of the campaign (`make campaign`).

python docs/reliability.py DIR    collect the results in DIR into docs/reliability.json, and write the table
python docs/reliability.py        write the table from docs/reliability.json
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_suffix(".md")
RESULTS = Path(__file__).with_suffix(".json")
BEGIN, END = "<!-- campaign: begin -->\n", "<!-- campaign: end -->\n"

#: Part of the campaign → title, and what its cases are if they are shown as one row.
PARTS = {
    "kills": ("SIGKILL at a file operation, then resume", "methods"),
    "damage": ("Damaged record", None),
    "specs": ("Fuzzed settings", None),
    "data files": ("Malformed data file", "formats"),
    "faults": ("Faults of 0–90 %, attacks, robust rules", "methods"),
    "endurance": ("Flat memory", None),
    "determinism": ("Same bytes as with two cores", None),
}
#: Outcomes that count something besides the cases themselves.
BESIDES = ("killed twice",)


def collected(folder: Path) -> list[dict[str, Any]]:
    """The results in a folder, by part and case."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json")]
    return sorted(found, key=lambda result: (list(PARTS).index(result["part"]), result["case"]))


def table(results: Iterable[Mapping[str, Any]]) -> str:
    """The table of the page."""
    rows = ["| what | tried | outcome |", "|---|---|---|"]
    results = list(results)
    for part, (title, cases) in PARTS.items():
        own = [result for result in results if result["part"] == part]
        if cases is None:
            rows += [_row(f"{title}: {result['case']}", [result]) for result in own]
        elif own:
            rows.append(_row(f"{title}; {len(own)} {cases}", own))
    return "\n".join(rows) + "\n"


def tried(results: Iterable[Mapping[str, Any]]) -> int:
    """Number of cases in some results."""
    return sum(n for result in results for name, n in result["outcomes"].items() if name not in BESIDES)


def _row(what: str, results: list[Mapping[str, Any]]) -> str:
    outcomes: Counter[str] = Counter()
    for result in results:
        outcomes.update(result["outcomes"])
    texts = [f"{count:,} {name}" for name, count in outcomes.most_common() if name not in BESIDES]
    texts += [f"{outcomes[name]:,} of these {name}" for name in BESIDES if outcomes[name]]
    texts += [f"{result['bytes_each']:,} bytes more each" for result in results if "bytes_each" in result]
    return f"| {what} | {tried(results):,} | {'; '.join(texts)} |"


def page(text: str, results: Iterable[Mapping[str, Any]]) -> str:
    """The page with the table of these results."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit(f"{PAGE} has no place for the table: {BEGIN.strip()} and {END.strip()}")
    return before + begin + table(results) + end + after


if __name__ == "__main__":
    if len(sys.argv) > 1:
        RESULTS.write_text(json.dumps(collected(Path(sys.argv[1])), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), stored), encoding="utf-8")
