"""The pages of the reference that are generated: settings, commands and API."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterable, Sequence
from typing import Any

import typer

from coterie.bounds import Bound
from coterie.cli.about import Setting, own_settings, type_text
from coterie.cli.app import app
from coterie.methods import METHODS, method_class
from coterie.runs.settings_help import doc_entries
from coterie.runs.spec import SECTIONS, Named, Spec

#: What each section of a spec is about.
SECTION_TITLES = {
    "local": "Local training of the clients.",
    "run": "The run: rounds, cohorts, evaluation, checkpoints.",
    "shift": "Simulated drift of the clients' data.",
    "faults": "Simulated faults: lost, late, repeated and damaged replies.",
    "attack": "Simulated malicious clients.",
    "aggregation": "How the server averages models.",
    "privacy": "Differential privacy ([how-to](../how-to/privacy.md)).",
    "ray": "Workers of the backend `ray` ([how-to](../how-to/ray.md)).",
    "compression": "Compression of the updates that clients send ([how-to](../how-to/compression.md)).",
    "network": "Federations between machines ([guide](../deploy.md#settings)).",
}

#: Module → what it has, in the order of the API pages.
API = {
    "coterie": "Run, compare, tune, resume; records and served models",
    "coterie.data": "Load data sets, or make them from arrays and tables",
    "coterie.models": "Models as tasks: build one, or wrap functions and flax modules",
    "coterie.torch": "PyTorch modules as tasks",
    "coterie.clustering": "Distances between clients and clusterers",
    "coterie.aggregation": "Plain and robust means",
    "coterie.metrics": "Metrics of models and of clusterings",
    "coterie.drift": "Measures of drift detection",
    "coterie.methods": "The table of methods, and the protocol of a method",
    "coterie.methods.protocol": "What a method is: start, stage, round, place",
    "coterie.federation.protocol": "What a method may ask of the clients",
    "coterie.clients": "Works: what a client can be asked to do",
    "coterie.testing": "The contract suite for methods",
    "coterie.tracking": "Trackers: TensorBoard, MLflow, Weights & Biases",
    "coterie.tree": "Models as trees of arrays",
    "coterie.seeds": "Seeds by name",
    "coterie.errors": "Errors",
}


def cell(value: object) -> str:
    """A value as the content of a table cell."""
    return str(value).replace("|", "\\|").replace("\n", " ")


def settings_table(settings: Iterable[Setting], bounds: dict[str, str] | None = None) -> str:
    """A Markdown table of settings."""
    rows = [
        f"| `{each.key}` | {_default(each.default)} | {cell(each.type)}{(bounds or {}).get(each.key, '')} "
        f"| {cell(each.means)} |"
        for each in settings
    ]
    return "\n".join(["| setting | default | allowed | meaning |", "|---|---|---|---|", *rows])


def _default(value: object) -> str:
    if isinstance(value, list):
        return f"`{', '.join(map(str, value))}`" if value else "empty"
    shown = {True: "`true`", False: "`false`", None: "none"}
    return shown[value] if value is None or isinstance(value, bool) else f"`{cell(value)}`"


def bound_text(kind: object) -> str:
    """The bounds of a setting in words, such as ", at least 1"."""
    found = [each for each in _annotations(kind) if isinstance(each, Bound)]
    words = {"at_least": "at least", "at_most": "at most", "above": "above", "below": "below"}
    parts = [
        f"{word} {getattr(bound, name):g}"
        for bound in found
        for name, word in words.items()
        if getattr(bound, name) is not None
    ]
    return ", " + ", ".join(parts) if parts else ""


def _annotations(kind: object) -> list[object]:
    """Everything that annotates a type or its parts."""
    found = list(getattr(kind, "__metadata__", ()))
    for part in typing.get_args(kind):
        found += _annotations(part)
    return found


def settings_page() -> str:
    """Every setting with its default, bounds and meaning."""
    parts = [
        "# Settings",
        "Every setting has a name, `section.key`. It is the same in a spec file, in a dict for `coterie.run`, and on "
        "the command line with `--set section.key=value`. This page is generated from the classes with the defaults.",
        "`data.name`, `model.name` and `method.name` choose a data set, a model and a method; their own settings are "
        "listed by `coterie data NAME`, `coterie models NAME` and `coterie methods NAME`, and for "
        "[methods](#settings-of-methods) below.",
    ]
    for section in SECTIONS:
        part = getattr(Spec(), section)
        if isinstance(part, Named):
            continue
        parts += [f"## {section}", SECTION_TITLES[section], _section_table(section, part)]
    parts += ["## Settings of methods"]
    for name in METHODS:
        found = own_settings(name)
        page = f"[Equations and traffic](../methods/{name}.md)."
        parts += [f"### {name}", page, method_settings_table(name) if found else "No settings of its own."]
    return "\n\n".join(parts) + "\n"


def method_settings_table(name: str) -> str:
    """The table of the own settings of a method."""
    hints = typing.get_type_hints(method_class(name), include_extras=True)
    return settings_table(own_settings(name), {f"method.{key}": bound_text(kind) for key, kind in hints.items()})


def _section_table(section: str, part: object) -> str:
    hints = typing.get_type_hints(type(part), include_extras=True)
    means = doc_entries(type(part), "Attributes")
    settings = [
        Setting(
            f"{section}.{key}",
            list(value) if isinstance(value, tuple) else value,
            type_text(hints[key]),
            means.get(key, ""),
        )
        for key, value in dataclasses.asdict(part).items()
    ]
    return settings_table(settings, {f"{section}.{key}": bound_text(hints[key]) for key in hints})


# ------------------------------------------------------------------------------------------------------------- commands


def commands_page() -> str:
    """Every command with its arguments, options and examples."""
    group = typer.main.get_command(app)
    parts = [
        "# Commands",
        "Every command has `--help`, and most have `--json` for scripts. This page is generated from the commands.",
    ]
    for path, command in _commands(group, ()):
        parts += _command(" ".join(("coterie", *path)), command)
    return "\n\n".join(parts) + "\n"


def _commands(group: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    if not hasattr(group, "commands"):
        return [(path, group)]
    return [found for name, each in group.commands.items() for found in _commands(each, (*path, name))]


def _command(name: str, command: Any) -> list[str]:
    context = typer.Context(command, info_name=name)
    parts = [f"## {name}", _plain(inspect.cleandoc(command.help or ""))]
    shown = [parameter for parameter in command.get_params(context) if not getattr(parameter, "hidden", False)]
    arguments = [_argument(each) for each in shown if each.param_type_name == "argument"]
    parts.append(f"<!-- not run: usage -->\n```sh\n{' '.join([name, *arguments, '[OPTIONS]'])}\n```")
    rows = [_option(parameter) for parameter in shown]
    parts.append("\n".join(["| argument or option | meaning |", "|---|---|", *filter(None, rows)]))
    if examples := _examples(command.epilog or ""):
        lines = "\n".join(
            f"{line}\n    # {what}" if len(line) > 70 else f"{line:<52}  # {what}" for line, what in examples
        )
        parts.append(f"Examples:\n\n<!-- not run: examples of --help -->\n```sh\n{lines}\n```")
    return parts


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required else f"[{name}]"


def _option(parameter: Any) -> str:
    if parameter.name == "help":
        return ""
    names = ", ".join(f"`{each}`" for each in [*parameter.opts, *parameter.secondary_opts])
    if parameter.param_type_name == "argument":
        names = f"`{cell(_argument(parameter))}`"
    elif parameter.metavar:
        names += f" `{cell(parameter.metavar)}`"
    meaning = _plain(getattr(parameter, "help", "") or "")
    if getattr(parameter, "show_default", False) and parameter.default not in (None, False, ()):
        meaning += f" Default: `{parameter.default}`."
    return f"| {names} | {cell(meaning)} |"


def _plain(text: str) -> str:
    """Text of a help page without the markup of the terminal."""
    return re.sub(r"\[/?(?:bold|dim|italic)?\]", "", text)


def _examples(epilog: str) -> Sequence[tuple[str, str]]:
    return re.findall(r"\[bold\](.+?)\[/\]\n  (.+)", epilog)


# ------------------------------------------------------------------------------------------------------------------ API


def api_pages() -> dict[str, str]:
    """File name → page of one module, from docstrings; and the index."""
    pages = {f"{name}.md": f"# {name}\n\n{about}.\n\n::: {name}\n" for name, about in API.items()}
    rows = "\n".join(f"| [`{name}`]({name}.md) | {about} |" for name, about in API.items())
    pages["index.md"] = (
        "# Python API\n\nNames in `__all__` are public. Everything here is generated from the docstrings.\n\n"
        f"| module | what it has |\n|---|---|\n{rows}\n"
    )
    return pages
