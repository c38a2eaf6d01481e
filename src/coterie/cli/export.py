"""coterie export: write the models of a run to a safetensors file, with a JSON file that describes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import flags
from coterie.cli.output import document, note, result, size

if TYPE_CHECKING:
    from coterie.runs.record import RunRecord
    from coterie.types import Array


def export(
    run: flags.Run,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", show_default=False, help="Output file; default: RUN.safetensors."),
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
    """Export the models of a run to a safetensors file, with a JSON file that says which client uses which model.

    Arrays are named CLUSTER/LAYER/NAME, such as 0/dense0/kernel; for a single model LAYER/NAME. The model of clients
    without a cluster is named fallback/LAYER/NAME.
    """
    import json
    import os

    from safetensors.numpy import save

    from coterie.errors import RecordError, SpecError, unknown
    from coterie.runs.record import RunRecord
    from coterie.runs.record_files import RECORD_FILES, SPEC, write_whole

    if cluster is not None and client is not None:
        raise SpecError("--cluster and --client exclude each other; give one of them")
    record = RunRecord.read(run)
    known = [*record.served.get("row", ()), *record.served.get("unassigned", ())]
    if client is not None and record.served and client not in known:
        raise RecordError(unknown("client", client, known))
    arrays, description = _content(record, client if client is not None else cluster)
    file = out or Path(f"{run.resolve().name}.safetensors")
    if file.suffix != ".safetensors":
        file = file.with_name(file.name + ".safetensors")
    json_file = file.with_suffix(".json")
    for each in (file, json_file):
        if (each.resolve().parent / SPEC).is_file() and each.name in RECORD_FILES:
            raise SpecError(f"{each} is a file of a record; choose another file with -o")
    existing = [each for each in (file, json_file) if os.path.lexists(each)]
    if existing and not force:
        raise SpecError(f"{existing[0]} exists; choose another file with -o, or replace it with --force")
    description = {"file": file.name, **description}
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    for target, content in ((file, save(arrays)), (json_file, text.encode())):
        try:
            write_whole(target, content)
        except OSError as fault:
            raise SpecError(f"{target} cannot be written: {fault.strerror or fault}") from fault
    if description["adapted"] and not quiet:
        note(
            "Each client of this run has its own model, which is not recorded. This is the model from which they start."
        )
    if as_json:
        document({**description, "path": str(file), "description": str(json_file)})
        return
    result(
        f"{file} ({len(arrays)} arrays, {size(file.stat().st_size)})",
        f"{json_file} (description: clients, shapes, input scaling)",
    )


def _content(record: RunRecord, which: str | int | None) -> tuple[dict[str, Array], dict[str, Any]]:
    """Name → array, and the description. `which`: a client, a cluster, or None for all models."""
    import numpy as np

    from coterie import tree

    bank, served = record.models(), record.served
    unassigned = [client for client in served.get("unassigned", ()) if which in (None, client)]
    if which is None:
        rows = record.clusters()
        models = {f"{row}/": tree.row(bank, row) for row in rows}
        models |= {"fallback/": served["fallback"]} if unassigned else {}
    else:
        rows = [] if unassigned else [record.model_of(which)]
        models = {"": record.params_of(which)}
    arrays = {
        f"{name}{path}": np.ascontiguousarray(leaf)
        for name, model in models.items()
        for path, leaf in tree.paths(model)
    }
    task = served["input"]
    scale = {key: np.asarray(task[key]).tolist() for key in ("mean", "deviation") if key in task}
    description = {
        "model": served["spec"]["model"],
        "method": served["spec"]["method"]["name"],
        "data": served["spec"]["data"]["name"],
        "clusters": [int(row) for row in rows],
        "clients": {client: int(row) for client, row in served["row"].items() if row in rows},
        "arrays": {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()},
        "input_shape": list(task["shape"]),
        "classes": task["classes"],
        # The model takes (x - mean) / deviation of the stored inputs.
        "normalize": scale or None,
        "adapted": bool(served.get("adapted")),
        "unassigned": unassigned,  # clients that are served the fallback model
    }
    return arrays, description
