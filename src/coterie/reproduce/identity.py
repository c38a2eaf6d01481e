"""Names of runs by content: a run is done again if its spec, its data files or the sources of this package change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import coterie
from coterie.data import files
from coterie.data.catalog import CATALOG
from coterie.runs.resolve import fill_defaults
from coterie.runs.spec import Spec

#: Folders of the package on which the result of a run does not depend.
_WITHOUT = ("cli", "reports", "reproduce")

#: Settings on which the result of a run does not depend.
_WHERE: dict[str, tuple[str, ...]] = {"run": ("threads", "checkpoint_every")}
_PLACES = ("ray", "network")

_DIGITS = 16


@cache
def sources_hash() -> str:
    """Hash of the package's sources, without those that run nothing."""
    root = Path(coterie.__path__[0])
    found = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root)
        if name.parts[0] not in _WITHOUT:
            found.update(f"{name.as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return found.hexdigest()[:_DIGITS]


def spec_hash(spec: Spec) -> str:
    """Hash of a spec with every default that needs no data, without its seed and without where it runs."""
    return _hash(_plain(spec, seed=False))


def run_hash(spec: Spec, what: Mapping[str, Any] | None = None) -> str:
    """Hash of a run: its spec, its data files and the sources of this package.

    Args:
        spec: What is run.
        what: What is computed, if it is not the run itself.
    """
    return _hash([_plain(spec), _files(spec.data.name), sources_hash(), what])


def _plain(spec: Spec, *, seed: bool = True) -> dict[str, Any]:
    plain = fill_defaults(spec).to_dict()
    left_out: dict[str, tuple[str, ...]] = dict(_WHERE)
    if not seed:
        left_out["run"] = (*_WHERE["run"], "seed")
        if plain["data"].get("seed") == spec.run.seed:  # it follows the seed of the run
            left_out["data"] = ("seed",)
    return {
        section: {key: value for key, value in table.items() if key not in left_out.get(section, ())}
        for section, table in plain.items()
        if section not in _PLACES
    }


def _files(name: str) -> list[list[Any]]:
    """Names and sizes of the files of a data set: a subset and the whole set give different results."""
    row = CATALOG.get(name)
    sources = [files.locate(each) for each in row.files] if row is not None else []
    return [[path.name, path.stat().st_size] for source in sources if source is not None for path in source.paths]


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_DIGITS]
