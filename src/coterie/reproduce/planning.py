"""Makes runs of an entry: for each cell its specs, one per seed, and which data are missing."""

from __future__ import annotations

import fnmatch
import hashlib
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

from coterie.data.files import folders
from coterie.data.loading import available, summaries
from coterie.errors import SpecError
from coterie.reproduce.fragments import merged, with_values
from coterie.reproduce.identity import run_hash, spec_hash
from coterie.reproduce.measures import MEASURES, Measure
from coterie.reproduce.schema import Entry, Fragment, Line, Published, Variant
from coterie.runs.spec import Spec

#: First seed. Seeds below were used to choose defaults.
FIRST_SEED = 100

#: Number of names of rows and columns in an error message.
_SHOWN_NAMES = 12

#: Longest text of patterns in the name of a folder.
_LONGEST_SLUG = 60


@dataclass(frozen=True)
class PlannedRun:
    """A run, or a probe of data.

    Attributes:
        label: For progress and messages.
        spec: What to run.
        key: Hash by which it is stored.
        probe: Options of a measure that needs no run; None: it is a run.
    """

    label: str
    spec: Spec
    key: str
    probe: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class PlannedCell:
    """A cell in one variant.

    Attributes:
        row: Name of the row.
        column: Name of the column.
        variant: As printed, or as coded.
        published: Published value; None if the paper has none.
        trust: Why the published value may not be what it says.
        measure: Name of the measure, and its options.
        data: Name of the data set.
        spec: What is run, with the first seed.
        missing: What to do to get the data; empty if they are at hand.
        runs: One per seed; none if data are missing.
        baselines: One per seed, for a measure that compares.
    """

    row: str
    column: str
    variant: Variant
    published: Published | None
    trust: str
    measure: Mapping[str, Any]
    data: str
    spec: Spec
    missing: str
    runs: tuple[PlannedRun, ...]
    baselines: tuple[PlannedRun, ...] = ()

    @property
    def kind(self) -> Measure:
        """The measure."""
        return MEASURES[self.measure["name"]]

    @property
    def spec_hash(self) -> str:
        """Hash of the spec without its seed."""
        return spec_hash(self.spec)


@dataclass(frozen=True)
class Plan:
    """What is run for an entry.

    Attributes:
        entry: The entry.
        quick: Whether it is the scaled-down version.
        seeds: The seeds.
        cells: The cells, in the order of rows, columns and variants.
        max_rounds: Maximum number of rounds of a run; None: as many as the entry says.
        only: Patterns by which the cells were chosen; empty: all.
    """

    entry: Entry
    quick: bool
    seeds: tuple[int, ...]
    cells: tuple[PlannedCell, ...]
    max_rounds: int | None = None
    only: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of its folder: parts of a table and other numbers of seeds do not replace the whole table."""
        parts = [self.entry.name, *(["quick"] if self.quick else [])]
        if self.max_rounds is not None:
            parts.append(f"{self.max_rounds}-rounds")
        if len(self.seeds) != _seeds(self.entry, self.quick):
            parts.append(f"{len(self.seeds)}-seed{'' if len(self.seeds) == 1 else 's'}")
        if self.only:
            parts.append(_slug(self.only))
        return "-".join(parts)

    @property
    def command(self) -> str:
        """The command that runs it."""
        words = ["coterie", "reproduce", self.entry.name, *(["--quick"] if self.quick else [])]
        if len(self.seeds) != _seeds(self.entry, self.quick):
            words += ["--seeds", str(len(self.seeds))]
        for pattern in self.only:
            words += ["--only", pattern]
        if self.max_rounds is not None:
            words += ["--max-rounds", str(self.max_rounds)]
        return shlex.join(words)

    @property
    def runs(self) -> dict[str, PlannedRun]:
        """Key → run, each once: cells share runs."""
        return {run.key: run for cell in self.cells for run in (*cell.runs, *cell.baselines)}


def _seeds(entry: Entry, quick: bool) -> int:
    return entry.quick.seeds if quick else entry.seeds


def _slug(patterns: Sequence[str]) -> str:
    """Patterns as part of the name of a folder; a hash makes long or unusual ones unique."""
    text = " ".join(patterns).casefold()
    slug = re.sub(r"[^\w.]+", "-", text).strip("-")
    if slug == text.replace(" ", "-") and len(slug) <= _LONGEST_SLUG:
        return slug
    return f"{slug[:_LONGEST_SLUG].strip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def plan_all(
    entries: Sequence[Entry],
    *,
    quick: bool = False,
    seeds: int | None = None,
    only: Sequence[str] = (),
    max_rounds: int | None = None,
) -> list[Plan]:
    """Plan several entries; those without a cell that matches `only` are left out.

    Raises:
        SpecError: If a pattern is empty, or no entry has a cell that matches.
    """
    for pattern in only:
        if not all(part.strip() for part in pattern.split("|")):
            raise SpecError(f"--only {pattern!r} has an empty part, which would match every cell")
    plans = [plan(each, quick=quick, seeds=seeds, only=only, max_rounds=max_rounds) for each in entries]
    found = [each for each in plans if each.cells]
    if only and not found:
        searched = ", ".join(each.name for each in entries[:3]) + (", …" if len(entries) > 3 else "")
        patterns = " and ".join(only)
        raise SpecError(
            f"No cell of {searched} has a row, column or variant that matches {patterns}. {_existing(entries)}"
        )
    return found


def _existing(entries: Sequence[Entry]) -> str:
    """Names that a pattern can match in the first entry; if there are many, the first of them."""
    first = entries[0]
    rows, columns = (
        ", ".join([line.name for line in lines][:_SHOWN_NAMES] + ["…"] * (len(lines) > _SHOWN_NAMES))
        for lines in (first.rows, first.columns)
    )
    return f"Rows of {first.name}: {rows}; columns: {columns}"


def plan(
    entry: Entry,
    *,
    quick: bool = False,
    seeds: int | None = None,
    only: Sequence[str] = (),
    max_rounds: int | None = None,
) -> Plan:
    """Plan an entry.

    Args:
        entry: The entry.
        quick: Plan the scaled-down version.
        seeds: Number of seeds; None: that of the entry.
        only: Patterns; only cells whose row, column or variant matches each of them. A pattern that is the name of a
            row, column or variant matches only that, others match names in which a word begins so. Empty: all.
        max_rounds: Maximum number of rounds of a run; None: as many as the entry says.
    """
    count = seeds if seeds is not None else _seeds(entry, quick)
    numbers = tuple(range(FIRST_SEED, FIRST_SEED + count))
    chosen = entry.quick
    names = {line.name.casefold() for pair in entry.pairs() for line in pair} | set(get_args(Variant))
    cells = [
        _cell(entry, row, column, variant, numbers, quick, max_rounds)
        for row, column in entry.pairs()
        if not quick or (row.name in (chosen.rows or [row.name]) and column.name in (chosen.columns or [column.name]))
        for variant in _variants(entry, row, column)
        if all(_matches(pattern, names, row.name, column.name, variant) for pattern in only)
    ]
    return Plan(entry, quick, numbers, tuple(cells), max_rounds, tuple(only))


def _matches(pattern: str, names: Collection[str], *texts: str) -> bool:
    """Whether a pattern, or one of several separated by "|", is one of the texts or stands where a word begins in one.

    "MNIST" does not mean "FEMNIST". Patterns may have wildcards; upper and lower case are the same.

    Args:
        pattern: The pattern.
        names: Names that a pattern must match as a whole if it is one of them: "IFCA" does not mean "IFCA-MIG".
        texts: The texts.
    """
    parts = [part.strip().casefold() for part in pattern.split("|")]
    return any(
        text == part if part in names else any(fnmatch.fnmatchcase(text[at:], f"{part}*") for at in _word_starts(text))
        for text in map(str.casefold, texts)
        for part in parts
    )


def _word_starts(text: str) -> list[int]:
    """Where words, numbers and signs begin in a text."""
    return [0, *(at for at in range(1, len(text)) if not (text[at - 1].isalnum() and text[at].isalnum()))]


def _variants(entry: Entry, row: Line, column: Line) -> tuple[Variant, ...]:
    given = [level.coded for level in entry.levels(row, column) if level.coded is not None]
    return ("as printed", "as coded") if given and given[-1] is not False else ("as printed",)


def _cell(
    entry: Entry,
    row: Line,
    column: Line,
    variant: Variant,
    seeds: Sequence[int],
    quick: bool,
    max_rounds: int | None,
) -> PlannedCell:
    levels = entry.levels(row, column)
    measure = next((level.measure for level in reversed(levels) if level.measure is not None), None)
    if measure is None:
        raise SpecError(f"{entry.name}.toml: cell {row.name!r}, {column.name!r} has no measure")
    label = f"{entry.name}: {row.name}, {column.name}{'' if variant == 'as printed' else ', as coded'}"
    spec = _shortened(_spec(levels, variant, quick, None, label), max_rounds)
    compares, probes = MEASURES[measure["name"]].compares, MEASURES[measure["name"]].probes
    base = next((level.baseline for level in reversed(levels) if level.baseline is not None), None)
    if compares and base is None:
        raise SpecError(f"{entry.name}.toml: the measure of cell {row.name!r}, {column.name!r} needs a baseline")
    missing = _missing(spec.data.name)
    options = {key: value for key, value in measure.items() if key != "name"} if probes else None

    def planned(each: Spec, what: str) -> tuple[PlannedRun, ...]:
        if missing:
            return ()
        # The progress of a probe is counted in random models instead of rounds.
        steps = {"rounds": options["draws"]} if options is not None else {}
        seeded = [replace(each, run=replace(each.run, seed=seed, **steps)) for seed in seeds]
        return tuple(PlannedRun(what, one, run_hash(one, options), options) for one in seeded)

    baseline = _shortened(_spec(levels, variant, quick, base, label), max_rounds) if compares else None
    return PlannedCell(
        row.name,
        column.name,
        variant,
        entry.published().get((row.name, column.name)),
        " ".join(level.trust for level in levels if level.trust),
        measure,
        spec.data.name,
        replace(spec, run=replace(spec.run, seed=seeds[0])),
        missing,
        planned(spec, label),
        () if baseline is None else planned(baseline, f"{label}, baseline"),
    )


def _spec(
    levels: Sequence[Fragment], variant: Variant, quick: bool, baseline: Mapping[str, Any] | None, label: str
) -> Spec:
    coded = [level.coded for level in levels if level.coded] if variant == "as coded" else []
    small = [level.quick for level in levels] if quick else []
    values: dict[str, Any] = {}
    for level in levels:
        values |= {**level.values, **(level.quick_values if quick else {})}
    spec = merged([*(level.spec for level in levels), *coded, *small])
    if baseline is not None:
        for section, given in merged([baseline]).items():  # a baseline that names its method has only its own settings
            spec[section] = given if "name" in given else {**spec.get(section, {}), **given}
    try:
        return Spec.from_dict(with_values(spec, values))
    except SpecError as fault:
        raise SpecError(f"{label}: {fault}") from fault


def _shortened(spec: Spec, max_rounds: int | None) -> Spec:
    """A spec with at most `max_rounds` rounds, of which the last is evaluated."""
    if max_rounds is None or spec.run.rounds <= max_rounds:
        return spec
    every = min(spec.run.evaluate_every, max_rounds)
    return replace(spec, run=replace(spec.run, rounds=max_rounds, evaluate_every=every))


def _missing(name: str) -> str:
    """How to get the files of a data set; empty if they are at hand."""
    if available(name):
        return ""
    return _advice(tuple(folders()))[name].replace(
        "downloaded on first use", f"`coterie run --data {name}` downloads it"
    )


@cache
def _advice(searched: tuple[Path, ...]) -> dict[str, str]:
    """Data set → how to get its files, which depends on the folders in which they are searched."""
    return {row["name"]: row["advice"] for row in summaries()}
