"""Merging of spec fragments, and the values that `"$name"` stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from coterie.errors import SpecError, unknown
from coterie.reproduce.schema import SpecPart

#: Sections with a name and settings that belong to it.
_NAMED = ("data", "model", "method")


def merged(parts: Iterable[SpecPart]) -> dict[str, dict[str, Any]]:
    """One spec from several fragments; later ones take precedence.

    A new name of data, model or method discards the settings of the old one.
    """
    spec: dict[str, dict[str, Any]] = {}
    for part in parts:
        for section, given in part.items():
            new = {"name": given} if isinstance(given, str) and section in _NAMED else given
            if not isinstance(new, Mapping):
                raise SpecError(f"[{section}] of a spec must be a table of settings, got {given!r}")
            old = spec.get(section, {})
            renamed = "name" in new and new["name"] != old.get("name")
            spec[section] = dict(new) if renamed else {**old, **new}
    return spec


def with_values(spec: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with each text `"$name"` replaced by the value of that name."""
    return {key: _replaced(value, values) for key, value in spec.items()}


def _replaced(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return with_values(value, values)
    if isinstance(value, list):
        return [_replaced(each, values) for each in value]
    if isinstance(value, str) and value.startswith("$"):
        if value[1:] not in values:
            raise SpecError(unknown("value", value[1:], values, "for a setting of a spec"))
        return values[value[1:]]
    return value
