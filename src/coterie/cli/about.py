"""Lists of methods, data sets and models, and the page about one of them: content, and layout in the terminal."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Union

from coterie.cli.output import document, facts, result, table

if TYPE_CHECKING:
    from rich.table import Table

_TYPE_NAMES: dict[object, str] = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    type(None): "none",
}
_COMMANDS = {"method": "methods", "data set": "data", "model": "models"}


@dataclass(frozen=True)
class Setting:
    """A setting, as shown on a page.

    Attributes:
        key: Name, as in `--set`.
        default: Default value.
        type: Allowed values, in words.
        means: Description.
    """

    key: str
    default: object
    type: str
    means: str


@dataclass(frozen=True)
class About:
    """The content of a page about a method, data set or model.

    Attributes:
        kind: "method", "data set" or "model".
        name: Name in a spec.
        text: Description.
        settings: Own settings.
        shared: Settings that all methods share.
        costs: Traffic and what the server sees, in sentences.
        card: Traffic and what the server sees, as data.
        holds: Properties of the data, such as the number of clients, if they were loaded.
    """

    kind: str
    name: str
    text: str
    settings: Sequence[Setting]
    shared: Sequence[Setting] = ()
    costs: Sequence[str] = ()
    card: Mapping[str, object] | None = None
    holds: Mapping[str, object] | None = None


def listing(kind: str, lines: Mapping[str, str], *, as_json: bool, more: str = "") -> None:
    """Print every name with its one-line description."""
    if as_json:
        document(dict(lines))
        return
    shown = facts()
    for name, line in lines.items():
        shown.add_row(name, line)
    result(shown, "", *([more] if more else []), f"Details: coterie {_COMMANDS[kind]} NAME")


def page(
    about: About,
    *,
    as_json: bool,
    holds: Mapping[str, str] | None = None,
    measured_with: str = "",
    loaded_with: str = "",
) -> None:
    """Print everything about one method, data set or model.

    Args:
        about: Content of the page.
        as_json: Print it as JSON.
        holds: Properties of the data, in words.
        measured_with: Settings with which traffic was measured, other than the defaults.
        loaded_with: Settings with which the data were loaded, other than the defaults.
    """
    if as_json:
        document(dataclasses.asdict(about))
        return
    result(f"{about.kind} {about.name}", "", about.text, "")
    if holds:
        shown = facts()
        for name, line in holds.items():
            shown.add_row(name, line)
        settings = f" with {loaded_with or 'default settings'}:" if about.settings else ":"
        result("Contents" + settings, "", shown, "")
    result(_settings_table(about.settings) if about.settings else f"This {about.kind} has no settings of its own.")
    if about.costs:
        settings = measured_with or "default settings"
        result("", f"Traffic and privacy, measured in a small simulated run with {settings}:", "")
        result(*(f"- {line}" for line in about.costs))
    if about.shared:
        result("", f"Settings that all {about.kind}s share:", _settings_table(about.shared))


def _settings_table(settings: Sequence[Setting]) -> Table:
    shown = table("setting", "default", "allowed", "meaning", left=4)
    for each in settings:
        shown.add_row(each.key, _default_text(each.default), each.type, each.means)
    return shown


def _default_text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "empty"
    return "none" if value is None else str(value)


# ------------------------------------------------------------------------------------------------------------- settings


def own_settings(name: str) -> list[Setting]:
    """The settings of a method that other methods do not share."""
    from coterie.runs.settings_help import method_help
    from coterie.runs.spec import method_options, method_types

    hints, descriptions = method_types(name), method_help(name)
    return [
        setting(f"method.{key}", hints[key], default, descriptions.get(key, ""))
        for key, default in method_options(name).items()
    ]


def shared_settings() -> list[Setting]:
    """The settings that all methods share: those of the sections `local`, `run` and so on."""
    from coterie.runs.settings_help import doc_entries
    from coterie.runs.spec import SECTIONS, Named, Spec

    parts = {section: getattr(Spec(), section) for section in SECTIONS}
    return [
        setting(f"{section}.{key}", typing.get_type_hints(type(part))[key], default, descriptions.get(key, ""))
        for section, part in parts.items()
        if not isinstance(part, Named)
        for descriptions in (doc_entries(type(part), "Attributes"),)
        for key, default in dataclasses.asdict(part).items()
    ]


def setting(key: str, kind: object, default: object, means: str) -> Setting:
    """Create a setting from its type hint and default."""
    if default is inspect.Parameter.empty:
        default = "required"
    return Setting(key, list(default) if isinstance(default, tuple) else default, type_text(kind), means)


def type_text(kind: object) -> str:
    """A type hint as text for users, such as "whole number"."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return type_text(inside[0])
    if origin is Literal:
        return ", ".join(map(str, inside))
    if origin in (Union, types.UnionType):
        return " or ".join(type_text(each) for each in inside)
    if inside:
        return f"list: {type_text(inside[0])}"
    return _TYPE_NAMES.get(kind, getattr(kind, "__name__", str(kind)))
