"""The methods by name, one file each. Other packages add methods by the entry point group `coterie.methods`."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

from coterie.errors import MethodError, SpecError, unknown

if TYPE_CHECKING:
    from coterie.clients import LocalSGD
    from coterie.methods.protocol import Method

__all__ = ["METHODS", "build", "descriptions", "documentation", "method_class", "names", "settings_of"]

#: Name → "module:Class", imported on use.
METHODS: dict[str, str] = {
    "cfl": "coterie.methods.cfl:CFL",
    "fedavg": "coterie.methods.fedavg:FedAvg",
    "fedgroup": "coterie.methods.fedgroup:FedGroup",
    "fedgrouprox": "coterie.methods.fedgroup:FedGrouProx",
    "fedprox": "coterie.methods.fedprox:FedProx",
    "fedsim": "coterie.methods.fedsim:FedSim",
    "fedsoft": "coterie.methods.fedsoft:FedSoft",
    "fesem": "coterie.methods.fesem:FeSEM",
    "fesem-mig": "coterie.methods.fesem_mig:FeSEMMig",
    "flag": "coterie.methods.flag:FLAG",
    "flexcfl": "coterie.methods.flexcfl:FlexCFL",
    "flhc": "coterie.methods.fl_hc:FLHC",
    "global": "coterie.methods.global_model:Global",
    "ifca": "coterie.methods.ifca:IFCA",
    "ifca-mig": "coterie.methods.ifca_mig:IFCAMig",
    "local": "coterie.methods.local:Local",
    "localkmeans": "coterie.methods.local_kmeans:LocalKMeans",
    "oneshotifca": "coterie.methods.oneshot_ifca:OneShotIFCA",
    "oracle": "coterie.methods.oracle:Oracle",
    "pacfl": "coterie.methods.pacfl:PACFL",
    "perfedavg": "coterie.methods.per_fedavg:PerFedAvg",
    "srfca": "coterie.methods.srfca:SRFCA",
}

#: Methods that differ from another one only in their defaults; the docstring of their class documents them.
_PRESETS = frozenset({"fedgrouprox"})


def names() -> list[str]:
    """The names of all methods, including those of other packages."""
    return sorted({*METHODS, *(point.name for point in metadata.entry_points(group="coterie.methods"))})


def descriptions() -> dict[str, str]:
    """Name → the first line of the documentation."""
    return {name: documentation(name).split("\n")[0].rstrip(".") for name in names()}


def documentation(name: str) -> str:
    """The text about a method: the docstring of its module, or of its class for a preset."""
    method_type = method_class(name)
    if name in _PRESETS:
        return inspect.cleandoc(method_type.__doc__ or "").partition("\n\nAttributes:\n")[0]
    return inspect.cleandoc(importlib.import_module(method_type.__module__).__doc__ or method_type.__doc__ or "")


def method_class(name: str) -> type[Any]:
    """The class of the method with this name; the table takes precedence over entry points."""
    if name in METHODS:
        module, attribute = METHODS[name].split(":")
        found: type[Any] = getattr(importlib.import_module(module), attribute)
        return found
    for point in metadata.entry_points(group="coterie.methods"):
        if point.name == name:
            found = point.load()
            return found
    raise SpecError(unknown("method", name, names()))


def settings_of(method_type: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """The settings of a method: all fields except `local` and those that come from the run."""
    declared = dataclasses.fields(method_type) if dataclasses.is_dataclass(method_type) else ()
    fields = {field.name: field for field in declared}
    if "local" not in fields:
        raise MethodError(
            f"Class {method_type.__qualname__} must be a dataclass with a field `local`; "
            "its fields are the settings of the method"
        )
    return {name: field for name, field in fields.items() if name != "local" and "run" not in field.metadata}


def build(name: str, local: LocalSGD, given: Mapping[str, object], /, **options: object) -> Method[Any]:
    """Create the method of this name.

    Args:
        name: Name of the method.
        local: Settings of local training.
        given: Values from the run: `truth`, `rounds`, `clients_per_round`, `clients`.
        options: Settings of the method.
    """
    method_type = method_class(name)
    known = settings_of(method_type)
    for option in options:
        if option not in known:
            raise SpecError(unknown("setting", option, known, f"of method {name}"))
    injected = {f.name: given[f.metadata["run"]] for f in dataclasses.fields(method_type) if "run" in f.metadata}
    method: Method[Any] = method_type(local=local, **options, **injected)
    return method
