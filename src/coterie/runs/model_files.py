"""A model as files: its arrays in the safetensors format, and beside them a JSON file that says how to use them.

`ServedModel.save`, `coterie export` and the models that `coterie join` receives have this one format:

    model.safetensors    arrays named LAYER/NAME; with the models of several clusters CLUSTER/LAYER/NAME
    model.json           `model` (name and settings), `own_model` (whether it was not built by name), `input_shape`,
                         `classes`, `normalize`, `arrays` (shape and dtype of each); `class_names`, `features` and
                         `preprocessing` if the data have them; and where the model comes from
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie import tree
from coterie.errors import RecordError, SpecError
from coterie.runs.record_files import write_whole
from coterie.types import Array, Params

SUFFIX = ".safetensors"

#: What a record, and the description of a model, may say about the data: names of classes and features, and the fitted
#: preprocessing of tables.
DATA_KEYS = ("class_names", "features", "preprocessing")


def facts_of_recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a description that says how to build the model, from its recipe (`coterie.models.recipe`)."""
    scale = recipe["normalize"]
    return {
        "model": {"name": recipe["name"], **{key: plain(value) for key, value in recipe["options"].items()}},
        "own_model": ":" in recipe["name"],
        "input_shape": list(recipe["shape"]),
        "classes": recipe["classes"],
        # The model takes (x - mean) / deviation of the stored inputs.
        "normalize": scale and {"mean": plain(scale[0]), "deviation": plain(scale[1])},
    }


def facts_of_served(served: Mapping[str, Any]) -> dict[str, Any]:
    """The same part for the models of a record (`RunRecord.served`)."""
    about = {key: plain(served[key]) for key in DATA_KEYS if served.get(key) is not None}
    if served.get("recipe") is not None:
        return {**facts_of_recipe(served["recipe"]), **about}
    task, spec = served["input"], served["spec"]["model"]
    scale = {key: plain(task[key]) for key in ("mean", "deviation") if key in task}
    return {
        "model": {key: plain(value) for key, value in spec.items() if key != "normalize"},
        "own_model": "recipe" in served,
        "input_shape": list(task["shape"]),
        "classes": task["classes"],
        "normalize": scale or None,
        **about,
    }


def recipe_of_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of a description."""
    scale = facts["normalize"]
    return {
        "name": facts["model"]["name"],
        "shape": tuple(facts["input_shape"]),
        "classes": facts["classes"],
        "options": {key: value for key, value in facts["model"].items() if key != "name"},
        "normalize": scale and (_numbers(scale["mean"]), _numbers(scale["deviation"])),
    }


def named_arrays(params: Params, prefix: str = "") -> dict[str, Array]:
    """Name → array of a model: the keys on the path to the array, separated by slashes."""
    return {f"{prefix}{path}": np.ascontiguousarray(leaf) for path, leaf in tree.paths(params)}


def nested_arrays(arrays: Mapping[str, Array]) -> Params:
    """The model with these arrays; the reverse of `named_arrays`."""
    params: Params = {}
    for name, array in arrays.items():
        *above, last = name.split("/")
        node = params
        for key in above:
            node = node.setdefault(key, {})
        node[last] = array
    return params


def describe(facts: Mapping[str, Any], arrays: Mapping[str, Array], **about: Any) -> dict[str, Any]:
    """The content of the JSON file beside a model.

    Args:
        facts: How to build the model: `facts_of_recipe` or `facts_of_served`.
        arrays: Name → array.
        **about: Where the model comes from.
    """
    shapes = {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()}
    return {**facts, **about, "arrays": shapes}


def write_model(file: Path, arrays: Mapping[str, Array], description: Mapping[str, Any]) -> Path:
    """Write a model and its description; returns the JSON file.

    Raises:
        SpecError: If a file cannot be written.
    """
    from safetensors.numpy import save

    return write_files(file, save(dict(arrays)), description)


def write_files(file: Path, content: bytes, description: Mapping[str, Any]) -> Path:
    """Write the content of a file and the JSON file beside it, which is returned.

    Raises:
        SpecError: If a file cannot be written.
    """
    json_file = file.with_suffix(".json")
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    for target, data in ((file, content), (json_file, text.encode())):
        try:
            write_whole(target, data)
        except OSError as fault:
            raise SpecError(f"{target} cannot be written: {fault.strerror or fault}") from fault
    return json_file


def read_model(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read a model: name → array, and the description.

    Args:
        path: The safetensors file, the JSON file beside it, or a folder with `model.safetensors`.

    Raises:
        RecordError: If a file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    file = (path / "model.safetensors" if path.is_dir() else path).with_suffix(SUFFIX)
    json_file = file.with_suffix(".json")
    for each in (file, json_file):
        if not each.is_file():
            raise RecordError(f"There is no file {each}; a model consists of NAME{SUFFIX} and NAME.json")
    try:
        description = json.loads(json_file.read_text(encoding="utf-8"))
        arrays = load(file.read_bytes())
    except (OSError, ValueError, SafetensorError) as fault:
        raise RecordError(f"The model in {file} cannot be read: {fault}") from fault
    missing = [key for key in ("model", "input_shape", "classes", "normalize", "arrays") if key not in description]
    if missing:
        raise RecordError(f"{json_file} does not describe a model: it lacks {', '.join(missing)}")
    if set(description["arrays"]) != set(arrays):
        raise RecordError(f"{json_file} does not describe the arrays in {file}; both must come from one export")
    return arrays, description


def plain(value: Any) -> Any:
    """A value as JSON can hold it: arrays and tuples become lists."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _numbers(value: Any) -> Any:
    return np.asarray(value, np.float32) if isinstance(value, list) else value
