"""Bounds of settings, declared in the type annotation and checked by one function.

    @dataclass(frozen=True)
    class IFCA:
        clusters: Annotated[int, Bound(at_least=1)] = 4
        weights: Literal["uniform", "samples"] = "uniform"

        def __post_init__(self) -> None:
            check(self, "method")

`check` raises a SpecError that names the setting, the allowed values and the given value:
"method.clusters must be at least 1, got 0".
"""

from __future__ import annotations

import dataclasses
import math
import sys
import types
import typing
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union

from coterie.errors import SpecError, shown

#: Limits of integers, those of 64 bits: larger ones do not fit into arrays, and TOML need not read them.
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Bound:
    """The allowed range of a number. Infinity is allowed only if `infinite` is set; NaN never is.

    Attributes:
        at_least: Inclusive lower limit.
        at_most: Inclusive upper limit.
        above: Exclusive lower limit.
        below: Exclusive upper limit.
        infinite: Whether infinity is allowed.
    """

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    infinite: bool = False

    def allows(self, value: float) -> bool:
        """Whether a number is in this range."""
        if math.isnan(value) or (math.isinf(value) and not self.infinite):
            return False
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        """The range in words, as error messages state it."""
        if self.at_least is not None and self.at_most is not None:
            return f"between {self.at_least:g} and {self.at_most:g}"
        words = {"at least": self.at_least, "above": self.above, "at most": self.at_most, "below": self.below}
        limits = [f"{word} {limit:g}" for word, limit in words.items() if limit is not None]
        return " and ".join(limits) or "finite"


def check(settings: object, section: str) -> None:
    """Validate the fields of a settings dataclass against their declared types and bounds.

    Supported are `int`, `float`, `bool`, `str`, `Literal`, and unions and tuples of these. Other types are not checked.

    Args:
        settings: An instance of a dataclass.
        section: Its section in the spec, for error messages.

    Raises:
        SpecError: If a field has the wrong type or is out of bounds.
    """
    for name, annotation in _annotations(type(settings)).items():
        value = getattr(settings, name)
        problem = _problem(annotation, value)
        if problem:
            raise SpecError(f"{section}.{name} must be {problem}, got {shown(value)}")


_ANNOTATIONS: dict[type, dict[str, Any]] = {}


def _annotations(kind: type) -> dict[str, Any]:
    """Field → annotation; cached, because settings are created in every round."""
    if kind not in _ANNOTATIONS:
        hints = typing.get_type_hints(kind, include_extras=True)
        _ANNOTATIONS[kind] = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return _ANNOTATIONS[kind]


def _problem(annotation: Any, value: Any) -> str | None:
    """A description of the allowed values, or None if the value is allowed."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        problem = _problem(arguments[0], value)
        bounds = [each for each in arguments[1:] if isinstance(each, Bound)]
        if problem:
            return _with_range(problem, bounds)
        values = value if isinstance(value, tuple | list) else (value,)
        if all(bound.allows(each) for bound in bounds for each in values):
            return None
        infinite = any(each == math.inf and not bound.infinite for bound in bounds for each in values)
        return _with_range("a finite number", bounds) if infinite else _range(bounds)
    if origin is Literal:
        allowed = ", ".join(map(repr, arguments))
        return None if is_one_of(value, arguments) else f"one of {allowed}" if len(arguments) > 1 else allowed
    if origin in (Union, types.UnionType):
        problems = [_problem(argument, value) for argument in arguments]
        if None in problems:
            return None
        # For a number that is only out of bounds, name the bounds instead of all alternatives.
        fitting = [text for text, argument in zip(problems, arguments, strict=True) if _is_number(argument, value)]
        return fitting[0] if fitting else " or ".join(str(text) for text in problems)
    if origin is tuple:
        if not isinstance(value, tuple | list):
            return f"a list, each item {_problem(arguments[0], object()) or 'of the right type'}"
        return next((f"a list, each item {text}" for item in value if (text := _problem(arguments[0], item))), None)
    if annotation is bool:
        return None if isinstance(value, bool) else "true or false"
    if annotation in (int, float):
        return number_problem(annotation, value)
    if annotation is str:
        return None if isinstance(value, str) else "a string"
    if annotation is type(None):
        return None if value is None else "none"
    return None


def number_problem(kind: type[int] | type[float], value: object) -> str | None:
    """A description of the allowed numbers, or None if the value is one of them."""
    if isinstance(value, bool) or not isinstance(value, int | kind):
        return "a whole number" if kind is int else "a number"
    if kind is int:
        return None if _INT_MIN <= value <= _INT_MAX else "a 64-bit whole number"
    return None if isinstance(value, float) or abs(value) <= sys.float_info.max else "a finite number"


def is_one_of(value: object, allowed: Collection[object]) -> bool:
    """Whether a plain value is among the allowed ones; other objects, such as arrays, need not compare as a bool."""
    return isinstance(value, str | int | float | None) and value in allowed


def _is_number(annotation: Any, value: Any) -> bool:
    number = typing.get_args(annotation)[0] if typing.get_origin(annotation) is Annotated else annotation
    return number in (int, float) and _problem(number, value) is None


def _with_range(noun: str, bounds: list[Bound]) -> str:
    """Such as "a whole number of at least 1" or "a number above 0"."""
    limits = _range(bounds)
    return f"{noun} of {limits}" if limits.startswith("at ") else f"{noun} {limits}" if limits else noun


def _range(bounds: list[Bound]) -> str:
    return " and ".join(map(str, bounds))
