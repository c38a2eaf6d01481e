"""Lists of what there is, and pages about one thing, from its docstrings and types."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Union

from coterie.cli.screen import document, facts, result, table

if TYPE_CHECKING:
    from rich.table import Table

_ENTRY = re.compile(r"^    (\w+): (.*)$")
_WORDS: dict[Any, str] = {int: "whole number", float: "number", str: "text", bool: "true or false", type(None): "none"}


@dataclass(frozen=True)
class Setting:
    """A setting as people read of it.

    Attributes:
        key: As `--set` takes it.
        default: Where nobody says otherwise.
        type: What is allowed, in words.
        means: What it does.
    """

    key: str
    default: Any
    type: str
    means: str


@dataclass(frozen=True)
class About:
    """A thing with a name, a text and settings.

    Attributes:
        kind: Method, data set or model.
        name: What specs call it.
        text: What is written about it.
        settings: Its own.
        shared: Those that it has in common with all others of its kind.
        costs: What it costs and reveals, in sentences.
        card: The same as data.
        holds: What data hold, where they were loaded.
    """

    kind: str
    name: str
    text: str
    settings: Sequence[Setting]
    shared: Sequence[Setting] = ()
    costs: Sequence[str] = ()
    card: Mapping[str, Any] | None = None
    holds: Mapping[str, Any] | None = None


def listing(kind: str, lines: Mapping[str, str], *, as_json: bool, more: str = "") -> None:
    """Print every name with its line."""
    if as_json:
        document(dict(lines))
        return
    shown = facts()
    for name, line in lines.items():
        shown.add_row(name, line)
    result(shown, "", *([more] if more else []), f"More about one: coterie {_command(kind)} NAME")


def page(about: About, *, as_json: bool, holds: Mapping[str, str] | None = None) -> None:
    """Print all there is to say about one thing; `holds` is what is in it, in words."""
    if as_json:
        document(asdict(about))
        return
    result(f"{about.kind} {about.name}", "", about.text, "")
    if holds:
        shown = facts()
        for name, line in holds.items():
            shown.add_row(name, line)
        result("What it holds" + (" with these defaults:" if about.settings else ":"), "", shown, "")
    result(_table(about.settings) if about.settings else f"This {about.kind} has no settings of its own.")
    if about.costs:
        result("", "What it costs and what the server sees, as a tiny run with these defaults shows it:", "")
        result(*(f"- {line}" for line in about.costs))
    if about.shared:
        result("", f"Every {about.kind} takes these, too:", _table(about.shared))


def _table(settings: Sequence[Setting]) -> Table:
    shown = table("setting", "default", "allowed", "meaning", left=4)
    for each in settings:
        shown.add_row(each.key, _default(each.default), each.type, each.means)
    return shown


def _default(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "empty"
    return "none" if value is None else str(value)


def setting(key: str, kind: Any, default: Any, means: str) -> Setting:
    """A setting from its type and default."""
    if default is inspect.Parameter.empty:
        default = "must be given"
    return Setting(key, list(default) if isinstance(default, tuple) else default, words(kind), means)


def words(kind: Any) -> str:
    """A type as people read it."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return ", ".join(map(str, inside))
    if origin in (Union, types.UnionType):
        return " or ".join(words(each) for each in inside)
    if inside:
        return f"list: {words(inside[0])}"
    return _WORDS.get(kind, getattr(kind, "__name__", str(kind)))


def meanings(thing: Any, section: Literal["Args", "Attributes"]) -> dict[str, str]:
    """Name → what the section of a Google docstring says of it."""
    lines = (inspect.getdoc(thing) or "").split("\n")
    if f"{section}:" not in lines:
        return {}
    found: dict[str, str] = {}
    name = ""
    for line in lines[lines.index(f"{section}:") + 1 :]:
        if line and not line.startswith("    "):
            break
        if entry := _ENTRY.match(line):
            name = entry[1]
            found[name] = entry[2]
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found


def _command(kind: str) -> str:
    return {"method": "methods", "data set": "data", "model": "models"}[kind]
