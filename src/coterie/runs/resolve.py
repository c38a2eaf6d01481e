"""Resolve a spec: check every setting, fill in every default, and replace every `auto`.

`fill_defaults` does the part that needs no data. `resolve` does all of it: it also loads the data, on which the default
model, the normalization of inputs and the number of clients per round depend. A record stores the result.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from coterie import data as datasets
from coterie import models
from coterie.data.description import DataDescription, described
from coterie.data.federated import FederatedData
from coterie.data.loading import find_loader, loader_options
from coterie.errors import SpecError, shown, unknown
from coterie.federation.device import find_device
from coterie.federation.ledger import default_delta
from coterie.methods.protocol import Method
from coterie.models import Normalize, Task
from coterie.runs.method_settings import spec_of
from coterie.runs.settings_conversion import convert
from coterie.runs.spec import Named, Spec, method_options, method_types, model_defaults

log = logging.getLogger(__name__)

#: Normalization of inputs. auto: as published with the data set, otherwise `standard` for tables, `unit` for other
#: integers and `none` for other floats; none: unchanged; unit: divided by the largest magnitude; standard: mean 0 and
#: deviation 1 per feature.
Scaling = Literal["auto", "none", "unit", "standard"]

#: Inputs of this size (root mean square) make training with the usual learning rates fail; and the number of training
#: examples by which it is judged.
_LARGE, _ROWS_LOOKED_AT = 20.0, 1000

#: Default number of clients per round.
DEFAULT_CLIENTS_PER_ROUND = 10


@dataclass(frozen=True)
class Resolved:
    """A resolved spec, and the data and task that it names.

    Attributes:
        spec: The spec with every default filled in.
        data: The data.
        task: The model and its loss.
        about: What a run must know about the data.
    """

    spec: Spec
    data: FederatedData
    task: Task
    about: DataDescription


def resolve(spec: Spec, *, method: Method[Any] | None = None, task: Task | None = None, data: Any = None) -> Resolved:
    """Fill in every default of a spec and load its data.

    Args:
        spec: What to run.
        method: A method object that replaces the method of the spec; [method] and [local] become its settings.
        task: A task that replaces the model of the spec.
        data: Data that replace those of the spec, or an object that `coterie.data.as_federated` takes.
    """
    data = None if data is None else datasets.as_federated(data)
    objects = {"method": method, "model": task, "data": data}
    spec = fill_defaults(
        with_names_of_objects(spec_of(spec, method), task, data),
        given=[key for key, each in objects.items() if each is not None],
    )
    if data is None:
        data = datasets.load(spec.data.name, **spec.data.options)
    about = described(data)
    chosen = task is None and spec.model.options.get("normalize", "auto") != "auto"
    spec, task = complete(spec, about, task)
    if not chosen:
        _warn_if_unscaled(data, task, own=objects["model"] is not None)
    return Resolved(spec, data, task, about)


def complete(spec: Spec, about: DataDescription, task: Task | None = None) -> tuple[Spec, Task]:
    """Fill in the settings that depend on the data, and build the task.

    Args:
        spec: A spec with the defaults of `fill_defaults`.
        about: What is known about the data.
        task: A task that replaces the model of the spec.
    """
    if task is None:
        model = spec.model
        if model.name == "auto":
            model = _model(Named(_default_model(about), model.options))
            spec = dataclasses.replace(spec, model=model)
        scale = normalization(str(model.options["normalize"]), about)
        task = models.build(model.name, about.shape, about.classes, **{**model.options, "normalize": scale})
    trainable = about.trainable
    if not trainable:
        raise SpecError(f"No client of {about.name} has a training example; training needs at least one")
    if spec.run.clients_per_round == 0:
        from_start = len(trainable) - round(spec.run.newcomers * len(trainable))
        size = max(1, min(DEFAULT_CLIENTS_PER_ROUND, from_start))
        spec = dataclasses.replace(spec, run=dataclasses.replace(spec.run, clients_per_round=size))
    if spec.run.primary_metric == "auto":
        primary = "loss" if task.classes is None else "accuracy"
        spec = dataclasses.replace(spec, run=dataclasses.replace(spec.run, primary_metric=primary))
    elif spec.run.primary_metric not in ("accuracy", "loss", *spec.run.metrics):
        names = (*spec.run.metrics, spec.run.primary_metric)
        spec = dataclasses.replace(spec, run=dataclasses.replace(spec.run, metrics=names))
    spec = _with_device(_with_final_model(spec))
    if (spec.run.patience or spec.run.final_model == "best") and not spec.run.validate:
        spec = dataclasses.replace(spec, run=dataclasses.replace(spec.run, validate=True))
    if spec.local is not None and spec.local.class_weight == "balanced" and task.classes is None:
        raise SpecError("local.class_weight = 'balanced' needs classes, and the task is a regression; use 'none'")
    if spec.run.score_with == "auto":
        # Re-choosing on drifted data just before the evaluation would hide that a method has not noticed the drift.
        rule: Literal["current", "assigned"] = "current" if spec.shift.name == "none" else "assigned"
        spec = dataclasses.replace(spec, run=dataclasses.replace(spec.run, score_with=rule))
    if spec.privacy.noise_multiplier and not spec.privacy.delta:
        delta = default_delta(len(trainable))
        spec = dataclasses.replace(spec, privacy=dataclasses.replace(spec.privacy, delta=delta))
    return spec, task


def _with_final_model(spec: Spec) -> Spec:
    """Replace `auto`, and refuse `best` where the best round says nothing about the end of the run."""
    later = "the data drift ([shift])" if spec.shift.name != "none" else "clients join later (run.newcomers)"
    changes = spec.shift.name != "none" or spec.run.newcomers > 0
    if spec.run.final_model == "best" and changes:
        raise SpecError(f"run.final_model = 'best' serves the models of an earlier round, but {later}; use 'last'")
    if spec.run.final_model != "auto":
        return spec
    chosen: Literal["best", "last"] = "best" if spec.run.patience and not changes else "last"
    return dataclasses.replace(spec, run=dataclasses.replace(spec.run, final_model=chosen))


def _with_device(spec: Spec) -> Spec:
    """Replace `auto` by the device of this machine, and refuse a device that it does not have."""
    run = spec.run
    if run.backend != "vectorized" and run.device == "gpu":
        raise SpecError(
            f"run.device = 'gpu' needs run.backend = 'vectorized'; {run.backend} runs clients on CPUs. Set run.device "
            "to 'cpu' or 'auto'"
        )
    if run.device == "cpu":  # JAX is not imported
        return spec
    found = find_device(run.device).platform if run.backend == "vectorized" else "cpu"
    return dataclasses.replace(spec, run=dataclasses.replace(run, device=found))


def fill_defaults(spec: Spec, *, given: Collection[str] = ()) -> Spec:
    """Check the settings of data, model and method, convert them to their declared types and add the defaults.

    No data are loaded; the model `auto` stays as it is.

    Args:
        spec: What to run.
        given: Sections that are replaced by an object; they are not changed.
    """
    parts: dict[str, Any] = {}
    if "data" not in given:
        parts["data"] = _data(spec)
    if "model" not in given and spec.model.name != "auto":
        parts["model"] = _model(spec.model)
    if "method" not in given:
        name = spec.method.name
        parts["method"] = _filled("method", spec.method, method_options(name), method_types(name))
    return dataclasses.replace(spec, **parts)


def with_absolute_paths(spec: Spec) -> Spec:
    """The spec with absolute paths of data in a folder or a table, so that it works in any working directory."""
    part = spec.data
    if "path" not in loader_options(part.name):
        return spec
    files = {key: os.path.abspath(part.options[key]) for key in ("preprocessing",) if part.options.get(key)}
    return dataclasses.replace(spec, data=Named(os.path.abspath(part.name), {**part.options, **files}))


def normalization(rule: str, about: DataDescription) -> Normalize | None:
    """Return the normalization of inputs for a rule of `Scaling`."""
    if about.tokens and rule in ("unit", "standard"):
        raise SpecError(
            f"model.normalize must be 'auto' or 'none' for {about.name}, which has token ids, got {shown(rule)}"
        )
    if rule == "auto" and about.published is not None:
        return Normalize(*about.published)
    if about.table and rule in ("auto", "standard"):
        return _standardized(about)
    if rule == "none" or (rule == "auto" and (not about.integers or about.tokens)):
        return None
    if rule in ("auto", "unit"):
        return Normalize(0.0, about.magnitude())
    if rule == "standard":
        mean, deviation = about.moments().mean_and_deviation()
        return Normalize(mean, deviation + np.float32(0.001))
    raise SpecError(f"model.normalize must be one of {', '.join(map(repr, get_args(Scaling)))}, got {shown(rule)}")


def _standardized(about: DataDescription) -> Normalize:
    """Mean 0 and deviation 1 for each column of a table; a column that is constant in training is only centered."""
    mean, deviation = about.moments().mean_and_deviation()
    # Rounding gives constant columns a small deviation; 32-bit numbers cannot vary less than this.
    constant = deviation <= 1e-6 * np.abs(mean)
    return Normalize(mean, np.where(constant, np.float32(1), deviation))


def _warn_if_unscaled(data: FederatedData, task: Task, *, own: bool) -> None:
    """Log a warning if a model gets large inputs as they are: training would fail, and nothing would say why.

    Args:
        data: The data; some of their training examples are looked at.
        task: The model.
        own: Whether the task was given as an object.
    """
    rows = data.fit.order[:: max(1, len(data.fit.order) // _ROWS_LOOKED_AT)]
    if task.normalize is not None or task.tokens is not None or data.ids is not None or not len(rows):
        return
    x = np.asarray(data.inputs(rows), np.float64).reshape(len(rows), -1)
    size = np.sqrt(np.mean(np.square(x), axis=0))
    place = int(np.argmax(size))
    if size[place] <= _LARGE:
        return
    features = data.features or ()
    which = f"input {place}" + (f" ({features[place]})" if len(features) == len(size) else "")
    advice = (
        "give the task normalize=coterie.models.Normalize(mean, deviation), or scale the data"
        if own
        else "set model.normalize=standard"
    )
    log.warning(
        "The inputs of %s are not scaled: %s has values around %.3g, and training may fail; %s",
        data.name,
        which,
        size[place],
        advice,
    )


def with_names_of_objects(spec: Spec, task: Task | None, data: FederatedData | None) -> Spec:
    """The spec for the record: model and data that were replaced by an object show its name."""
    if task is not None:
        spec = dataclasses.replace(spec, model=Named(task.name))
    if data is not None:
        spec = dataclasses.replace(spec, data=Named(data.name))
    return spec


def _data(spec: Spec) -> Named:
    part = with_absolute_paths(spec).data
    defaults = loader_options(part.name)
    defaults.pop("path", None)
    if "seed" in defaults:
        defaults["seed"] = spec.run.seed  # another seed gives another partition, unless data.seed is set
    hints = typing.get_type_hints(find_loader(part.name)[0])
    types = {key: hint for key, hint in hints.items() if key not in ("path", "return")}
    return _filled("data", part, defaults, types)


def _model(part: Named) -> Named:
    defaults = model_defaults(part.name)
    # Models declare no types; the type of a setting is that of its default, if that is a number or a string.
    types = {key: type(value) for key, value in defaults.items() if type(value) in (bool, int, float, str)}
    return _filled("model", part, defaults, types)


def _default_model(about: DataDescription) -> str:
    if about.ids is not None:
        return "char-lstm"
    return "mclr" if about.classes is not None else "linear-regression"


def _filled(section: str, part: Named, defaults: Mapping[str, Any], types: Mapping[str, Any]) -> Named:
    kind = "data set" if section == "data" else section
    given = dict(part.options)
    for key, value in given.items():
        if key not in defaults:
            raise SpecError(unknown("setting", key, defaults, f"of {kind} {part.name}"))
        if key in types:
            given[key] = convert(value, types[key], f"{section}.{key}")
    missing = [key for key, value in defaults.items() if value is inspect.Parameter.empty and key not in given]
    if missing:
        raise SpecError(f"{kind} {part.name} needs a value for {', '.join(missing)}")
    return Named(part.name, {**defaults, **given})
