"""coterie export: the models of a run as one plain file, and who is served which beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import flags
from coterie.cli.screen import document, note, result, size

if TYPE_CHECKING:
    from coterie.runs.record import RunRecord


def export(
    run: flags.Run,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", show_default=False, help="Where to; otherwise RUN.safetensors."),
    ] = None,
    cluster: Annotated[
        int | None, typer.Option(metavar="N", show_default=False, help="Only the model of this cluster.")
    ] = None,
    client: Annotated[
        str | None, typer.Option(metavar="ID", show_default=False, help="Only the model of this client.")
    ] = None,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Write the models of a run to a plain file, and beside it who is served which.

    A .safetensors file with arrays called cluster/layer/kernel (of a single model layer/kernel), and a .json file.
    """
    import json

    from safetensors.numpy import save

    from coterie.errors import RecordError, SpecError, unknown
    from coterie.runs.record import RunRecord, write_whole

    if cluster is not None and client is not None:
        raise SpecError("--cluster and --client exclude each other; give one of them")
    record = RunRecord.read(run)
    if client is not None and client not in record.served.get("row", {client}):
        raise RecordError(unknown("client", client, record.served["row"]))
    arrays, about = _content(record, client if client is not None else cluster)
    file = out or Path(f"{run.resolve().name}.safetensors")
    if file.suffix != ".safetensors":
        file = file.with_name(file.name + ".safetensors")
    beside = file.with_suffix(".json")
    about = {"file": file.name, **about}
    write_whole(file, save(arrays))
    write_whole(beside, (json.dumps(about, indent=2, ensure_ascii=False) + "\n").encode())
    if about["adapted"] and not quiet:
        note("clients of this run have models of their own, which never left them; this is the one they start from")
    if as_json:
        document({**about, "path": str(file), "description": str(beside)})
        return
    result(f"{file} ({len(arrays)} arrays, {size(file.stat().st_size)})", f"{beside} (who is served which)")


def _content(record: RunRecord, who: str | int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays by name, and what to know about them."""
    import numpy as np

    from coterie import tree

    bank, served = record.models(), record.served
    rows = range(tree.rows(bank)) if who is None else [record.model_of(who)]
    arrays = {
        path if who is not None else f"{row}/{path}": np.ascontiguousarray(leaf)
        for row in rows
        for path, leaf in tree.paths(tree.row(bank, row))
    }
    task = served["input"]
    scale = {key: np.asarray(task[key]).tolist() for key in ("mean", "deviation") if key in task}
    about = {
        "model": served["spec"]["model"],
        "method": served["spec"]["method"]["name"],
        "data": served["spec"]["data"]["name"],
        "clusters": [int(row) for row in rows],
        "clients": {client: int(row) for client, row in served["row"].items() if row in rows},
        "arrays": {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()},
        "input_shape": list(task["shape"]),
        "classes": task["classes"],
        # Inputs as they are stored are turned into (x - mean) / deviation first.
        "normalize": scale or None,
        "adapted": bool(served.get("adapted")),
    }
    return arrays, about
