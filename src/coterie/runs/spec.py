"""`Spec`: all settings of a run, as nested frozen dataclasses. It is read from and written to dicts and TOML.

Each default is defined once: in the settings class of a section, the signature of a data loader or a model, or the
dataclass of a method. Unknown keys are errors with a suggestion. `coterie.runs.resolve` fills in all defaults; a record
stores the resolved spec.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from coterie.aggregation import Aggregation
from coterie.bounds import Bound, check
from coterie.clients import LocalSGD
from coterie.errors import SpecError, shown, unknown
from coterie.federation import Attack, Compression, Faults, Privacy
from coterie.federation.device import DeviceName
from coterie.federation.network.settings import NetworkSettings
from coterie.federation.ray.settings import RaySettings
from coterie.methods import METHODS, method_class, settings_of
from coterie.models.library import model_options
from coterie.runs.settings_conversion import convert, parse_setting
from coterie.shift import ShiftSettings

#: A spec as `run`, `compare` and `estimate` accept it: a Spec, nested dicts, or the path of a TOML file.
SpecLike = typing.Union["Spec", Mapping[str, Any], str, os.PathLike[str]]


@dataclass(frozen=True)
class Named:
    """The `data`, `model` or `method` section: a name and the settings that belong to it."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


#: Primary metrics that are never above 1; `auto` is the accuracy, or the loss for regression.
_AT_MOST_1 = ("auto", "accuracy", "balanced_accuracy", "macro_f1", "auroc", "ece", "r2")


@dataclass(frozen=True)
class RunSettings:
    """Settings of the `run` section.

    Attributes:
        rounds: Number of rounds.
        clients_per_round: Clients per round; 0: 10, or all clients if there are fewer.
        seed: Random seed.
        sampler: Client sampling: uniform; poisson: each client independently, clients_per_round on average; sweep:
            every client once, then uniform; availability: uniform among the clients that are available in the round;
            round_plus_seed: the cohorts of FedSim's published program, which follow from round + seed.
        stragglers: Fraction of the clients of a round that do only part of their local training.
        evaluate_every: Rounds between evaluations of all clients; the last round is always evaluated.
        checkpoint_every: Rounds between checkpoints. Above 1, those of more than 32 MiB are put off, so that they take
            at most a twentieth of the time.
        threads: Threads of the simulator; 0: one per core. Results do not depend on it.
        backend: Where clients run: vectorized (fast), sequential (one client after another, for debugging), or ray
            (vectorized on the machines of a Ray cluster, see [ray]).
        device: Where the vectorized backend computes: cpu, gpu, or auto, a GPU if JAX finds one, otherwise the CPU.
            Results on a GPU differ in the last digits, and its speed has not been measured.
        target: Target of the primary metric; rounds and bytes until it is reached are reported. 0: no target.
        newcomers: Fraction of clients that join later.
        newcomers_join: Numbers of rounds after which newcomers join, in equal parts; empty: half of the rounds.
        eval_model: Model with which a client is evaluated: group, the current model of its cluster; or last_received,
            the model that it last received for training, as in FlexCFL's published code; the record then has both.
        score_with: Assignment of clients at an evaluation. current: as the method would serve them now; methods such as
            ifca ask the clients to choose again. assigned: as the method last assigned them, without an exchange. auto:
            assigned if the data drift ([shift]), otherwise current.
        metrics: Metrics that evaluations compute in addition to accuracy and loss: balanced_accuracy, macro_f1, auroc,
            log_loss, brier, ece; rmse, mae, r2 for regression; or metrics of your own.
        primary_metric: Metric that decides the target, early stopping, the best round, what `compare` tests and what
            `tune` searches by. auto: accuracy, or loss for regression.
        validate: Whether evaluations also use validation examples (data.held_share), on which the best round is chosen.
            Clients then train on the others only.
        patience: Number of evaluations without improvement of the primary metric on validation examples after which
            the run ends; 0: it does not end early. Needs validate, and turns it on.
        final_model: Round whose models are recorded and served. last: the last one; best: the one whose primary metric
            is best on validation examples, which turns validate on; auto: best with patience, otherwise last. With
            drifting data, newcomers or clients on other machines: last.
    """

    rounds: Annotated[int, Bound(at_least=1)] = 50
    clients_per_round: Annotated[int, Bound(at_least=0)] = 0
    seed: Annotated[int, Bound(at_least=0)] = 0
    sampler: Literal["uniform", "poisson", "sweep", "availability", "round_plus_seed"] = "uniform"
    stragglers: Annotated[float, Bound(at_least=0, at_most=1)] = 0.0
    evaluate_every: Annotated[int, Bound(at_least=1)] = 1
    checkpoint_every: Annotated[int, Bound(at_least=1)] = 10
    threads: Annotated[int, Bound(at_least=0)] = 0
    backend: Literal["vectorized", "sequential", "ray"] = "vectorized"
    device: DeviceName = "cpu"
    target: Annotated[float, Bound(at_least=0)] = 0.0
    newcomers: Annotated[float, Bound(at_least=0, at_most=1)] = 0.0
    newcomers_join: tuple[int, ...] = ()
    eval_model: Literal["group", "last_received"] = "group"
    score_with: Literal["auto", "current", "assigned"] = "auto"
    metrics: tuple[str, ...] = ()
    primary_metric: str = "auto"
    validate: bool = False
    patience: Annotated[int, Bound(at_least=0)] = 0
    final_model: Literal["auto", "last", "best"] = "auto"

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "run")
        if self.target > 1 and self.primary_metric in _AT_MOST_1:
            raise SpecError(f"run.target must be between 0 and 1 for {self._primary()}, got {shown(self.target)}")
        if any(not 0 < t < self.rounds for t in self.newcomers_join):
            raise SpecError(
                f"run.newcomers_join must be numbers of rounds from 1 to {self.rounds - 1}, got {self.newcomers_join}"
            )
        if self.newcomers_join and not self.newcomers:
            raise SpecError("run.newcomers_join needs run.newcomers above 0, the fraction of clients that join later")

    def _primary(self) -> str:
        return "accuracy" if self.primary_metric == "auto" else self.primary_metric


#: Section of a spec → description.
SECTIONS: dict[str, str] = {
    "data": "data set and its partition among clients",
    "model": "model",
    "method": "method",
    "local": "local training on a client",
    "run": "rounds, client sampling, seed, backend",
    "shift": "simulated drift of the clients' data",
    "faults": "simulated faults, each with its probability",
    "attack": "simulated malicious clients",
    "aggregation": "rule by which the server averages models",
    "privacy": "clipping of updates, noise on their sums, smallest cluster",
    "compression": "compression of the updates that clients send",
    "network": "clients on other machines (coterie serve): how many, deadlines, limits",
    "ray": "simulated clients on the machines of a Ray cluster (run.backend = 'ray')",
}

_FIXED: dict[str, type] = {
    "local": LocalSGD,
    "run": RunSettings,
    "shift": ShiftSettings,
    "faults": Faults,
    "attack": Attack,
    "aggregation": Aggregation,
    "privacy": Privacy,
    "compression": Compression,
    "network": NetworkSettings,
    "ray": RaySettings,
}


@dataclass(frozen=True)
class Spec:
    """All settings of a run; each attribute is a section. `local` is None if a method object has no such settings."""

    data: Named = Named("digits")
    model: Named = Named("auto")
    method: Named = Named("fedavg")
    local: LocalSGD | None = field(default_factory=LocalSGD)
    run: RunSettings = field(default_factory=RunSettings)
    shift: ShiftSettings = field(default_factory=ShiftSettings)
    faults: Faults = field(default_factory=Faults)
    attack: Attack = field(default_factory=Attack)
    aggregation: Aggregation = field(default_factory=Aggregation)
    privacy: Privacy = field(default_factory=Privacy)
    compression: Compression = field(default_factory=Compression)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    ray: RaySettings = field(default_factory=RaySettings)

    @classmethod
    def of(cls, source: SpecLike | None) -> Spec:
        """Create a spec from nested dicts or a TOML file; a Spec is returned unchanged, None gives the defaults."""
        if source is None:
            return cls()
        if isinstance(source, Spec):
            return source
        if isinstance(source, Mapping):
            return cls.from_dict(source)
        return cls.from_dict(read_toml(Path(source)))

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Spec:
        """Create a spec from nested dicts; for data, model and method a string is short for a table with that name."""
        parts: dict[str, Any] = {}
        for section, given in plain.items():
            if _known_section(section) not in _FIXED:
                parts[section] = _named(section, given)
            elif isinstance(given, Mapping):
                parts[section] = _FIXED[section](**_converted(section, given))
            else:
                raise SpecError(f"[{section}] must be a table of settings, got {shown(given)}")
        return cls(**parts)

    def with_values(self, values: Mapping[str, object]) -> Spec:
        """Return this spec with some settings replaced.

        A new name for data, model or method discards the settings of the old one.

        Args:
            values: `section.key` → value.
        """
        changes: dict[str, dict[str, object]] = {}
        for path, value in values.items():
            section, _, key = path.partition(".")
            changes.setdefault(_known_section(section), {})[key] = value
        parts: dict[str, Any] = {section: self._changed(section, new) for section, new in changes.items()}
        return dataclasses.replace(self, **parts)

    def with_settings(self, texts: Iterable[str]) -> Spec:
        """Return this spec with settings replaced, given as `section.key=value` strings as for `--set`."""
        return self.with_values(dict(parse_setting(text) for text in texts))

    def _changed(self, section: str, new: Mapping[str, object]) -> object:
        part = getattr(self, section)
        if not isinstance(part, Named):
            return dataclasses.replace(part or _FIXED[section](), **_converted(section, new))
        kept = part.options if new.get("name", part.name) == part.name else {}
        return _named(section, {"name": part.name, **kept, **new})

    def to_dict(self) -> dict[str, Any]:
        """Return nested dicts, the inverse of `from_dict`."""
        named: dict[str, Named] = {"data": self.data, "model": self.model, "method": self.method}
        plain: dict[str, Any] = {
            name: {"name": part.name, **{key: _lists(value) for key, value in part.options.items()}}
            for name, part in named.items()
        }
        for name in _FIXED:
            if getattr(self, name) is None:
                continue
            plain[name] = {key: _lists(value) for key, value in dataclasses.asdict(getattr(self, name)).items()}
        return plain

    def to_toml(self) -> str:
        """Return this spec as TOML. Settings that are None are left out, because TOML has no null."""
        import tomli_w

        plain = self.to_dict()
        return tomli_w.dumps(
            {
                section: {key: value for key, value in table.items() if value is not None}
                for section, table in plain.items()
            }
        )


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; errors name the file and the line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as fault:
        raise SpecError(
            f"There is no file {path}; a spec is a TOML file with sections {', '.join(SECTIONS)}"
        ) from fault
    except (OSError, UnicodeDecodeError) as fault:
        raise SpecError(f"{path} cannot be read: {fault}") from fault
    except ValueError as fault:  # also numbers of more than 4,300 digits
        raise SpecError(f"{path} is not valid TOML: {fault}") from fault
    except RecursionError as fault:
        raise SpecError(f"{path} cannot be read: its lists or tables are nested too deeply") from fault


def sections_by_setting() -> dict[str, list[str]]:
    """Setting → the sections that have it, for all settings of fixed sections and of methods."""
    found: dict[str, list[str]] = {}
    for section, settings in _FIXED.items():
        for field_ in dataclasses.fields(settings):
            found.setdefault(field_.name, []).append(section)
    for name in METHODS:
        for key in settings_of(method_class(name)):
            if "method" not in found.setdefault(key, []):
                found[key].append("method")
    return found


def model_defaults(name: str) -> dict[str, Any]:
    """Return the settings of a model with their defaults."""
    return {} if name == "auto" else {**model_options(name), "normalize": "auto"}


def method_options(name: str) -> dict[str, Any]:
    """Return the settings of a method with their defaults."""
    return {key: _default(entry) for key, entry in settings_of(method_class(name)).items()}


def method_types(name: str) -> dict[str, Any]:
    """Return the settings of a method with their declared types."""
    kind = method_class(name)
    hints = _hints(kind)
    return {key: hints[key] for key in settings_of(kind)}


#: Class → its declared types. Evaluating them takes a millisecond, and plans make hundreds of specs.
_HINTS: dict[type, dict[str, Any]] = {}


def _hints(kind: type) -> dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = typing.get_type_hints(kind)
    return _HINTS[kind]


def _default(entry: dataclasses.Field[Any]) -> object:
    return entry.default_factory() if entry.default_factory is not dataclasses.MISSING else entry.default


def _known_section(section: str) -> str:
    if section not in SECTIONS:
        raise SpecError(unknown("section of a spec", section, SECTIONS))
    return section


def _converted(section: str, given: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings of a fixed section, converted to their declared types."""
    hints = _hints(_FIXED[section])
    for key in given:
        if key not in hints:
            raise SpecError(unknown("setting", key, hints, f"in [{section}]"))
    return {key: convert(value, hints[key], f"{section}.{key}") for key, value in given.items()}


def _named(section: str, given: object) -> Named:
    if isinstance(given, str | os.PathLike):
        given = {"name": os.fspath(given)}
    if section == "method" and hasattr(given, "round") and hasattr(given, "place"):
        raise SpecError(
            f"[method] must be a name, got the object {shown(given)}. coterie.run(spec, method=...) takes an object; "
            "compare, tune and recommend take the name under which it is registered (entry point coterie.methods)"
        )
    if not isinstance(given, Mapping):
        raise SpecError(f"[{section}] must be a name or a table with a name, got {shown(given)}")
    options = dict(given)
    name = options.pop("name", getattr(Spec, section).name)
    if not isinstance(name, str):
        raise SpecError(f"{section}.name must be a text, got {shown(name)}")
    if section == "method":
        method_class(name)  # an unknown name is reported here, before any data are loaded
    return Named(name, {key: _tuples(value) for key, value in options.items()})


def _tuples(value: Any) -> Any:
    """Convert lists to tuples: a spec has only immutable values."""
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _lists(value: Any) -> Any:
    """Convert tuples to lists, for JSON and TOML."""
    return list(map(_lists, value)) if isinstance(value, list | tuple) else value
