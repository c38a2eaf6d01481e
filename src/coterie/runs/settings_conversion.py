"""Texts and plain values → the types that settings are declared with, or an error that says what is allowed."""

from __future__ import annotations

import tomllib
import types
import typing
from typing import Any, Literal, Union

from coterie.errors import SpecError


def parse_value(text: str) -> Any:
    """A value from a command line, read as TOML; what is no TOML is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def convert(value: Any, kind: Any, where: str) -> Any:
    """A value as the type `kind`; whole numbers count as numbers, nothing else is bent."""
    origin = typing.get_origin(kind)
    if kind is Any:
        return value
    if origin is Literal:
        allowed = typing.get_args(kind)
        if value not in allowed:
            raise SpecError(f"{where} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
        return value
    if origin in (Union, types.UnionType):
        for option in typing.get_args(kind):
            try:
                return convert(value, option, where)
            except SpecError:
                continue
        raise SpecError(f"{where} must be {_says(kind)}, got {value!r}")
    if origin is tuple:
        items = list(value) if isinstance(value, list | tuple) else [value]
        return tuple(convert(item, typing.get_args(kind)[0], where) for item in items)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(kind, type) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise SpecError(f"{where} must be {_says(kind)}, got {value!r}")


def _says(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "nothing"}
    options = typing.get_args(kind) if typing.get_origin(kind) in (Union, types.UnionType) else (kind,)
    return " or ".join(names.get(option, str(option)) for option in options)
