"""The settings of a method object, for the sections [method] and [local] of a spec and of a record.

A method object brings its own settings. Those sections of the spec must therefore be absent or equal to the settings of
the object; the record holds the settings of the object, and `resume` compares them with those of the object it gets.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie import codec
from coterie.clients import LocalSGD
from coterie.errors import SpecError
from coterie.methods.checks import check_method, name_of
from coterie.runs.spec import Named, Spec, SpecLike, read_toml

#: Recorded instead of settings for methods that are not dataclasses.
NO_SETTINGS = "not recorded: the method is not a dataclass"

#: Mappings with more entries are recorded by their hash.
MAX_ENTRIES = 20

#: Section → setting → value.
Sections = Mapping[str, Mapping[str, Any]]


def spec_of(source: SpecLike | None, method: object | None) -> Spec:
    """The spec of a run; with a method object, [method] and [local] are those of the object.

    Raises:
        SpecError: The spec has a setting in these sections that the object does not have, or has with another value.
        MethodError: The object is not a method.
    """
    if method is None:
        return Spec.of(source)
    check_method(method)
    own = _sections(method)
    for section, settings in _given(source).items():
        for key, value in settings.items():
            if not _same(value, own.get(section, {}).get(key, _MISSING)):
                raise SpecError(_conflict(method, section, key, value, own))
    if not isinstance(source, Spec):
        plain = {} if source is None else source if isinstance(source, Mapping) else read_toml(Path(source))
        source = Spec.from_dict({key: table for key, table in plain.items() if key not in ("method", "local")})
    return with_settings_of(source, method)


def with_settings_of(spec: Spec, method: object) -> Spec:
    """The spec with [method] and [local] replaced by the settings of a method object."""
    options = dict(_sections(method)["method"])
    name = options.pop("name")
    return dataclasses.replace(spec, method=Named(name, options), local=_local(method))


def check_same_method(recorded: Mapping[str, Any], method: object | None) -> None:
    """Check that a run is continued with the method that it began with.

    Args:
        recorded: The recorded spec, as read from TOML.
        method: The method object to continue with, if there is one.
    """
    began = recorded.get("method", {})
    if method is None:
        if "class" in began:
            raise SpecError(
                f"This run began with a method object of class {began['class']}; continue it in Python, with an equal "
                "object: coterie.resume(path, method=...)"
            )
        return
    check_method(method)
    if "class" not in began:
        raise SpecError(
            f"This run began with the method {began.get('name')!r} of its spec, not with an object; resume it without "
            "`method`"
        )
    own = _sections(method)
    for section in ("method", "local"):
        then, now = recorded.get(section, {}), own.get(section, {})
        for key in sorted({*then, *now}):
            if not _same(then.get(key), now.get(key)):
                raise SpecError(
                    f"{section}.{key} was {then.get(key)!r} when the run began, and the method object "
                    f"{name_of(method)} has {now.get(key)!r}; resume with an object that has the recorded settings"
                )


def check_objects(recorded: Mapping[str, Any], path: Path, *, task: object | None, data: object | None) -> None:
    """Check that a run that began with a task or data object is continued with one.

    Args:
        recorded: The recorded spec, as read from TOML. A resolved section of a model or data set that is built by name
            has settings; that of an object has only its name.
        path: Folder of the record.
        task: The task to continue with, if there is one.
        data: The data to continue with, if there are any.
    """
    for section, argument, given in (("model", "task", task), ("data", "data", data)):
        began = recorded.get(section, {})
        if given is None and set(began) == {"name"}:
            what = "a task object" if section == "model" else "data in memory"
            raise SpecError(
                f"This run began with {what}, {began['name']!r}; continue it in Python, with the same object: "
                f"coterie.resume({str(path)!r}, {argument}=...)"
            )


_MISSING = object()


def _sections(method: object) -> dict[str, dict[str, Any]]:
    """The settings of a method object as they appear in a record; those that are None are left out."""
    kind = type(method)
    settings: dict[str, Any] = {"name": kind.__name__, "class": f"{kind.__module__}.{kind.__qualname__}"}
    sections = {"method": settings}
    if not dataclasses.is_dataclass(method):
        settings["settings"] = NO_SETTINGS
        return sections
    local = _local(method)
    if local is not None:
        sections["local"] = _plain(local)
    for field in dataclasses.fields(method):
        if field.name != "local" or local is None:
            # `name` is taken by the name of the method.
            settings["name_" if field.name == "name" else field.name] = _plain(getattr(method, field.name))
    sections["method"] = {key: value for key, value in settings.items() if value is not None}
    return sections


def _local(method: object) -> LocalSGD | None:
    fields = dataclasses.fields(method) if dataclasses.is_dataclass(method) else ()
    found = [getattr(method, field.name) for field in fields if field.name == "local"]
    return found[0] if found and isinstance(found[0], LocalSGD) else None


def _given(source: SpecLike | None) -> Sections:
    """The settings that a spec has in [method] and [local]. Those of a Spec object with default values do not count."""
    if source is None:
        return {}
    if isinstance(source, Spec):
        default = LocalSGD()
        local = {} if source.local is None else _plain(source.local)
        given = {"local": {key: value for key, value in local.items() if not _same(value, _plain(default)[key])}}
        if source.method != Spec.method:
            given["method"] = {"name": source.method.name, **source.method.options}
        return given
    plain = source if isinstance(source, Mapping) else read_toml(Path(source))
    sections: dict[str, Mapping[str, Any]] = {}
    for section in ("method", "local"):
        table = plain.get(section, {})
        if section == "method" and not isinstance(table, Mapping):
            table = {"name": table}
        if not isinstance(table, Mapping):
            raise SpecError(f"[{section}] must be a table of settings, got {table!r}")
        sections[section] = table
    return sections


def _conflict(method: object, section: str, key: str, value: object, own: Sections) -> str:
    name = name_of(method)
    if (section, key) == ("method", "name"):
        return (
            f"The spec has the method {value!r}, and the method object {name} was given, too; remove [method] from the "
            "spec, or run it without the object"
        )
    where = f"{section}.{key} = {value!r} of the spec"
    if section not in own or key not in own[section]:
        owner = name if dataclasses.is_dataclass(method) else f"{name}, which is not a dataclass"
        return f"{where} would not reach the method object {owner}; remove it from the spec, and set it on the object"
    return (
        f"{where} differs from the method object {name}, which has {own[section][key]!r}; set it on the object, and "
        f"remove it from the spec"
    )


def _plain(value: Any) -> Any:
    """A value as TOML can hold it: large or unknown objects by hash or name."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return ["none" if item is None else _plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(item) for item in value), key=repr)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        entries = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {key: _plain(entry) for key, entry in entries.items() if entry is not None}
    if isinstance(value, Mapping) and len(value) <= MAX_ENTRIES:
        return {str(key): _plain(entry) for key, entry in value.items() if entry is not None}
    try:
        return f"sha256 {hashlib.sha256(codec.encode(value)).hexdigest()}"
    except TypeError:
        kind = value if callable(value) and hasattr(value, "__qualname__") else type(value)
        return f"{kind.__module__}.{kind.__qualname__}"


def _same(one: Any, other: Any) -> bool:
    """Whether two plain values are equal; lists equal tuples, and NaN equals NaN."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other or (one != one and other != other))
