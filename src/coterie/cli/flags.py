"""Flags that several commands share, and the spec made from them."""

from __future__ import annotations

import glob
import logging
import shlex
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from coterie.errors import message_text, shown

if TYPE_CHECKING:
    from coterie.runs.observers import Observer
    from coterie.runs.spec import Spec

log = logging.getLogger(__name__)

#: Maximum number of seeds or jobs.
_MAX_COUNT = 10_000


def _method_names(incomplete: str) -> list[str]:
    from coterie.methods import names

    return [name for name in names() if name.startswith(incomplete)]


def method_lists(incomplete: str) -> list[str]:
    """Completions of names separated by commas."""
    complete, comma, last = incomplete.rpartition(",")
    return [f"{complete}{comma}{name}" for name in _method_names(last)]


def _data_names_and_paths(incomplete: str) -> list[str]:
    import coterie

    names = [name for name in coterie.DATASETS if name.startswith(incomplete)]
    return names + sorted(glob.glob(glob.escape(incomplete) + "*"))


def _model_names(incomplete: str) -> list[str]:
    import coterie

    return [name for name in ("auto", *coterie.MODELS) if name.startswith(incomplete)]


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"must be a whole number, got {shown(text)}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"must be a number, got {shown(text)}") from None


class Group(TyperGroup):
    """All commands; errors about arguments are shortened, and their control characters are escaped."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the flags before the command."""
        with _readable_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Parse the command and its arguments, and run it."""
        with _readable_errors():
            return super().invoke(ctx)


#: Texts of the parser about numbers, in our words.
_PARSER_TEXTS = {
    "Input should be a valid integer, unable to parse string as an integer": "must be a whole number",
    "Input should be a valid number, unable to parse string as a number": "must be a number",
}


@contextmanager
def _readable_errors() -> Iterator[None]:
    try:
        yield
    except Exception as fault:
        message = getattr(fault, "message", None)  # of the parser, whose module depends on the version of typer
        if isinstance(message, str):
            vars(fault)["message"] = message_text(_PARSER_TEXTS.get(message, message))
        raise


class Command(TyperCommand):
    """A command that suggests the right flag for an unknown one, by the synonyms of settings too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # the type of ctx depends on the version of typer
        """Parse the arguments; an unknown flag raises an error with a suggestion."""
        from coterie.errors import nearest

        args = _repeated(args, "--over")
        given = list(args)  # the parser removes what it has read
        try:
            return super().parse_args(ctx, args)
        except Exception as fault:
            unknown = getattr(fault, "option_name", None)
            if isinstance(unknown, str) and hasattr(fault, "possibilities"):
                flags = [flag[2:] for option in self.params for flag in option.opts if flag.startswith("--")]
                known = {flag.replace("-", "_"): flag for flag in flags}
                near = nearest(unknown.lstrip("-").replace("-", "_"), known)
                fault.possibilities = [] if near is None else [f"--{known[near]}"]
            message = getattr(fault, "message", None)
            if isinstance(message, str) and "unexpected extra argument" in message and "--methods" in given:
                vars(fault)["message"] = f"{message}. --methods takes names separated by commas: fedavg,ifca"
            raise


def _repeated(args: Sequence[str], flag: str) -> list[str]:
    """The arguments with the flag before each of the settings that follow it, which the parser would not accept."""
    result: list[str] = []
    open_ = False
    for arg in args:
        if open_ and "=" in arg and not arg.startswith("-") and result[-1] != flag:
            result.append(flag)
        open_ = arg == flag or (open_ and "=" in arg and not arg.startswith("-"))
        result.append(arg)
    return result


# ---------------------------------------------------------------------------------------------------------- what to run

SpecFile = Annotated[
    Path | None,
    typer.Argument(metavar="SPEC.toml", show_default=False, help="Spec file to start from; flags override it."),
]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|PATH",
        show_default=False,
        autocompletion=_data_names_and_paths,
        help="Data set name (`coterie data` lists them), or the path of a folder of .npz files, a .csv or a .parquet "
        "table; default: digits.",
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        show_default=False,
        autocompletion=_method_names,
        help="Method name; `coterie methods` lists them; default: fedavg.",
    ),
]
Methods = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,…",
        show_default=False,
        autocompletion=method_lists,
        help="Method names, separated by commas. The others are tested against the first.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", show_default=False, autocompletion=_model_names, help="Model name; `coterie models` lists them."
    ),
]
Clusters = Annotated[
    str | None,
    typer.Option(
        metavar="K|auto",
        show_default=False,
        help="Number of clusters, for every method that has this setting; `auto` where the method can choose it.",
    ),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        parser=_integer, metavar="N", show_default=False, help="Number of rounds; default: 50, in the demonstration 60."
    ),
]
ClientsPerRound = Annotated[
    int | None,
    typer.Option(
        parser=_integer,
        metavar="N",
        show_default=False,
        help="Number of clients sampled in each round; default: 10, or all if there are fewer.",
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(
        parser=_integer,
        metavar="N",
        show_default=False,
        help="Local training: epochs per client and round; default: 10.",
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        parser=_integer,
        metavar="N",
        show_default=False,
        help="Local training: examples per batch, 0 for full batches; default: 10.",
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        "--learning-rate",
        "--lr",
        parser=_number,
        metavar="X",
        show_default=False,
        help="Local training: learning rate; default: 0.03.",
    ),
]
Seed = Annotated[
    int | None, typer.Option(parser=_integer, metavar="N", show_default=False, help="Random seed; default: 0.")
]
#: Section names are repeated here because importing `SECTIONS` takes a second; a test compares the two.
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        show_default=False,
        help="Any setting of data, model, method, local, run, shift, faults, attack, aggregation, privacy, "
        "compression, network, ray; repeatable. `coterie methods NAME` lists the settings of a method and those that "
        "all methods share.",
    ),
]
SharedSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        show_default=False,
        help="Any setting of data, model, local, run, shift, faults, attack, aggregation, privacy, compression, "
        "network, ray, for all methods; METHOD.KEY=VALUE for one method; repeatable.",
    ),
]

JobsOn = Annotated[
    str,
    typer.Option(
        metavar="WHERE",
        help="Where the processes of --jobs run; processes: on this machine; ray: on the Ray cluster of ray.address.",
    ),
]

# --------------------------------------------------------------------------------------------------------------- output

_PANEL = "Output"
Json = Annotated[
    bool, typer.Option("--json", rich_help_panel=_PANEL, help="Print the result as one JSON document, nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", rich_help_panel=_PANEL, help="Hide progress and notes.")]
Debug = Annotated[bool, typer.Option("--debug", rich_help_panel=_PANEL, help="Show the traceback of an error.")]
Track = Annotated[
    str | None,
    typer.Option(
        "--track",
        metavar="A,B,…",
        show_default=False,
        rich_help_panel=_PANEL,
        help="Also report to tensorboard, mlflow or wandb, separated by commas; each is an extra.",
    ),
]
Report = Annotated[
    bool,
    typer.Option(
        "--report",
        rich_help_panel=_PANEL,
        help="Also write a page about the results, report.html, into the folder of the records.",
    ),
]
Watch = Annotated[
    bool,
    typer.Option("--watch", rich_help_panel=_PANEL, help="Serve a live page of the run (needs the extra watch)."),
]
RecordFolder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        show_default=False,
        rich_help_panel=_PANEL,
        help="Folder for the record; default: runs/DATA-METHOD-SEED.",
    ),
]
RecordsFolder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        show_default=False,
        rich_help_panel=_PANEL,
        help="Folder for the records, one per run; the same command again continues. Default: no records are kept.",
    ),
]

# -------------------------------------------------------------------------------------------------------- real machines

#: Default folder of a federation on its server.
FEDERATION = Path("federation")
FederationFolder = Annotated[
    Path, typer.Option("--folder", metavar="DIR", help="Folder of the federation on its server.")
]

# ------------------------------------------------------------------------------------------------------------ arguments

Examples = Annotated[
    Path,
    typer.Option(
        "--data",
        metavar="FILE",
        show_default=False,
        help="Examples: a .csv or .parquet table with the columns of the run's data, or an .npz file with the array x.",
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", show_default=False, help="Folder of a record.")]
Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN",
        show_default=False,
        help="Folder of a record, folder of several records, or a pattern such as 'runs/digits-*'.",
    ),
]
MethodName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME", show_default=False, autocompletion=_method_names, help="Method to show; default: list all."
    ),
]
RequiredData = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        show_default=False,
        autocompletion=_data_names_and_paths,
        help="Data set name (`coterie data` lists them), or the path of a folder of .npz files, a .csv or a .parquet "
        "table.",
    ),
]
DataName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME|PATH",
        show_default=False,
        autocompletion=_data_names_and_paths,
        help="Data set to show, or the path of a folder of .npz files, a .csv or a .parquet table; default: list all.",
    ),
]
ModelName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME", show_default=False, autocompletion=_model_names, help="Model to show; default: list all."
    ),
]


def folder_flag(folder: Path) -> str:
    """The flag `--folder` of a command that is suggested to the user, after a space; empty for the default."""
    return "" if folder == FEDERATION else f" --folder {shlex.quote(str(folder))}"


def values(
    *,
    data: str | None = None,
    method: str | None = None,
    model: str | None = None,
    rounds: int | None = None,
    clients_per_round: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
) -> dict[str, object]:
    """`section.key` → value, for the flags that were given."""
    from coterie.errors import SpecError

    if method is not None and "," in method:
        raise SpecError(f"--method takes one name. To run several methods: coterie compare --methods {method}")
    flags = {
        "data.name": data,
        "method.name": method,
        "model.name": model,
        "run.rounds": rounds,
        "run.clients_per_round": clients_per_round,
        "run.seed": seed,
        "local.epochs": epochs,
        "local.steps": None if epochs is None else 0,  # steps would take precedence over epochs
        "local.batch_size": batch_size,
        "local.learning_rate": learning_rate,
    }
    return {key: value for key, value in flags.items() if value is not None}


def trackers(track: str | None) -> list[Observer]:
    """The trackers that `--track` names, each created anew."""
    if track is None:
        return []
    from coterie.tracking import named

    return named(track)


def parsed(settings: Sequence[str] | None) -> dict[str, object]:
    """`section.key` → value, from `--set` arguments; if a key is repeated, the last value counts."""
    from coterie.runs.settings_conversion import parse_setting

    return dict(parse_setting(text) for text in settings or ())


#: Endings of files that hold data, not a spec.
_DATA_ENDINGS = (".csv", ".tsv", ".txt", ".parquet", ".npz", ".gz")


def base_spec(file: Path | None, method_flag: str = "--method") -> Spec:
    """The spec in a file, or the default spec. If `file` is the name of a data set or method, the error has a hint."""
    import coterie
    from coterie.errors import SpecError
    from coterie.methods import names
    from coterie.runs.spec import Spec

    if file is not None and not file.exists():
        name = str(file)
        flag = "--data" if name in coterie.DATASETS else method_flag if name in names() else None
        if flag is not None:
            raise SpecError(f"There is no spec file {name!r}. Did you mean {flag} {name}?")
    elif file is not None and (file.is_dir() or file.suffix.lower() in _DATA_ENDINGS):
        raise SpecError(f"{file} is not a spec, which is a TOML file. Did you mean --data {file}?")
    return Spec.of(file)


def make_spec(
    file: Path | None, flags: Mapping[str, object], settings: Sequence[str] | None, clusters: str | None = None
) -> Spec:
    """The spec in a file, or the default spec, changed first by flags and then by `--set`.

    Args:
        file: A spec file, or None.
        flags: `section.key` → value, from `values`.
        settings: Arguments of `--set`, `section.key=value`.
        clusters: Value of `--clusters`.
    """
    spec, changes = base_spec(file), parsed(settings)
    method = str(changes.get("method.name", flags.get("method.name", spec.method.name)))
    number = clusters_of([method], clusters).get(method)
    return spec.with_values({**flags, **({} if number is None else {"method.clusters": number}), **changes})


def method_names(methods: str | None, file: Path | None, default: Sequence[str]) -> list[str]:
    """The names in `--methods`, or the default.

    Args:
        methods: Value of `--methods`, or None.
        file: The spec file, or None; a method there is a name after a space.
        default: Names without `--methods`.
    """
    from coterie.errors import SpecError
    from coterie.methods import names as known_methods

    if methods is None:
        return list(default)
    if file is not None and str(file) in known_methods() and not file.exists():
        raise SpecError(f"--methods takes names separated by commas, without spaces: --methods {methods},{file}")
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise SpecError("--methods takes method names separated by commas, such as fedavg,ifca")
    if twice := [name for name in names if names.count(name) > 1]:
        raise SpecError(f"--methods has {twice[0]} twice; give each method once")
    return names


def shared_and_own_settings(
    methods: Sequence[str], settings: Sequence[str] | None, clusters: str | None
) -> tuple[dict[str, object], dict[str, dict[str, object]]]:
    """`--set` of several methods: `section.key` → value for all methods, and method → key → value for one.

    Args:
        methods: Names of the methods.
        settings: Arguments of `--set`: `section.key=value` or `method.key=value`.
        clusters: Value of `--clusters`.
    """
    from coterie.errors import SpecError, unknown
    from coterie.methods import names as known_methods
    from coterie.runs.spec import SECTIONS

    shared: dict[str, object] = {}
    own: dict[str, dict[str, object]] = {name: {} for name in methods}
    for path, value in parsed(settings).items():
        section, _, key = path.partition(".")
        if section in SECTIONS:
            if section == "method":
                _check_all_have(path, key, methods)
            shared[path] = value
        elif section in own:
            own[section][key] = value
        elif section in known_methods():
            raise SpecError(f"--set {path}: {section} is not compared here; add it to --methods")
        else:
            raise SpecError(unknown("section of a spec or method of this comparison", section, {*SECTIONS, *own}))
    for name, number in clusters_of(methods, clusters).items():
        own[name].setdefault("clusters", number)
    return shared, own


def _check_all_have(path: str, key: str, methods: Sequence[str]) -> None:
    """Check that all compared methods have a setting; the error says how to set it for those that have it."""
    from coterie.errors import SpecError
    from coterie.runs.spec import method_options

    having = [name for name in methods if key in method_options(name)]
    if having and len(having) < len(methods):
        lacking = next(name for name in methods if name not in having)
        flag = f", or --clusters for all that have it: {', '.join(having)}" if key == "clusters" else ""
        raise SpecError(f"--set {path}: {lacking} has no such setting; set it for one method, {having[0]}.{key}{flag}")


def clusters_of(methods: Sequence[str], clusters: str | None) -> dict[str, int | str]:
    """Method → `method.clusters`, for those methods that have this setting; a note names the others.

    Args:
        methods: Names of methods.
        clusters: Value of `--clusters`: a number, `auto`, or None if the flag was not given.
    """
    from coterie.errors import SpecError
    from coterie.methods import METHODS
    from coterie.runs.spec import method_options

    if clusters is None:
        return {}
    if clusters != "auto" and not (clusters.isdecimal() and int(clusters) >= 1):
        raise SpecError(f"--clusters must be a whole number of at least 1, or auto, got {shown(clusters)}")
    takers = [name for name in methods if "clusters" in method_options(name)]
    _note_without_clusters([name for name in methods if name not in takers])
    if clusters != "auto":
        return dict.fromkeys(takers, int(clusters))
    if fixed := [name for name in takers if not _chooses_clusters(name)]:
        can = ", ".join(name for name in METHODS if _chooses_clusters(name))
        raise SpecError(
            f"--clusters auto: {', '.join(fixed)} cannot choose the number of clusters; give a number, or use one of "
            f"the methods that can: {can}"
        )
    return dict.fromkeys(takers, "auto")


def _chooses_clusters(method: str) -> bool:
    """Whether the setting `clusters` of the method can be `auto`."""
    from coterie.runs.spec import method_types

    kind = method_types(method).get("clusters")
    return any("auto" in typing.get_args(option) for option in (kind, *typing.get_args(kind)))


def _note_without_clusters(methods: Sequence[str]) -> None:
    from coterie.methods import method_class

    find = [name for name in methods if getattr(method_class(name), "finds_clusters", False)]
    none = [name for name in methods if name not in find]
    reasons = []
    if find:
        verb, self = ("finds", "itself") if len(find) == 1 else ("find", "themselves")
        reasons.append(f"{', '.join(find)}, which {verb} the number of clusters {self}")
    if none:
        reasons.append(f"{', '.join(none)}, which {'has' if len(none) == 1 else 'have'} no number of clusters to set")
    if reasons:
        log.warning("--clusters does not apply to %s.", "; nor to ".join(reasons))


def check_counts(**counts: int | None) -> None:
    """Raise SpecError for a number of seeds, jobs or rounds that is out of range; None: it was not given."""
    from coterie.errors import SpecError

    for name, value in counts.items():
        if value is not None and not 1 <= value <= _MAX_COUNT:
            flag = f"--{name.replace('_', '-')}"
            raise SpecError(f"{flag} must be between 1 and {_MAX_COUNT}, got {shown(value)}")
