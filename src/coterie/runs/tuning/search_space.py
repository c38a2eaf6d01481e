"""The search space: which settings are varied, and over which values."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from coterie.errors import SpecError, shown
from coterie.runs.resolve import fill_defaults
from coterie.runs.settings_conversion import parse_setting, with_section
from coterie.runs.spec import Spec

_FORM = "such as 1e-3..1e-1:log, 2..8 or mclr,mlp"
_RANGE = re.compile(r"\s*(?P<low>\S+?)\s*\.\.\s*(?P<high>[^:\s]+)\s*(?P<log>:\s*log)?\s*")

#: Largest number of combinations that are checked before the first trial.
_MOST_CHECKED = 256


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, both included; whole numbers if both bounds are."""

    low: float
    high: float
    log: bool = False

    @property
    def ends(self) -> tuple[object, ...]:
        """The values that are checked before the first trial."""
        return self.low, self.high

    @property
    def whole(self) -> bool:
        """Whether the values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)


@dataclass(frozen=True)
class Choices:
    """Some values without an order."""

    values: tuple[object, ...]

    @property
    def ends(self) -> tuple[object, ...]:
        """The values that are checked before the first trial."""
        return self.values


Dimension = Range | Choices


def search_space(over: Mapping[str, object] | Iterable[str]) -> dict[str, Dimension]:
    """Return setting → values to try.

    Args:
        over: Setting → values, or texts `section.key=VALUES` as on the command line. Values are a text, such as
            `1e-3..1e-1:log`, `2..8` or `mclr,mlp`; a tuple of two bounds, optionally with `"log"`; or a list of
            choices.

    Raises:
        SpecError: If a setting cannot be searched, or its values cannot be understood.
    """
    pairs = list(over.items()) if isinstance(over, Mapping) else [_split(text) for text in over]
    if not pairs:
        raise SpecError(f"There is nothing to search: give at least one setting with its values, {_FORM}")
    space: dict[str, Dimension] = {}
    for setting, values in pairs:
        _check_setting(setting)
        if setting in space:
            raise SpecError(f"{setting} is given twice; give all of its values at once")
        space[setting] = _dimension(setting, values)
    return space


def check_space(spec: Spec, space: Mapping[str, Dimension], given: Collection[str] = ()) -> None:
    """Raise SpecError if a spec with values of the search space has an error; no data are loaded.

    Args:
        spec: The spec.
        space: The search space.
        given: Sections of the spec that are replaced by an object.
    """
    for setting in space:
        if setting.partition(".")[0] in given:
            raise SpecError(f"{setting} cannot be searched: an object replaces [{setting.partition('.')[0]}]")
    corners = itertools.product(*(dimension.ends for dimension in space.values()))
    for corner in itertools.islice(corners, _MOST_CHECKED):
        fill_defaults(spec.with_values(dict(zip(space, corner, strict=True))), given=given)


def _split(text: str) -> tuple[str, str]:
    setting, sign, values = (part.strip() for part in text.partition("="))
    if not sign or not values or "." not in setting:
        hint = with_section(setting, values) if sign and setting and "." not in setting else ""
        raise SpecError(f"--over takes section.key=VALUES, {_FORM}, got {shown(text)}{hint}")
    return setting, values


def _check_setting(setting: str) -> None:
    section = setting.partition(".")[0]
    if section == "data":
        raise SpecError(f"{setting} cannot be searched: scores on different data cannot be compared")
    if setting == "run.primary_metric":
        raise SpecError("run.primary_metric cannot be searched: it is what trials are scored by; set it with --set")
    if setting == "run.seed":
        raise SpecError("run.seed cannot be searched: a good seed says nothing; trials have the seed of the study")


def _dimension(setting: str, values: object) -> Dimension:
    if isinstance(values, str):
        return _from_text(setting, values)
    if isinstance(values, tuple) and len(values) in (2, 3) and values[2:] in ((), ("log",)):
        return _range(setting, values[0], values[1], log=len(values) == 3)
    if isinstance(values, list):
        return _choices(setting, values)
    raise SpecError(
        f"The values of {setting} must be a text {_FORM}, a tuple (low, high) or (low, high, 'log'), or a list, "
        f"got {shown(values)}"
    )


def _from_text(setting: str, text: str) -> Dimension:
    if match := _RANGE.fullmatch(text):
        low, high = (parse_setting(f"a.b={match[end]}")[1] for end in ("low", "high"))
        return _range(setting, low, high, log=match["log"] is not None)
    if ".." in text:
        raise SpecError(f"A range of {setting} has the form LOW..HIGH or LOW..HIGH:log, got {shown(text)}")
    return _choices(setting, [parse_setting(f"a.b={each}")[1] for each in text.split(",") if each.strip()])


def _range(setting: str, low: object, high: object, *, log: bool) -> Range:
    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
            raise SpecError(f"The bounds of {setting} must be numbers, got {shown(bound)}")
    assert isinstance(low, int | float)
    assert isinstance(high, int | float)
    if low >= high:
        raise SpecError(f"The lower bound of {setting} must be below the upper bound, got {low}..{high}")
    if log and low <= 0:
        raise SpecError(f"A logarithmic range of {setting} must begin above 0, got {low}")
    return Range(low, high, log)


def _choices(setting: str, values: list[object]) -> Choices:
    if len(values) < 2:
        raise SpecError(f"{setting} needs at least two values to choose from, {_FORM}; for one value use --set")
    for each in values:
        if not isinstance(each, bool | int | float | str):
            raise SpecError(f"The choices of {setting} must be numbers, texts or true and false, got {shown(each)}")
    return Choices(tuple(values))
