"""Conversion of settings: text to plain values, and plain values to the declared type of a setting."""

from __future__ import annotations

import tomllib
import types
import typing
from typing import Any, Literal, Union

from coterie.bounds import is_one_of, number_problem
from coterie.errors import SpecError, did_you_mean, nearest, shown


def parse_setting(text: str) -> tuple[str, object]:
    """Parse `section.key=value`, as `--set` takes it, into the pair of `section.key` and value.

    The value is read as TOML (numbers, true, false, lists, quoted strings); anything else is a string, or a list of
    strings if it is in brackets: a shell removes the quotes of ["a", "b"].
    """
    path, sign, value = text.partition("=")
    path = path.strip()
    section, dot, key = path.partition(".")
    if not (sign and section and dot and key):
        hint = with_section(section, value) if sign and section and not dot else ""
        raise SpecError(f"--set takes section.key=value, such as local.learning_rate=0.1, got {shown(text)}{hint}")
    try:
        return path, tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):  # not TOML, a number of more than 4,300 digits, or nested too deeply
        return path, _bare(value.strip())


def _bare(text: str) -> str | list[str]:
    """A text that is not TOML; with brackets around it, the words between its commas."""
    inside = text[1:-1]
    if not (text.startswith("[") and text.endswith("]")) or any(mark in inside for mark in "[]\"'"):
        return text
    return [word.strip() for word in inside.split(",") if word.strip()]


def with_section(key: str, value: str) -> str:
    """The end of an error message: a suggestion for a setting that was given without its section, or nothing."""
    from coterie.runs.spec import sections_by_setting

    sections = sections_by_setting()
    near = nearest(key, sections)
    if near is None:
        return ""
    meant = " or ".join(f"{section}.{near}={value.strip()}" for section in sections[near])
    return f". Did you mean {meant}?"


def convert(value: object, kind: Any, where: str) -> Any:
    """Convert a plain value to the declared type `kind`.

    Lists become tuples; int and float are converted into each other if the value stays equal.

    Raises:
        SpecError: The value has another type; the message names the setting (`where`) and what is allowed.
    """
    origin = typing.get_origin(kind)
    if kind is Any:
        return value
    if origin is Literal:
        allowed = typing.get_args(kind)
        if not is_one_of(value, allowed):
            hint = did_you_mean(value, [str(each) for each in allowed])
            options = ", ".join(map(repr, allowed))
            raise SpecError(f"{where} must be one of {options}, got {shown(value)}.{hint}".rstrip("."))
        return value
    if origin in (Union, types.UnionType):
        for option in typing.get_args(kind):
            try:
                return convert(value, option, where)
            except SpecError:
                continue
        raise SpecError(f"{where} must be {_described(kind)}, got {shown(value)}")
    if origin is tuple:
        items = list(value) if isinstance(value, list | tuple) else [value]
        return tuple(convert(item, typing.get_args(kind)[0], where) for item in items)
    if kind in (int, float):
        value = int(value) if kind is int and isinstance(value, float) and value.is_integer() else value
        if problem := number_problem(kind, value):
            raise SpecError(f"{where} must be {problem}, got {shown(value)}")
        return kind(value)
    if isinstance(kind, type) and isinstance(value, kind):
        return value
    raise SpecError(f"{where} must be {_described(kind)}, got {shown(value)}")


def _described(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "nothing"}
    options = typing.get_args(kind) if typing.get_origin(kind) in (Union, types.UnionType) else (kind,)
    return " or ".join(_described_option(option, names) for option in options)


def _described_option(option: Any, names: dict[type, str]) -> str:
    if typing.get_origin(option) is Literal:
        return " or ".join(map(repr, typing.get_args(option)))
    return names.get(option, str(option))
