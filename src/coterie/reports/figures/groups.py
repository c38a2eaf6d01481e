"""Runs as they are drawn: repetitions with other seeds are one group, and runs on other data go to another panel."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from coterie.errors import RecordError, SpecError, unknown
from coterie.reports.record_paths import find_runs
from coterie.reports.view import RunView
from coterie.runs.record import RunRecord

#: What figures are drawn from: views, records, folders of records, groups, or label → any of these.
Runs: TypeAlias = "RunView | RunRecord | Group | str | os.PathLike[str] | Iterable[Any] | Mapping[str, Any]"

#: Sections of a spec in which runs of one panel agree.
_PANEL = ("data", "model", "shift")
#: Settings of [run] that do not make a run another experiment.
_TECHNICAL = ("seed", "threads", "backend", "checkpoint_every", "evaluate_every", "metrics", "target", "validate")
#: Settings that are named without their section.
_NAMES = ("data.name", "model.name", "shift.name", "method.name")


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only.

    Attributes:
        label: Name in the legend.
        views: The runs.
        panel: Name of the panel: how its data, model or drift differ from those of the other panels.
        place: Position of its label among those of the figure, which decides how it is drawn in every panel.
    """

    label: str
    views: tuple[RunView, ...]
    panel: str = ""
    place: int = 0


def views_of(runs: Runs) -> list[RunView]:
    """The runs as views; a folder that is not a record stands for the records in it, a pattern for what it matches.

    Raises:
        RecordError: If there is no record, or one was not written to a folder.
    """
    found = list(_views(runs))
    if not found:
        raise RecordError("There is no run to draw; name the folders of one or more records")
    return found


def _views(runs: Runs) -> Iterator[RunView]:
    if isinstance(runs, RunView):
        yield runs
    elif isinstance(runs, Group):
        yield from runs.views
    elif isinstance(runs, RunRecord):
        if runs.path is None:
            raise RecordError("This run was not written to a folder; run it with out= to draw it")
        yield RunView.read(runs.path)
    elif isinstance(runs, str | os.PathLike):
        yield from map(RunView.read, find_runs(runs))
    elif isinstance(runs, Mapping):
        for each in runs.values():
            yield from _views(each)
    elif isinstance(runs, Iterable):
        for each in runs:
            yield from _views(each)
    else:
        raise SpecError(f"Runs are records, their folders or views, got {type(runs).__name__}")


def groups_of(runs: Runs) -> list[Group]:
    """The groups of runs, in the order in which they are given.

    The label of a group is its method, with the settings that differ between groups of the same method. The values of
    a mapping are one group each, with the key as its label.
    """
    if isinstance(runs, Mapping):
        return [
            Group(str(label), tuple(views_of(each)), place=place) for place, (label, each) in enumerate(runs.items())
        ]
    if isinstance(runs, Sequence) and runs and all(isinstance(each, Group) for each in runs):
        return list(runs)
    grouped: dict[tuple[Any, ...], list[RunView]] = {}
    for view in views_of(runs):
        grouped.setdefault(tuple(sorted(_settings(view).items())), []).append(view)
    members = [tuple(views) for views in grouped.values()]
    settings = [_settings(views[0]) for views in members]
    panels = _panel_names(settings)
    labels = [_label(place, settings, panels) for place in range(len(members))]
    places = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    return [
        Group(plain(label), views, plain(panel), places[label])
        for label, views, panel in zip(labels, members, panels, strict=True)
    ]


def _settings(view: RunView) -> dict[str, str]:
    """`section.setting` → value as text, without what may differ between repetitions."""
    return {
        f"{section}.{key}": _text(value)
        for section, values in view.spec.items()
        if section != "network"
        for key, value in values.items()
        if not (section == "run" and key in _TECHNICAL) and not (section == "data" and key == "seed")
    }


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _panel_names(settings: list[dict[str, str]]) -> list[str]:
    """The name of each group's panel: the settings of data, model and drift that are not the same for all groups."""
    keys = [key for key in settings[0] if key.partition(".")[0] in _PANEL]
    keys += [key for each in settings for key in each if key.partition(".")[0] in _PANEL and key not in keys]
    differing = [key for key in dict.fromkeys(keys) if len({each.get(key) for each in settings}) > 1]
    named = {key.partition(".")[0] for key in differing if key in _NAMES}
    # The other settings of two data sets differ as well; their names say it.
    shown = [key for key in differing if key in _NAMES or key.partition(".")[0] not in named]
    return [", ".join(_named(key, each[key]) for key in shown if key in each) for each in settings]


def _label(place: int, settings: list[dict[str, str]], panels: list[str]) -> str:
    own = settings[place]
    method = own["method.name"]
    others = [
        each
        for each, panel in zip(settings, panels, strict=True)
        if panel == panels[place] and each["method.name"] == method
    ]
    keys = [key for key in own if key.partition(".")[0] not in _PANEL]
    differing = [key for key in keys if len({each.get(key) for each in others}) > 1]
    return ", ".join([method, *(_named(key, own[key]) for key in differing)])


def _named(key: str, value: str) -> str:
    if key == "shift.name":
        return "no drift" if value == "none" else value.replace("_", " ")
    if key in _NAMES:
        return Path(value).name if key == "data.name" else value
    return f"{key.partition('.')[2].replace('_', ' ')} {value}"


def renamed(groups: Sequence[Group], labels: Mapping[str, str]) -> list[Group]:
    """The groups with other labels; an error names labels that no group has."""
    known = {group.label for group in groups}
    for label in labels:
        if label not in known:
            raise SpecError(unknown("method", label, known, "among the labels of these runs"))
    return [dataclasses.replace(group, label=labels.get(group.label, group.label)) for group in groups]


def plain(text: str) -> str:
    """A text from a record for matplotlib, which reads text between dollar signs as a formula."""
    return text.replace("$", r"\$")
