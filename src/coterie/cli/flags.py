"""The flags that several commands share, and the spec that they make."""

from __future__ import annotations

import glob
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

if TYPE_CHECKING:
    from coterie.runs.spec import Spec


def _method_names(incomplete: str) -> list[str]:
    from coterie.methods import names

    return [name for name in names() if name.startswith(incomplete)]


def _methods_list(incomplete: str) -> list[str]:
    begun, comma, last = incomplete.rpartition(",")
    return [f"{begun}{comma}{name}" for name in _method_names(last)]


def _data_names(incomplete: str) -> list[str]:
    from coterie.data.loading import DATASETS

    return [name for name in DATASETS if name.startswith(incomplete)]


def _data_or_paths(incomplete: str) -> list[str]:
    return _data_names(incomplete) + sorted(glob.glob(glob.escape(incomplete) + "*"))


def _model_names(incomplete: str) -> list[str]:
    from coterie.models.library import MODELS

    return [name for name in ("auto", *MODELS) if name.startswith(incomplete)]


class Command(TyperCommand):
    """A command whose help lists the sections of a spec; only when somebody asks for it, since they take time to load.

    In texts of options, `{sections}` stands for all of them and `{shared sections}` for all but `method`.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:  # of click, which some versions of typer bring along
        """Print it."""
        from coterie.runs.spec import SECTIONS

        texts = {
            "{sections}": ", ".join(SECTIONS),
            "{shared sections}": ", ".join(section for section in SECTIONS if section != "method"),
        }
        for option in self.params:
            for mark, names in texts.items():
                if isinstance(option, TyperOption) and option.help:
                    option.help = option.help.replace(mark, names)
        super().format_help(ctx, formatter)


SpecFile = Annotated[Path | None, typer.Argument(metavar="SPEC.toml", show_default=False, help="A spec to start from.")]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|PATH",
        show_default=False,
        autocompletion=_data_or_paths,
        help="Data by name (coterie data), or a folder of .npz files, a .csv, a .parquet table.",
    ),
]
Method = Annotated[
    str | None,
    typer.Option(metavar="NAME", show_default=False, autocompletion=_method_names, help="Which (coterie methods)."),
]
Methods = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,…",
        show_default=False,
        autocompletion=_methods_list,
        help="Which, with commas between them; others are tested against the first.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(metavar="NAME", show_default=False, autocompletion=_model_names, help="Which (coterie models)."),
]
Rounds = Annotated[int | None, typer.Option(metavar="N", show_default=False, help="How many.")]
ClientsPerRound = Annotated[int | None, typer.Option(metavar="N", show_default=False, help="Clients in a round.")]
Seed = Annotated[int | None, typer.Option(metavar="N", show_default=False, help="From which every draw comes.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        show_default=False,
        help="Any setting of {sections}; may be repeated. Those of a method and what all take: coterie methods NAME.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", show_default=False, help="The folder of a record.")]
MethodName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", show_default=False, autocompletion=_method_names, help="More about this one."),
]
DataHere = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        show_default=False,
        autocompletion=_data_or_paths,
        help="Data by name (coterie data), or a folder of .npz files, a .csv, a .parquet table.",
    ),
]
DataName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME|PATH",
        show_default=False,
        autocompletion=_data_or_paths,
        help="More about this one; of a folder of .npz files, a .csv, a .parquet table what it holds.",
    ),
]
ModelName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", show_default=False, autocompletion=_model_names, help="More about this one."),
]


def changed(spec: Spec, shorthands: Mapping[str, Any], settings: list[str] | None) -> Spec:
    """A spec with shorthand flags applied, then `--set`.

    Args:
        spec: To start from.
        shorthands: `section.key` → value; None for a flag that was not given.
        settings: `section.key=value` texts.
    """
    # A JSON text is a TOML text: a file called 1.5 stays a name.
    short = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in shorthands.items() if value is not None]
    return spec.with_settings([*short, *(settings or ())])


def spec_of(
    file: Path | None,
    *,
    data: str | None,
    method: str | None,
    model: str | None,
    rounds: int | None,
    clients_per_round: int | None,
    seed: int | None,
    settings: list[str] | None,
) -> Spec:
    """The spec of a file, with flags applied."""
    from coterie.runs.spec import Spec

    shorthands = {
        "data.name": data,
        "method.name": method,
        "model.name": model,
        "run.rounds": rounds,
        "run.clients_per_round": clients_per_round,
        "run.seed": seed,
    }
    return changed(Spec.of(file), shorthands, settings)
