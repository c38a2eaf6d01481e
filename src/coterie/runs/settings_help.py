"""The settings of a recorded spec, each with its default and its description; and the command that repeats the run."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from coterie.data.loading import find_loader, loader_options
from coterie.errors import Error
from coterie.federation.ledger import default_delta
from coterie.methods import method_class
from coterie.models.library import builder
from coterie.models.task import Task
from coterie.runs.resolve import DEFAULT_CLIENTS_PER_ROUND
from coterie.runs.spec import Named, Spec, method_options, model_defaults

_ENTRY = re.compile(r"^    (\w+): (.*)$")

#: Setting → flag of `coterie run`.
_FLAGS = {
    "data.name": "--data",
    "method.name": "--method",
    "model.name": "--model",
    "method.clusters": "--clusters",
    "run.rounds": "--rounds",
    "run.clients_per_round": "--clients-per-round",
    "local.epochs": "--epochs",
    "local.batch_size": "--batch-size",
    "local.learning_rate": "--learning-rate",
    "run.seed": "--seed",
}

_NAMED = ("data", "model", "method")

#: Models that are chosen by the data.
_AUTO_MODELS = ("mclr", "linear-regression", "char-lstm")

#: Section → the default name, given the name in the record.
_DEFAULT_NAMES: dict[str, Callable[[str], str]] = {
    "data": lambda name: Spec.data.name,
    "model": lambda name: name if name in _AUTO_MODELS else Spec.model.name,
    "method": lambda name: Spec.method.name,
}

#: Description of a setting that the builders of models do not have: it belongs to the section.
NORMALIZE_HELP = (
    "Normalization of inputs. auto: as published with the data set, otherwise standard for tables, unit for other "
    "integers and none for other floats; none: unchanged; unit: divided by the largest magnitude; standard: mean 0 "
    "and deviation 1 per feature."
)


@dataclass(frozen=True)
class RecordedSetting:
    """A setting of a run.

    Attributes:
        section: Section of the spec.
        key: Name in that section.
        value: Its value in this run.
        default: Its default, as it would be resolved for this run; None if it is not known.
        changed: Whether the value differs from the default.
        help: Description; empty if it is not known.
    """

    section: str
    key: str
    value: Any
    default: Any
    changed: bool
    help: str


def recorded_settings(
    plain: Mapping[str, Mapping[str, Any]], clients: int | None = None, *, regression: bool = False
) -> list[RecordedSetting]:
    """The settings of a recorded spec.

    Args:
        plain: The spec as `spec.toml` has it: section → setting → value.
        clients: Number of clients that train, on which some defaults depend; None if it is not known.
        regression: Whether the data have no classes.
    """
    defaults, helps = _defaults(plain, clients, regression=regression), _helps(plain)
    found = []
    for section, settings in plain.items():
        known = defaults.get(section)
        for key, value in settings.items():
            default = None if known is None else known.get(key)
            changed = key == "class" if known is None else key not in known or not _same(value, default)
            found.append(RecordedSetting(section, key, value, default, changed, helps.get(section, {}).get(key, "")))
    return found


def command(
    plain: Mapping[str, Mapping[str, Any]], clients: int | None = None, *, regression: bool = False
) -> str | None:
    """The command that repeats a simulation; None if it was started from Python with objects.

    Args:
        plain: The spec as `spec.toml` has it.
        clients: Number of clients that train; None if it is not known.
        regression: Whether the data have no classes.
    """
    if "class" in plain["method"] or any(set(plain[section]) == {"name"} for section in ("data", "model")):
        return None
    words = ["coterie", "run"]
    for each in recorded_settings(plain, clients, regression=regression):
        path = f"{each.section}.{each.key}"
        if each.changed or (each.key == "name" and each.section in _NAMED):
            text = each.value if isinstance(each.value, str) else json.dumps(each.value)
            words += [_FLAGS[path], text] if path in _FLAGS else ["--set", f"{path}={text}"]
    return shlex.join(words)


def _defaults(
    plain: Mapping[str, Mapping[str, Any]], clients: int | None, *, regression: bool
) -> dict[str, dict[str, Any]]:
    """Section → setting → default, for the sections whose defaults are known."""
    fixed = {
        section: dataclasses.asdict(part)
        for section, part in vars(Spec()).items()
        if part is not None and not isinstance(part, Named)
    }
    run = plain["run"]
    steady = plain.get("shift", {}).get("name", "none") == "none"
    fixed["run"] |= {
        "clients_per_round": min(DEFAULT_CLIENTS_PER_ROUND, clients or DEFAULT_CLIENTS_PER_ROUND),
        "primary_metric": "loss" if regression else "accuracy",
        "score_with": "current" if steady else "assigned",
        "final_model": "best" if run.get("patience") and steady and not run.get("newcomers") else "last",
    }
    if plain.get("privacy", {}).get("noise_multiplier") and clients:
        fixed["privacy"]["delta"] = default_delta(clients)
    named: dict[str, Callable[[str], dict[str, Any]]] = {
        "data": loader_options,
        "model": model_defaults,
        "method": method_options,
    }
    for section, options in named.items():
        name = str(plain[section]["name"])
        with contextlib.suppress(Error):  # data or a method that are not installed here
            fixed[section] = {"name": _DEFAULT_NAMES[section](name), **options(name)}
    if "seed" in fixed.get("data", {}):
        fixed["data"]["seed"] = run["seed"]
    return fixed


def _helps(plain: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Section → setting → description."""
    parts = {section: part for section, part in vars(Spec()).items() if part is not None}
    found = {section: doc_entries(type(p), "Attributes") for section, p in parts.items() if not isinstance(p, Named)}
    data, model, method = (str(plain[section]["name"]) for section in _NAMED)
    with contextlib.suppress(Error):
        found["data"] = doc_entries(find_loader(data)[0], "Args")
    with contextlib.suppress(Error):
        own = doc_entries(Task, "Attributes") | doc_entries(builder(model), "Args")
        found["model"] = {**own, "normalize": NORMALIZE_HELP}
    with contextlib.suppress(Error):
        found["method"] = method_help(method)
    return found


def method_help(name: str) -> dict[str, str]:
    """Setting of a method → description. Inherited settings are documented in the base class."""
    found: dict[str, str] = {}
    for kind in reversed(method_class(name).__mro__):
        found |= doc_entries(kind, "Attributes")
    return found


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal; a list equals a tuple."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def doc_entries(thing: type | Callable[..., object], section: Literal["Args", "Attributes"]) -> dict[str, str]:
    """Name → description, from a section of a Google docstring."""
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
