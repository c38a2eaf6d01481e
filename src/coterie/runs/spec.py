"""`Spec`: what to run, as one frozen tree of dataclasses ↔ TOML ↔ flags.

Every default exists once: in `RunSettings`, in `LocalSGD`, in `Faults`, in the signature of a data loader or a model,
or in the dataclass of a method. Unknown keys are errors with a suggestion. `resolve` fills in every default, and that
is what a record keeps.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from coterie.aggregation import Aggregation
from coterie.clients import LocalSGD
from coterie.data.loading import find_loader, loader_options
from coterie.errors import SpecError, unknown
from coterie.federation import Attack, Faults
from coterie.methods import method_class, settings_of
from coterie.models.library import model_options
from coterie.runs.settings_conversion import convert, parse_setting
from coterie.shift import ShiftSettings


@dataclass(frozen=True)
class Named:
    """A thing with a name and settings of its own: data, a model, a method."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunSettings:
    """How a run goes.

    Attributes:
        rounds: How many.
        clients_per_round: Clients in each; 0 for ten, or all where there are fewer.
        seed: From which every draw comes.
        sampler: How cohorts are drawn: uniform; sweep (everyone once, then uniform); availability.
        stragglers: The share of a cohort that has no time for all of its work.
        evaluate_every: Rounds between scorings of all clients; the last round is always scored.
        checkpoint_every: Rounds between checkpoints.
        threads: Of the simulator; 0 for one a core. Results do not depend on it.
        backend: Where clients run.
        target: An accuracy to reach: rounds and bytes to it are reported; 0 for none.
        newcomers: The share of clients that is held back and joins later.
        newcomers_join: The rounds in which they join, in equal parts; empty for half of the rounds.
        eval_model: Clients are scored with the model that they are served, which is their group's as it is now; or,
            to compare with FlexCFL's published code, with the one that they last received to train from.
    """

    rounds: int = 50
    clients_per_round: int = 0
    seed: int = 0
    sampler: Literal["uniform", "sweep", "availability"] = "uniform"
    stragglers: float = 0.0
    evaluate_every: int = 1
    checkpoint_every: int = 10
    threads: int = 0
    backend: Literal["vectorized", "sequential"] = "vectorized"
    target: float = 0.0
    newcomers: float = 0.0
    newcomers_join: tuple[int, ...] = ()
    eval_model: Literal["group", "last_received"] = "group"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        for name, least in (("rounds", 1), ("evaluate_every", 1), ("checkpoint_every", 1)):
            if getattr(self, name) < least:
                raise SpecError(f"run.{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("clients_per_round", "seed", "threads"):
            if getattr(self, name) < 0:
                raise SpecError(f"run.{name} must not be negative, got {getattr(self, name)}")
        for name in ("stragglers", "target", "newcomers"):
            if not 0 <= getattr(self, name) <= 1:
                raise SpecError(f"run.{name} must lie between 0 and 1, got {getattr(self, name)}")
        if any(not 0 < t < self.rounds for t in self.newcomers_join):
            raise SpecError(
                f"run.newcomers_join must be rounds after 0 and before {self.rounds}, got {self.newcomers_join}"
            )


#: The sections of a spec, and what they hold.
SECTIONS: dict[str, str] = {
    "data": "which examples, and how they are dealt to clients",
    "model": "what is learned",
    "method": "how",
    "local": "how a client trains",
    "run": "how long, with whom, from which seed",
    "shift": "how the clients' data drift meanwhile",
    "faults": "what goes wrong on the way, by probability",
    "attack": "which clients do harm, and how",
    "aggregation": "how models are averaged so that bad ones do little",
}

_FIXED: dict[str, type] = {
    "local": LocalSGD,
    "run": RunSettings,
    "shift": ShiftSettings,
    "faults": Faults,
    "attack": Attack,
    "aggregation": Aggregation,
}


@dataclass(frozen=True)
class Spec:
    """What to run."""

    data: Named = Named("digits")
    model: Named = Named("auto")
    method: Named = Named("fedavg")
    local: LocalSGD = field(default_factory=LocalSGD)
    run: RunSettings = field(default_factory=RunSettings)
    shift: ShiftSettings = field(default_factory=ShiftSettings)
    faults: Faults = field(default_factory=Faults)
    attack: Attack = field(default_factory=Attack)
    aggregation: Aggregation = field(default_factory=Aggregation)

    @classmethod
    def of(cls, source: Spec | Mapping[str, Any] | str | os.PathLike[str] | None) -> Spec:
        """The spec of a dict, of a TOML file, or itself."""
        if source is None:
            return cls()
        if isinstance(source, Spec):
            return source
        if isinstance(source, Mapping):
            return cls.from_dict(source)
        return cls.from_dict(read_toml(Path(source)))

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Spec:
        """The spec of nested dicts; a bare string for data, model or method is its name."""
        parts: dict[str, Any] = {}
        for section, given in plain.items():
            if _known_section(section) not in _FIXED:
                parts[section] = _named(section, given)
            elif isinstance(given, Mapping):
                parts[section] = _FIXED[section](**_converted(section, given))
            else:
                raise SpecError(f"[{section}] must be a table of settings, got {given!r}")
        return cls(**parts)

    def with_values(self, values: Mapping[str, object]) -> Spec:
        """Return this spec with some settings replaced.

        A new name of data, model or method drops the settings that belong to the old one.

        Args:
            values: `section.key` → value.
        """
        changes: dict[str, dict[str, object]] = {}
        for path, value in values.items():
            section, _, key = path.partition(".")
            changes.setdefault(_known_section(section), {})[key] = value
        return dataclasses.replace(self, **{section: self._changed(section, new) for section, new in changes.items()})

    def with_settings(self, texts: Iterable[str]) -> Spec:
        """Return this spec with `section.key=value` texts applied, as `--set` takes them."""
        return self.with_values(dict(parse_setting(text) for text in texts))

    def _changed(self, section: str, new: dict[str, object]) -> Any:
        part = getattr(self, section)
        if not isinstance(part, Named):
            return dataclasses.replace(part, **_converted(section, new))
        kept = part.options if new.get("name", part.name) == part.name else {}
        return _named(section, {"name": part.name, **kept, **new})

    def to_dict(self) -> dict[str, Any]:
        """Nested dicts, as `from_dict` takes them."""
        named = {name: getattr(self, name) for name in ("data", "model", "method")}
        plain: dict[str, Any] = {
            name: {"name": part.name, **{key: _plain(value) for key, value in part.options.items()}}
            for name, part in named.items()
        }
        for name in _FIXED:
            plain[name] = {key: _plain(value) for key, value in dataclasses.asdict(getattr(self, name)).items()}
        return plain

    def to_toml(self) -> str:
        """The same as TOML."""
        import tomli_w

        return tomli_w.dumps({key: _without_none(value) for key, value in self.to_dict().items()})


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file, with errors that say where it is broken."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as fault:
        raise SpecError(
            f"There is no file {path}; a spec is a TOML file with sections {', '.join(SECTIONS)}"
        ) from fault
    except (OSError, UnicodeDecodeError) as fault:
        raise SpecError(f"{path} cannot be read: {fault}") from fault
    except tomllib.TOMLDecodeError as fault:
        raise SpecError(f"{path} is not valid TOML: {fault}") from fault


def resolve(spec: Spec, *, given: Collection[str] = ()) -> Spec:
    """The spec with every default of data, model and method filled in, and every option checked.

    Args:
        spec: What to run.
        given: Sections for which there is an object instead; they stay as they are.
    """
    data = {} if "data" in given else dict(loader_options(spec.data.name))
    if "path" in data:  # a folder or a table: the record says where it is from wherever it is read
        del data["path"]
        spec = dataclasses.replace(spec, data=Named(os.path.abspath(spec.data.name), spec.data.options))
    if "seed" in data:
        data["seed"] = spec.run.seed  # another seed is another draw of the data, unless it is fixed
    defaults: dict[str, dict[str, Any]] = {"data": data}
    if "model" not in given:
        defaults["model"] = model_defaults(spec.model.name)
    if "method" not in given:
        defaults["method"] = method_options(spec.method.name)
    if "data" in given:
        del defaults["data"]
    parts = {key: getattr(spec, key) for key in defaults}
    named: dict[str, Any] = {key: Named(parts[key].name, _options(key, parts[key], defaults[key])) for key in parts}
    return dataclasses.replace(spec, **named)


def model_defaults(name: str) -> dict[str, Any]:
    """The settings of a model with their defaults; how inputs are normalized is found from the data."""
    return {} if name == "auto" else {**model_options(name), "normalize": "auto"}


def method_options(name: str) -> dict[str, Any]:
    """The settings of a method with their defaults."""
    return {key: _default(entry) for key, entry in settings_of(method_class(name)).items()}


def method_types(name: str) -> dict[str, Any]:
    """The settings of a method with their types."""
    import typing

    kind = method_class(name)
    hints = typing.get_type_hints(kind)
    return {key: hints[key] for key in settings_of(kind)}


def data_types(name: str) -> dict[str, Any]:
    """The options of a data set with their types."""
    import typing

    loader, _ = find_loader(name)
    return {key: hint for key, hint in typing.get_type_hints(loader).items() if key not in ("path", "return")}


def _default(entry: dataclasses.Field[Any]) -> Any:
    return entry.default_factory() if entry.default_factory is not dataclasses.MISSING else entry.default


def _options(section: str, part: Named, defaults: Mapping[str, Any]) -> dict[str, Any]:
    kind = "data set" if section == "data" else section
    given = dict(part.options)
    types = method_types(part.name) if section == "method" else data_types(part.name) if section == "data" else {}
    for key, value in given.items():
        if key not in defaults and part.name != "auto":
            raise SpecError(unknown(f"setting of {kind} {part.name}", key, defaults))
        # The default of a model has the type that its setting is declared with; methods and loaders say more.
        wanted = types.get(key, type(defaults.get(key)))
        if key in types or wanted in (bool, int, float, str):
            given[key] = _plain(convert(value, wanted, f"{section}.{key}"))
    missing = [key for key, value in defaults.items() if value is inspect.Parameter.empty and key not in given]
    if missing:
        raise SpecError(f"{kind} {part.name} needs a value for {', '.join(missing)}")
    return {**defaults, **given}


def _known_section(section: str) -> str:
    if section not in SECTIONS:
        raise SpecError(unknown("section of a spec", section, SECTIONS))
    return section


def _converted(section: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a fixed section, converted to their declared types."""
    import typing

    hints = typing.get_type_hints(_FIXED[section])
    for key in given:
        if key not in hints:
            raise SpecError(unknown(f"setting in [{section}]", key, hints))
    return {key: convert(value, hints[key], f"{section}.{key}") for key, value in given.items()}


def _named(section: str, given: Any) -> Named:
    if isinstance(given, str | os.PathLike):
        return Named(os.fspath(given))
    if not isinstance(given, Mapping):
        raise SpecError(f"[{section}] must be a name or a table with a name, got {given!r}")
    options = dict(given)
    name = options.pop("name", getattr(Spec, section).name)
    if not isinstance(name, str):
        raise SpecError(f"{section}.name must be a text, got {name!r}")
    if section == "method":
        method_class(name)  # an unknown name is an error as early as possible
    return Named(name, {key: _plain(value) for key, value in options.items()})


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}
