"""coterie export: write the models of a run to a file for other programs, with a JSON file that describes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli import flags
from coterie.cli.output import document, note, result, size


def export(
    run: flags.Run,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            show_default=False,
            help="Output file; default: RUN with the ending of the format.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            show_default=False,
            help="safetensors, torch (.pt), onnx or numpy (.npz); default: by the ending of FILE, or safetensors.",
        ),
    ] = None,
    cluster: Annotated[
        int | None, typer.Option(metavar="N", show_default=False, help="Export only the model of this cluster.")
    ] = None,
    client: Annotated[
        str | None, typer.Option(metavar="ID", show_default=False, help="Export only the model of this client.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Export the models of a run, with a JSON file that says which client uses which model and what the inputs are.

    Arrays are named CLUSTER/LAYER/NAME, such as 0/dense0/kernel; for a single model LAYER/NAME. The model of clients
    without a cluster is named fallback/LAYER/NAME. In the torch format, dots replace the slashes. An ONNX file has one
    model, which normalizes its inputs and gives logits and probabilities.
    """
    import os

    from coterie.errors import SpecError
    from coterie.runs import export as exporting
    from coterie.runs.model_files import write_files
    from coterie.runs.record import RunRecord
    from coterie.runs.record_files import RECORD_FILES, SPEC

    chosen = exporting.export_format(out, form)
    content, description = exporting.content(RunRecord.read(run), chosen, client=client, cluster=cluster)
    ending = exporting.ending_of(chosen)
    file = Path(f"{run.resolve().name}{ending}") if out is None else out if out.suffix else Path(f"{out}{ending}")
    json_file = file.with_suffix(".json")
    for each in (file, json_file):
        if (each.resolve().parent / SPEC).is_file() and each.name in RECORD_FILES:
            raise SpecError(f"{each} is a file of a record; choose another file with -o")
    existing = [each for each in (file, json_file) if os.path.lexists(each)]
    if existing and not force:
        what = f", which would describe {file}," if existing[0] == json_file else ""
        raise SpecError(f"{existing[0]}{what} exists; choose another file with -o, or replace it with --force")
    description = {"file": file.name, "format": chosen, **description}
    write_files(file, content, description)
    if description["adapted"] and not quiet:
        note(
            "Each client of this run has its own model, which is not recorded. This is the model from which they start."
        )
    if as_json:
        document({**description, "path": str(file), "description": str(json_file)})
        return
    arrays = f"{len(description['arrays'])} arrays, " if chosen != "onnx" else ""
    result(
        f"{file} ({arrays}{size(file.stat().st_size)})",
        f"{json_file} (description: clients, shapes, input scaling)",
    )
