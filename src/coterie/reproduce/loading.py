"""Reads entries from the TOML files of this package, and says what is wrong with a file.

title, paper, source, setting, compares     texts, see `Entry`
seeds, digits, notes, errors                optional
spec, values, coded, quick, quick_values, measure, baseline, trust      settings of all cells, see `Fragment`
[parts.NAME]                                the same keys, for rows and columns that name it in `parts`
[[columns]] name                            the same keys, and `parts`
[[rows]] name, published                    the same keys, and `parts`; one text per column; "" if the table has no such
                                            cell, "?" if its value is not legible or not printed
[[cells]] row, column                       the same keys, for one cell
[[claims]] text, rule, …                    see `Claim`
[quick_run] note, rows, columns, seeds      see `QuickRun`
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, get_args

from coterie.errors import SpecError, shown, unknown
from coterie.reproduce.measures import checked_measure
from coterie.reproduce.schema import Claim, Entry, Fragment, Line, Published, QuickRun, Rule
from coterie.runs.spec import SECTIONS

Table = Mapping[str, Any]

_TEXTS = ("title", "paper", "source", "setting", "compares")
_FRAGMENT = tuple(field.name for field in dataclasses.fields(Fragment))
_SPECS = ("spec", "coded", "quick", "baseline")
_ENTRY = (*_TEXTS, "seeds", "digits", "notes", "errors", *_FRAGMENT)
_TABLES = ("parts", "columns", "rows", "cells", "claims", "quick_run")
_LIMITS = {
    "at_least": ("low",),
    "at_most": ("high",),
    "between": ("low", "high"),
    "highest": ("best",),
    "lowest": ("best",),
}


def names() -> tuple[str, ...]:
    """The names of all entries."""
    files = (file.name for file in resources.files("coterie.reproduce").iterdir())
    return tuple(sorted(file.removesuffix(".toml") for file in files if file.endswith(".toml")))


def entry(name: str) -> Entry:
    """The entry of this name."""
    if name not in names():
        raise SpecError(unknown("entry", name, names()) + ". `coterie reproduce` lists them")
    return _read(name)


@cache
def _read(name: str) -> Entry:
    text = (resources.files("coterie.reproduce") / f"{name}.toml").read_text(encoding="utf-8")
    return parse(name, text)


def parse(name: str, text: str) -> Entry:
    """Read an entry from TOML.

    Args:
        name: Name of the entry.
        text: The TOML document.
    """
    try:
        return _entry(name, tomllib.loads(text))
    except SpecError as fault:
        raise SpecError(f"{name}.toml: {fault}") from fault
    except ValueError as fault:
        raise SpecError(f"{name}.toml is not valid TOML: {fault}") from fault


def _entry(name: str, table: Table) -> Entry:
    _known(table, (*_ENTRY, *_TABLES), "an entry")
    texts = {key: _text(table, key) for key in _TEXTS}
    columns = tuple(_line(each, "column") for each in _tables(table, "columns"))
    rows = tuple(_line(each, "row", len(columns)) for each in _tables(table, "rows"))
    for what, lines in (("row", rows), ("column", columns)):
        _distinct(what, [line.name for line in lines])
    parts = {key: _fragment(each, f"part {key!r}") for key, each in table.get("parts", {}).items()}
    for line in (*rows, *columns):
        for part in line.parts:
            _one_of(part, parts, "part")
    at = [line.name for line in rows], [line.name for line in columns]
    return Entry(
        name=name,
        **texts,
        rows=rows,
        columns=columns,
        fragment=_fragment({key: table[key] for key in _FRAGMENT if key in table}, "the entry"),
        quick=_quick(table, *at),
        parts=parts,
        cells=_cells(_tables(table, "cells", required=False), *at),
        claims=tuple(_claim(each, *at) for each in _tables(table, "claims", required=False)),
        seeds=_count(table, "seeds", 3),
        digits=_count(table, "digits", 1, at_least=0),
        notes=_texts(table, "notes"),
        errors=_texts(table, "errors"),
    )


def _fragment(table: Table, what: str) -> Fragment:
    given = dict(table)
    _known(given, _FRAGMENT, what)
    for key in _SPECS:
        part = given.get(key, {})
        if part is False and key == "coded":
            continue
        if not isinstance(part, Mapping):
            raise SpecError(f"{key} of {what} must be a table of sections, got {shown(part)}")
        for section in part:
            _one_of(section, SECTIONS, f"section of a spec (in {key} of {what})")
    if "measure" in given:
        given["measure"] = checked_measure(given["measure"])
    if not isinstance(given.get("trust", ""), str):
        raise SpecError(f"trust of {what} must be a text, got {shown(given['trust'])}")
    return Fragment(**given)


def _line(table: Table, kind: str, n_columns: int | None = None) -> Line:
    name = _text(table, "name")
    what = f"{kind} {name!r}"
    own = ("name", "parts", *(("published",) if n_columns is not None else ()))
    _known(table, (*own, *_FRAGMENT), what)
    published = table.get("published", ["?"] * (n_columns or 0))
    if n_columns is not None and (not isinstance(published, list) or len(published) != n_columns):
        raise SpecError(f"published of {what} must be a list of {n_columns} texts, one per column, got {published!r}")
    fragment = _fragment({key: value for key, value in table.items() if key in _FRAGMENT}, what)
    values = tuple(None if text in ("", "?") else Published.parse(text) for text in published)
    absent = frozenset(at for at, text in enumerate(published) if text == "")
    return Line(name, _texts(table, "parts"), fragment, values, absent)


def _cells(tables: Sequence[Table], rows: list[str], columns: list[str]) -> dict[tuple[str, str], Fragment]:
    found: dict[tuple[str, str], Fragment] = {}
    for table in tables:
        row = _one_of(_text(table, "row"), rows, "row")
        column = _one_of(_text(table, "column"), columns, "column")
        own = {key: value for key, value in table.items() if key not in ("row", "column")}
        found[row, column] = _fragment(own, f"cell {row!r}, {column!r}")
    return found


def _claim(table: Table, rows: list[str], columns: list[str]) -> Claim:
    _known(table, [field.name for field in dataclasses.fields(Claim)], "a claim")
    rule = _one_of(_text(table, "rule"), get_args(Rule), "rule of a claim")
    for key in _LIMITS.get(rule, ()):
        if key not in table:
            raise SpecError(f"A claim with the rule {rule!r} needs {key}")
    if "best" in table:
        _one_of(table["best"], (*rows, *columns), "row or column")
    if "along" in table:
        _one_of(table["along"], ("rows", "columns"), "direction of a claim")
    named = {
        key: tuple(_one_of(each, known, key[:-1]) for each in _texts(table, key))
        for key, known in (("rows", rows), ("columns", columns))
    }
    return Claim(**{**table, **named})


def _quick(table: Table, rows: list[str], columns: list[str]) -> QuickRun:
    given = table.get("quick_run")
    if not isinstance(given, Mapping):
        raise SpecError("An entry needs [quick_run] with a note that says what is scaled down")
    _known(given, [field.name for field in dataclasses.fields(QuickRun)], "[quick_run]")
    chosen = {
        key: tuple(_one_of(each, known, key[:-1]) for each in _texts(given, key))
        for key, known in (("rows", rows), ("columns", columns))
    }
    return QuickRun(_text(given, "note"), **chosen, seeds=_count(given, "seeds", 1))


# ------------------------------------------------------------------------------------------------------- small checks


def _known(table: Table, allowed: Collection[str], what: str) -> None:
    for key in table:
        if key not in allowed:
            raise SpecError(unknown("key", key, allowed, f"in {what}"))


def _one_of(name: Any, known: Collection[str], kind: str) -> str:
    if name not in known:
        raise SpecError(unknown(kind, name, known))
    return str(name)


def _text(table: Table, key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise SpecError(f"{key} must be a text, got {shown(value)}")
    return " ".join(value.split())


def _texts(table: Table, key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise SpecError(f"{key} must be a list of texts, got {shown(value)}")
    return tuple(" ".join(each.split()) for each in value)


def _count(table: Table, key: str, default: int, *, at_least: int = 1) -> int:
    value = table.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise SpecError(f"{key} must be a whole number of at least {at_least}, got {shown(value)}")
    return value


def _tables(table: Table, key: str, *, required: bool = True) -> list[Table]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise SpecError(f"[[{key}]] must be a list of tables")
    if required and not value:
        raise SpecError(f"An entry needs at least one [[{key}]]")
    return value


def _distinct(what: str, given: list[str]) -> None:
    if twice := [name for name in given if given.count(name) > 1]:
        raise SpecError(f"There are two {what}s {twice[0]!r}; give each its own name")
