"""Writes the results of an entry: `table.md`, `table.json` and the report page with a page for each kind of data."""

from __future__ import annotations

import html
import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from coterie.errors import RecordError
from coterie.reproduce.planning import PlannedRun
from coterie.reproduce.results import EntryResult
from coterie.reproduce.running import Outcome
from coterie.reproduce.table import (
    how_measured,
    missing_of,
    notes_of,
    provenance,
    result_cells,
    scaled_down,
    to_dict,
    to_markdown,
    verdict_text,
)
from coterie.runs.record import finite
from coterie.runs.record_files import write_whole

log = logging.getLogger(__name__)

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1a1a1a}
table{border-collapse:collapse;margin:1rem 0}th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right}
th:nth-child(-n+2),td:nth-child(-n+2){text-align:left}div{overflow-x:auto}strong{color:#a33}
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}th,td{border-color:#444}a{color:#8ab4f8}}"""


def write(result: EntryResult, outcomes: Mapping[str, Outcome], folder: Path) -> Path:
    """Write all files of an entry.

    Args:
        result: The results.
        outcomes: Key → outcome of each run, for the pages of runs.
        folder: Where to write.

    Returns:
        The report page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "table.md", to_markdown(result).encode())
    write_whole(folder / "table.json", (json.dumps(finite(to_dict(result)), indent=2) + "\n").encode())
    pages = _pages_of_runs(result, outcomes, folder)
    write_whole(folder / "report.html", _page(result, pages).encode())
    return folder / "report.html"


def _pages_of_runs(result: EntryResult, outcomes: Mapping[str, Outcome], folder: Path) -> dict[str, str]:
    """Title → relative path of a page about the runs with the same data and model."""
    from coterie.reports.page_report import report

    groups: dict[str, dict[str, PlannedRun]] = {}
    for cell in result.plan.cells:
        for run in (*cell.runs, *cell.baselines):
            if isinstance(outcomes[run.key], Path):
                groups.setdefault(_title(run), {})[run.key] = run
    written = {}
    for number, (title, runs) in enumerate(groups.items(), 1):
        name = f"runs-{number}-{re.sub(r'[^a-z0-9.]+', '-', title.lower()).strip('-')[:60]}.html"
        paths = [each for key in runs if isinstance(each := outcomes[key], Path)]
        try:
            report(paths, folder / name)
        except RecordError as fault:  # the table needs less of the records than the page
            log.warning("There is no page about %s: %s. Remove the folder of this run to do it again", title, fault)
        else:
            written[title] = name
    return written


def _title(run: PlannedRun) -> str:
    """Data with the settings that were given, model and shift."""
    spec = run.spec
    options = ", ".join(f"{key} {value}" for key, value in spec.data.options.items() if key != "seed")
    shift = "" if spec.shift.name == "none" else f", {spec.shift.name}"
    return f"{spec.data.name}{f' ({options})' if options else ''}, {spec.model.name}{shift}"


def _page(result: EntryResult, pages: Mapping[str, str]) -> str:
    entry = result.plan.entry
    body = [f"<h1>{_text(f'{entry.name}: {entry.title}')}</h1>", f"<p>{_text(f'{entry.paper}, {entry.source}.')}</p>"]
    if small := scaled_down(result.plan):
        body.append(f"<p><strong>{_text(small[0])}</strong> {_text(' '.join(small[1:]))}</p>")
    about = (f"Setting: {entry.setting}", f"Compared: {entry.compares}.", how_measured(result.plan))
    body += [f"<p>{_text(line)}</p>" for line in about]
    header, lines = result_cells(result)
    rows = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in line)}</tr>" for line in lines)
    titles = "".join(f"<th>{_text(cell)}</th>" for cell in header)
    body.append(f"<div><table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table></div>")
    body += _section("Claims", [_text(verdict_text(each)) for each in result.verdicts])
    body += _section("Runs", [f'<a href="{_text(file)}">{_text(title)}</a>' for title, file in pages.items()])
    body += _section("Not run: data are missing", [_text(line) for line in missing_of(result)])
    body += _section("Notes", [_text(line) for line in (*entry.notes, *notes_of(result))])
    body += _section("Caveats", [_text(line) for line in entry.errors])
    body += _section("How it was run", [_text(line) for line in provenance(result)])
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{_text(entry.name)}</title>'
    )
    start = f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>'
    return f"{start}<body>{''.join(body)}</body></html>\n"


def _section(title: str, items: Sequence[str]) -> list[str]:
    return [f"<h2>{title}</h2><ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"] if items else []


def _text(text: str) -> str:
    return html.escape(text)
