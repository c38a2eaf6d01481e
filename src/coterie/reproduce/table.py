"""The results of an entry as lines of text, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from coterie import __version__
from coterie.reproduce.claims import Verdict
from coterie.reproduce.identity import sources_hash
from coterie.reproduce.planning import Plan
from coterie.reproduce.results import CellResult, EntryResult
from coterie.reproduce.schema import Variant
from coterie.runs.comparison_tables import Cells, markdown

#: Said wherever results of the scaled-down version are shown.
SCALED_DOWN = "Scaled down (--quick): these values are not comparable with the published ones."


def how_measured(plan: Plan) -> str:
    """What the columns of the table are, as a sentence."""
    seeds = len(plan.seeds)
    what = f"mean over {seeds} seeds ± standard error" if seeds > 1 else "one seed"
    return f"Measured: {what}; difference: measured minus published."


def scaled_down(plan: Plan) -> list[str]:
    """What makes the values of a plan less comparable with the published ones, as sentences; empty: nothing."""
    lines = [SCALED_DOWN, plan.entry.quick.note] if plan.quick else []
    if plan.max_rounds is not None:
        rounds = f"{plan.max_rounds} round{'' if plan.max_rounds == 1 else 's'}"
        lines.append(f"At most {rounds} (--max-rounds); published values may be after more.")
    if plan.only:
        lines.append(f"Only cells that match {' and '.join(plan.only)} (--only).")
    return lines


def result_cells(result: EntryResult) -> Cells:
    """One line per row and column: published, measured ± standard error and difference, for each variant."""
    variants = dict.fromkeys(each.cell.variant for each in result.cells)
    both = "as coded" in variants
    header = ["row", "column", "published"]
    for variant in variants:
        header += [variant if both else "measured", "difference"]
    by_place: dict[tuple[str, str], dict[Variant, CellResult]] = {}
    for each in result.cells:
        if not each.cell.missing:
            by_place.setdefault((each.cell.row, each.cell.column), {})[each.cell.variant] = each
    lines = []
    for (row, column), found in by_place.items():
        first = next(iter(found.values())).cell
        line = [row, column, "–" if first.published is None else first.published.text]
        for variant in variants:
            line += _measured(found[variant], result) if variant in found else ["–", "–"]
        lines.append(line)
    return header, lines


def _measured(each: CellResult, result: EntryResult) -> list[str]:
    """Mean ± standard error, and difference ± standard error."""
    if each.failure:
        return ["failed", "–"]
    if each.mean is None:
        reached = len(each.known)
        return [f"not reached by {len(each.values) - reached} of {len(each.values)} seeds", "–"]
    digits = each.cell.published.digits if each.cell.published is not None else result.plan.entry.digits
    digits = max(digits, each.cell.kind.digits)
    error = "" if each.standard_error is None else f" ± {each.standard_error:.{max(digits, 1)}f}"
    shown = f"{each.mean:.{digits}f}{error}"
    if each.over_rounds is not None:
        shown += f" (± {each.over_rounds:.{digits}f} over rounds)"
    if each.coverage < 1 - 1e-9:
        shown += f" (coverage {100 * each.coverage:.1f} %)"
    if each.difference is None:
        return [shown, "–"]
    return [shown, f"{round(each.difference, digits) + 0.0:+.{digits}f}{error}"]  # + 0.0: no negative zero


def verdict_text(verdict: Verdict) -> str:
    """A claim, how it was checked, and whether it holds."""
    unknown = "not judged, because the runs are scaled down" if verdict.measured else "not checked: values are missing"
    outcome = {True: "holds", False: "does not hold", None: unknown}[verdict.holds]
    if verdict.holds and verdict.measured < verdict.cells:
        outcome += f" for the cells that were measured ({verdict.measured} of {verdict.cells})"
    outcome += ", by less than a standard error" if verdict.holds is not None and verdict.within_error else ""
    values = f" Values: {verdict.evidence}." if verdict.evidence else ""
    return f"{verdict.claim.text} Checked: {verdict.how}: {outcome}.{values}"


def notes_of(result: EntryResult) -> Iterator[str]:
    """What a reader must know about the values: failures, doubts about published values, data that are a subset."""
    failed: dict[str, list[str]] = {}
    trust: dict[str, list[str]] = {}
    for each in result.cells:
        place = f"{each.cell.row}, {each.cell.column}"
        if each.failure:
            failed.setdefault(each.failure, []).append(f"{place}, {each.cell.variant}")
        elif each.values and each.cell.trust and each.cell.variant == "as printed":
            trust.setdefault(each.cell.trust, []).append(place)
    for reason, places in failed.items():
        yield f"Failed ({_places(places)}): {reason}"
    for reason, places in trust.items():
        yield f"Published values with a caveat ({_places(places)}): {reason}"
    for name, source in result.sources.items():
        yield f"Data {name}: {source}"


def _places(places: Sequence[str]) -> str:
    """Names of cells; the first few if there are many."""
    return "; ".join(places) if len(places) <= 6 else f"{'; '.join(places[:5])}; and {len(places) - 5} more"


def missing_of(result: EntryResult) -> list[str]:
    """A line for each data set that is not at hand: what to download, and how many cells need it."""
    return [
        f"{name} ({count} cell{'' if count == 1 else 's'}): {advice}"
        for name, (advice, count) in result.missing.items()
    ]


def to_markdown(result: EntryResult) -> str:
    """The whole result as a Markdown document."""
    entry, plan = result.plan.entry, result.plan
    parts = [f"# {entry.name}: {entry.title}", f"{entry.paper}, {entry.source}."]
    if small := scaled_down(plan):
        parts.append(f"**{small[0]}** {' '.join(small[1:])}")
    parts += [f"Setting: {entry.setting}", f"Compared: {entry.compares}."]
    parts.append(how_measured(plan))
    parts.append(markdown(result_cells(result)) if result.measured else "No cell could be run.")
    sections = {
        "Claims": [verdict_text(each) for each in result.verdicts],
        "Not run: data are missing": missing_of(result),
        "Notes": [*entry.notes, *notes_of(result)],
        "Caveats": list(entry.errors),
        "How it was run": provenance(result),
    }
    for title, lines in sections.items():
        if lines:
            parts.append(f"## {title}\n\n" + "\n".join(f"- {line}" for line in lines))
    if result.measured:
        parts.append("## Specs\n\n" + markdown(_specs(result)))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def provenance(result: EntryResult) -> list[str]:
    """Command, seeds, versions, the state of the sources, and the duration, as sentences."""
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    return [
        f"Command: {result.plan.command}",
        f"Seeds {', '.join(map(str, result.plan.seeds))}; the data are drawn with the same seed, unless a spec says "
        "otherwise.",
        *([f"Versions: {versions}."] if versions else []),
        f"Sources of Coterie outside cli, reports and reproduce: {sources_hash()}.",
        f"Runs took {duration(result.seconds)} together.",
    ]


def _specs(result: EntryResult) -> Cells:
    """Hash of the spec of each cell, without its seed; folders of the records; coverage."""
    lines = []
    for each in result.measured:
        cell = each.cell
        folders = " ".join(dict.fromkeys(run.key for run in (*cell.runs, *cell.baselines)))
        lines.append([f"{cell.row}, {cell.column}, {cell.variant}", cell.spec_hash, f"{each.coverage:.3f}", folders])
    return ["cell", "spec", "coverage", "records"], lines


def to_dict(result: EntryResult) -> dict[str, Any]:
    """The whole result as plain data."""
    entry, plan = result.plan.entry, result.plan
    return {
        "entry": entry.name,
        "title": entry.title,
        "paper": entry.paper,
        "source": entry.source,
        "setting": entry.setting,
        "compares": entry.compares,
        "command": plan.command,
        "quick": plan.quick,
        "scaled_down": " ".join(scaled_down(plan)) or None,
        "seeds": list(plan.seeds),
        "cells": [_cell_dict(each) for each in result.cells],
        "claims": [
            {
                "text": each.claim.text,
                "checked": each.how,
                "holds": each.holds,
                "within_error": each.within_error,
                "measured": each.measured,
                "cells": each.cells,
                "values": each.evidence,
            }
            for each in result.verdicts
        ],
        "missing": {name: advice for name, (advice, _) in result.missing.items()},
        "notes": [*entry.notes, *notes_of(result)],
        "caveats": list(entry.errors),
        "versions": {**result.versions, "coterie": __version__},
        "sources": sources_hash(),
        "data": dict(result.sources),
        "seconds": result.seconds,
    }


def _cell_dict(each: CellResult) -> dict[str, Any]:
    cell = each.cell
    return {
        "row": cell.row,
        "column": cell.column,
        "variant": cell.variant,
        "measure": dict(cell.measure),
        "published": None if cell.published is None else cell.published.value,
        "published_text": None if cell.published is None else cell.published.text,
        "values": list(each.values),
        "mean": each.mean,
        "standard_error": each.standard_error,
        "over_rounds": each.over_rounds,
        "difference": each.difference,
        "coverage": each.coverage,
        "trust": cell.trust or None,
        "failure": each.failure or None,
        "missing": cell.missing or None,
        "data": cell.data,
        "spec_hash": cell.spec_hash,
        "records": [run.key for run in cell.runs],
        "baselines": [run.key for run in cell.baselines],
        "seconds": each.seconds,
    }


def duration(seconds: float) -> str:
    """A duration in words."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
