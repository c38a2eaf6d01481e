"""coterie models: what there is, and more about one."""

from __future__ import annotations

import inspect
import typing

from coterie.cli import flags
from coterie.cli.about import About, listing, meanings, page, setting


def models(
    name: flags.ModelName = None,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """List the models, or show the settings of one."""
    from coterie.models.library import _BUILDERS, MODELS
    from coterie.models.task import Task
    from coterie.runs.resolve import Scaling
    from coterie.runs.spec import model_defaults

    auto = "Where none is named: mclr for classes, linear-regression for numbers, char-lstm for ids of characters."
    if name is None:
        listing("model", MODELS, as_json=as_json, more=auto)
        return
    if name == "auto":
        page(About("model", name, f"{auto}\nSettings are those of the model that is taken.", ()), as_json=as_json)
        return
    defaults = model_defaults(name)
    builder = _BUILDERS[name]
    types, means = typing.get_type_hints(builder), meanings(Task, "Attributes") | meanings(builder, "Args")
    types["normalize"], means["normalize"] = Scaling, "How stored inputs are scaled before the model sees them."
    settings = [setting(f"model.{key}", types[key], value, means.get(key, "")) for key, value in defaults.items()]
    summary = (inspect.getdoc(builder) or "").split("\n\n")[0]
    page(About("model", name, summary, settings), as_json=as_json)
