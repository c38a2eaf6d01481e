"""coterie methods: what there is, and more about one."""

from __future__ import annotations

import dataclasses
import typing

from coterie.cli import flags
from coterie.cli.about import About, Setting, listing, meanings, page, setting


def methods(
    name: flags.MethodName = None,
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """List the methods, or show one: its paper, its equations, its settings, what it costs and reveals."""
    if name is None:
        from coterie.methods import descriptions

        listing("method", descriptions(), as_json=as_json)
        return
    from coterie.cli.progress import Ticker
    from coterie.methods import documentation
    from coterie.runs.method_card import card

    text = documentation(name)
    with Ticker(silent=as_json, waiting=f"{name} plays on a tiny federation") as _:
        seen = card(name)
    page(
        About("method", name, text, own_settings(name), _shared(), seen.sentences(), dataclasses.asdict(seen)),
        as_json=as_json,
    )


def own_settings(name: str) -> list[Setting]:
    """The settings of a method that no other has."""
    from coterie.methods import method_class
    from coterie.runs.spec import method_options, method_types

    types, means = method_types(name), dict[str, str]()
    for kind in reversed(method_class(name).__mro__):  # settings that methods share stand where they are written
        means |= meanings(kind, "Attributes")
    return [
        setting(f"method.{key}", types[key], default, means.get(key, ""))
        for key, default in method_options(name).items()
    ]


def _shared() -> list[Setting]:
    """What every method takes: all sections of a spec but those that have a name, such as data."""
    from coterie.runs.spec import SECTIONS, Named, Spec

    parts = {section: getattr(Spec(), section) for section in SECTIONS}
    return [
        setting(f"{section}.{key}", typing.get_type_hints(type(part))[key], default, means.get(key, ""))
        for section, part in parts.items()
        if not isinstance(part, Named)
        for means in (meanings(type(part), "Attributes"),)
        for key, default in dataclasses.asdict(part).items()
    ]
