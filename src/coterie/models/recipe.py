"""Recipes: a task as plain data, from which another process builds an equal task.

A recipe is a dict with the keys `name` (in `MODELS`, or "package.module:function"), `shape`, `classes`, `options` (all
settings but the normalization) and `normalize` (mean and deviation, or None). It contains no code. `coterie.codec`
encodes it. `checked_recipe` validates one that comes from another machine.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from coterie import codec
from coterie.errors import SpecError, shown
from coterie.models.task import MAX_UNITS, Normalize, Task

#: A task as plain data.
Recipe = dict[str, Any]

#: Largest number of values in one input.
MAX_INPUTS = 1 << 24

#: Largest number of settings, of items in a setting, and of characters in a name or text.
MAX_ITEMS = 256

_KEYS = ("name", "shape", "classes", "options", "normalize")
_MAX_DIMENSIONS = 8
_MAX_INTEGER = 1 << 63


def recipe_for(
    name: str, shape: tuple[int, ...], classes: int | None, options: Mapping[str, Any], normalize: Any
) -> Recipe | None:
    """The recipe of a task with these settings; None if they are not plain data.

    Args:
        name: Name of the model or of its factory.
        shape: Shape of one input.
        classes: Number of classes; None: regression.
        options: All settings of the model but the normalization.
        normalize: A `Normalize` or None; other functions have no recipe.
    """
    if normalize is not None and type(normalize) is not Normalize:
        return None
    scale = None if normalize is None else (normalize.mean, normalize.deviation)
    try:
        return {
            "name": name,
            "shape": tuple(map(_whole, shape)),
            "classes": None if classes is None else _whole(classes),
            "options": {key: _plain(value) for key, value in options.items()},
            "normalize": None if scale is None else tuple(map(_number_or_array, scale)),
        }
    except (TypeError, ValueError):
        return None


def built(
    make: Callable[..., Task],
    name: str,
    shape: tuple[int, ...],
    classes: int | None,
    normalize: Any,
    options: Mapping[str, Any],
) -> Task:
    """The task that `make` returns, with its recipe. Equal recipes give the same object.

    Args:
        make: Function of shape, classes, `normalize` and the options.
        name: Name of the model or of its factory.
        shape: Shape of one input.
        classes: Number of classes; None: regression.
        normalize: Function applied to the inputs; None: no normalization.
        options: All other settings.
    """
    recipe = recipe_for(name, shape, classes, options, normalize)
    if recipe is not None:
        return _from_bytes(make, codec.encode(recipe))
    try:
        hash((normalize, *options.values()))
    except TypeError:
        return make(shape, classes, normalize=normalize, **options)
    return _from_settings(make, shape, classes, normalize=normalize, **options)


@lru_cache(maxsize=64)
def _from_bytes(make: Callable[..., Task], encoded: bytes) -> Task:
    """The same object for the same recipe, so that a later run reuses the functions compiled for the task."""
    recipe = codec.decode(encoded)
    normalize = None if recipe["normalize"] is None else Normalize(*recipe["normalize"])
    task = make(recipe["shape"], recipe["classes"], normalize=normalize, **recipe["options"])
    object.__setattr__(task, "recipe", recipe)
    return task


@lru_cache(maxsize=64, typed=True)
def _from_settings(make: Callable[..., Task], shape: tuple[int, ...], classes: int | None, **options: Any) -> Task:
    """The same object for the same settings that are not plain data, such as a function that normalizes."""
    return make(shape, classes, **options)


def recipe_of(task: Task) -> Recipe:
    """The recipe of a task.

    Raises:
        SpecError: If the task has none and therefore cannot be sent to clients on other machines.
    """
    if task.recipe is None:
        raise SpecError(
            f"Model {task.name} cannot be sent to clients on other machines, because it was not built by name from "
            "plain settings. Choose a model by name (coterie models), with a normalization that is none or a "
            "Normalize; or put a function that returns the task into a package that is installed on all machines, and "
            "build it with coterie.models.from_factory('package.module:function', shape, classes)"
        )
    return task.recipe


def checked_recipe(recipe: object, allowed: Collection[str] = ()) -> Recipe:
    """A recipe from another machine, validated before anything is built from it.

    Args:
        recipe: What was received.
        allowed: Factories, "package.module:function", that may be imported.

    Raises:
        SpecError: If it is not a recipe, a size is out of bounds, or its factory is not allowed.
    """
    if not isinstance(recipe, Mapping) or set(recipe) != set(_KEYS):
        found = sorted(map(str, recipe))[:10] if isinstance(recipe, Mapping) else shown(recipe)
        raise SpecError(f"A recipe must be a dict with the keys {', '.join(_KEYS)}, got {found}")
    name, shape, classes, options, normalize = (recipe[key] for key in _KEYS)
    _require(
        isinstance(name, str) and len(name) <= MAX_ITEMS, "name", f"a text of at most {MAX_ITEMS} characters", name
    )
    if ":" in name and name not in allowed:
        raise SpecError(
            f"The server asks for the model {shown(name)}, which is code of its own and is not allowed here. Allowed: "
            f"{', '.join(sorted(allowed)) or 'only the models of Coterie'}. Allow exactly this name if you trust the "
            "package that it names"
        )
    sides = isinstance(shape, tuple | list) and 1 <= len(shape) <= _MAX_DIMENSIONS and all(map(_is_size, shape))
    _require(sides, "shape", f"1 to {_MAX_DIMENSIONS} whole numbers from 1 to {MAX_UNITS:,}", shape)
    _require(math.prod(shape) <= MAX_INPUTS, "shape", f"at most {MAX_INPUTS:,} numbers in all", shape)
    _require(
        classes is None or _is_size(classes), "classes", f"none or a whole number from 1 to {MAX_UNITS:,}", classes
    )
    named = isinstance(options, Mapping) and len(options) <= MAX_ITEMS
    named = named and all(isinstance(key, str) and key.isidentifier() and len(key) <= MAX_ITEMS for key in options)
    _require(named, "options", f"a dict with at most {MAX_ITEMS} names of settings", options)
    _require("normalize" not in options, "options", "settings other than normalize", options)
    for key, value in options.items():
        _require(
            _is_plain(value), f"options.{key}", f"a number, a text or a list of at most {MAX_ITEMS} of them", value
        )
    if normalize is not None:
        _check_normalize(normalize, tuple(shape))
    scale = None if normalize is None else Normalize(*normalize)
    made = recipe_for(name, tuple(shape), classes, options, scale)
    assert made is not None
    return made


def factory(name: str) -> Callable[..., Any]:
    """Import a function by name, "package.module:function"."""
    module, _, function = name.partition(":")
    parts = [*module.split("."), function]
    if not all(part.isidentifier() and not part.startswith("_") for part in parts):
        raise SpecError(f"The name of a factory must be 'package.module:function', got {shown(name)}")
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ImportError as fault:
        raise SpecError(
            f"Model {shown(name)} cannot be imported: {fault}. Install the package on every machine that uses it"
        ) from fault
    if not callable(found):
        raise SpecError(f"Model {shown(name)} cannot be imported: {module} has no function {function}")
    result: Callable[..., Any] = found
    return result


def _check_normalize(normalize: object, shape: tuple[int, ...]) -> None:
    expected = f"none, or a finite mean and a deviation above 0 that broadcast over one input of shape {shape}"
    _require(isinstance(normalize, tuple | list) and len(normalize) == 2, "normalize", expected, normalize)
    assert isinstance(normalize, tuple | list)
    for place, part in enumerate(normalize):
        numbers = isinstance(part, np.ndarray) or _is_plain(part)
        array = np.asarray(part) if numbers else np.array("")
        _require(array.dtype.kind in "iuf" and array.dtype.itemsize <= 8, "normalize", expected, normalize)
        try:
            fits = np.broadcast_shapes(array.shape, shape) == shape
        except ValueError:
            fits = False
        _require(fits and bool(np.isfinite(array).all()), "normalize", expected, normalize)
        _require(place == 0 or bool((array > 0).all()), "normalize", expected, normalize)


def _require(valid: bool, key: str, expected: str, got: object) -> None:
    if not valid:
        raise SpecError(f"{key} of a recipe must be {expected}, got {shown(got)}")


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_UNITS


def _is_plain(value: object) -> bool:
    """Whether a setting is None, a bool, a number, a text, or a short list of these."""
    if isinstance(value, tuple | list):
        return len(value) <= MAX_ITEMS and all(not isinstance(item, tuple | list) and _is_plain(item) for item in value)
    if isinstance(value, str):
        return len(value) <= MAX_ITEMS
    if isinstance(value, int):
        return -_MAX_INTEGER <= value < _MAX_INTEGER
    return value is None or isinstance(value, float)


def _plain(value: Any) -> Any:
    """A setting as plain data; lists become tuples."""
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if not _is_plain(value):
        raise TypeError(f"{shown(value)} is not plain data")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{shown(value)} is not a whole number")
    return int(value)


def _number_or_array(value: Any) -> Any:
    """A mean or deviation as a number or an array."""
    if isinstance(value, float):
        return float(value)  # also for a scalar of NumPy
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise TypeError(f"{shown(value)} is not a number or an array of numbers")
    return value if isinstance(value, int) else array
