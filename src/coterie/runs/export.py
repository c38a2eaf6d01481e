"""Models of a record for other programs: safetensors, PyTorch, ONNX or NumPy, with a JSON file that describes them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from coterie import tree
from coterie.errors import RecordError, SpecError, unknown
from coterie.runs import model_files
from coterie.runs.record import RunRecord
from coterie.types import Array

#: Formats of exported models.
Format = Literal["safetensors", "torch", "onnx", "numpy"]
FORMATS: tuple[Format, ...] = get_args(Format)

#: Ending of a file → format; the first ending of a format is its default.
ENDINGS: dict[str, Format] = {
    ".safetensors": "safetensors",
    ".pt": "torch",
    ".pth": "torch",
    ".onnx": "onnx",
    ".npz": "numpy",
}


def export_format(file: Path | None, given: str | None) -> Format:
    """The format of an export: the given one, or that of the file's ending.

    Args:
        file: The output file; None: not named.
        given: The format; None: by the ending, otherwise safetensors.

    Raises:
        SpecError: If the format or the ending is unknown, or they contradict each other.
    """
    if given is not None and given not in FORMATS:
        raise SpecError(unknown("format", given, FORMATS))
    ending = "" if file is None else file.suffix.lower()
    by_ending = ENDINGS.get(ending)
    if ending and by_ending is None:
        raise SpecError(f"Files that end in {ending!r} are not known; use one of {', '.join(ENDINGS)}")
    if given is not None and by_ending not in (None, given):
        raise SpecError(f"A file that ends in {ending!r} has the format {by_ending}, not {given}; change one of them")
    return next(each for each in FORMATS if each == (given or by_ending or "safetensors"))


def ending_of(form: Format) -> str:
    """The ending of the files of a format."""
    return next(ending for ending, each in ENDINGS.items() if each == form)


def content(
    record: RunRecord, form: Format, *, client: str | None = None, cluster: int | None = None
) -> tuple[bytes, dict[str, Any]]:
    """The bytes of an export, and its description.

    Args:
        record: The record.
        form: The format.
        client: Only the model of this client.
        cluster: Only the model of this cluster. Neither: all models; ONNX has one model per file.

    Raises:
        SpecError: If the format needs a package that is missing, or cannot hold the models.
        RecordError: If there is no such client or cluster.
    """
    if cluster is not None and client is not None:
        raise SpecError("--cluster and --client exclude each other; give one of them")
    known = [*record.served.get("row", ()), *record.served.get("unassigned", ())]
    if client is not None and record.served and client not in known:
        raise RecordError(unknown("client", client, known))
    which = client if client is not None else cluster
    if form == "onnx":
        clusters = record.clusters()
        if which is None and len(clusters) > 1:
            raise SpecError(f"An ONNX file has one model, the run has {len(clusters)}; choose --cluster or --client")
        which = clusters[0] if which is None else which
    arrays, description = _described(record, which)
    if form == "onnx":
        from coterie.runs.onnx_export import to_onnx
        from coterie.runs.predict import rebuilt

        assert which is not None
        return to_onnx(rebuilt(record.served), record.params_of(which)), description
    return _encoded(arrays, form), description


def _encoded(arrays: dict[str, Array], form: Format) -> bytes:
    if form == "torch":
        from coterie.torch.files import state_dict_bytes

        return state_dict_bytes(arrays)
    if form == "numpy":
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()
    from safetensors.numpy import save

    return save(arrays)


def _described(record: RunRecord, which: str | int | None) -> tuple[dict[str, Array], dict[str, Any]]:
    """Name → array, and the description. `which`: a client, a cluster, or None for all models."""
    bank, served = record.models(), record.served
    unassigned = [client for client in served.get("unassigned", ()) if which in (None, client)]
    about: dict[str, Any] = {}
    if which is None:
        rows = record.clusters()
        models = {str(row): tree.row(bank, row) for row in rows}
        models |= {"fallback": served["fallback"]} if unassigned else {}
        arrays = {
            name: array
            for key, model in models.items()
            for name, array in model_files.named_arrays(model, f"{key}/").items()
        }
        about["models"] = list(models)
    else:
        rows = [] if unassigned else [record.model_of(which)]
        arrays = model_files.named_arrays(record.params_of(which))
        about["cluster"] = rows[0] if rows else None
    about |= {
        "method": served["spec"]["method"]["name"],
        "data": served["spec"]["data"]["name"],
        "clusters": [int(row) for row in rows],
        "clients": {client: int(row) for client, row in served["row"].items() if row in rows},
        "adapted": bool(served.get("adapted")),
        "unassigned": unassigned,  # clients that are served the fallback model
    }
    return arrays, model_files.describe(model_files.facts_of_served(served), arrays, **about)
