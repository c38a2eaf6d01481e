"""The tables and figures of the papers as data: run them again, and put measured beside published values.

    loading       TOML files of this package → entries
    planning      an entry → runs, each named by the hash of its spec, data files and sources
    running       runs, several at a time, stored by that name
    results       records → measured values, differences, standard errors, claims
    files         results → table.md, table.json, report.html

Each table or figure is a TOML file. Names are loaded when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.reproduce.loading import entry, names
    from coterie.reproduce.reproduction import Reproduction, run
    from coterie.reproduce.results import CellResult, EntryResult
    from coterie.reproduce.schema import Entry

__all__ = ["CellResult", "Entry", "EntryResult", "Reproduction", "entry", "names", "run"]

#: Name → module that defines it.
_DEFINED_IN = {
    "CellResult": "coterie.reproduce.results",
    "Entry": "coterie.reproduce.schema",
    "EntryResult": "coterie.reproduce.results",
    "Reproduction": "coterie.reproduce.reproduction",
    "entry": "coterie.reproduce.loading",
    "names": "coterie.reproduce.loading",
    "run": "coterie.reproduce.reproduction",
}


def __getattr__(name: str) -> Any:
    if name in _DEFINED_IN:
        return getattr(importlib.import_module(_DEFINED_IN[name]), name)
    raise AttributeError(f"module 'coterie.reproduce' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
