"""`ServedModel`: a trained model that predicts, from the record of a run or from a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie import models, tree
from coterie.errors import RecordError, SpecError
from coterie.models import Task
from coterie.runs import model_files
from coterie.runs.model_inputs import model_inputs
from coterie.seeds import Seed
from coterie.types import Array, Params

_ROWS_PER_BATCH = 512

#: Ids → vectors, for models that take word vectors.
Vectors = Callable[[Array], Array]


class ServedModel:
    """A trained model: NumPy arrays in, NumPy arrays out.

        model = record.model("hospital-a")
        model.predict(x)
        model.save("hospital-a.safetensors")
        coterie.ServedModel.load("hospital-a.safetensors").predict(x)

    Attributes:
        task: The model as functions of its parameters.
        params: The parameters.
        about: What the JSON file beside a saved model says, without `arrays`.
    """

    def __init__(
        self, task: Task, params: Params, about: Mapping[str, Any] | None = None, *, vectors: Vectors | None = None
    ) -> None:
        """Create a model.

        Args:
            task: The model as functions of its parameters.
            params: The parameters.
            about: Description of the model; None: that of the task.
            vectors: Replaces ids by vectors, if inputs may be word ids.

        Raises:
            RecordError: If the parameters are not those of the task.
        """
        _check_params(task, params)
        self.task, self.params = task, params
        self.about: dict[str, Any] = dict(about if about is not None else facts_of_task(task))
        self._vectors = vectors

    def __repr__(self) -> str:
        """Short: the model, its inputs and its classes."""
        kind = "regression" if self.classes is None else f"{self.classes} classes"
        return f"ServedModel({self.task.name}, inputs {self.input_shape}, {kind})"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.task.shape)

    @property
    def classes(self) -> int | None:
        """Number of classes; None for regression."""
        return self.task.classes

    @property
    def class_names(self) -> list[Any] | None:
        """The names of the classes, if the data have names; predictions are these names."""
        names = self.about.get("class_names")
        return None if names is None else list(names)

    def predict(self, x: Any) -> Array:
        """Return a prediction for each row of x: classes, or numbers for regression.

        Args:
            x: An array of inputs in the form in which the data store them; or, for models of tables, a data frame, a
                dict of columns, or the path of a .csv or .parquet file. Columns are found by name.

        Returns:
            (rows,) class names if the data have them, otherwise class numbers; or numbers for regression.
        """
        outputs = self.outputs(x)
        if self.classes is None:
            return outputs
        choice: Array = outputs.argmax(axis=1)
        return choice if self.class_names is None else np.asarray(self.class_names)[choice]

    def predict_proba(self, x: Any) -> Array:
        """Return the probability of each class, (rows, classes): the softmax of the outputs; `x` as in `predict`."""
        if self.classes is None:
            raise SpecError(f"Model {self.task.name} predicts numbers and has no class probabilities; use predict")
        outputs = self.outputs(x).astype(np.float64)
        powers = np.exp(outputs - outputs.max(axis=1, keepdims=True, initial=-np.inf))
        shares: Array = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
        return shares

    def outputs(self, x: Any) -> Array:
        """Return the outputs of the model: logits (rows, classes), or numbers (rows,); `x` as in `predict`."""
        inputs = self._checked(model_inputs(x, self.about))
        starts = range(0, len(inputs), _ROWS_PER_BATCH)
        chunks = (self._as_vectors(inputs[first : first + _ROWS_PER_BATCH]) for first in starts)
        parts = [np.asarray(self.task.outputs(self.params, chunk)) for chunk in chunks]
        if parts:
            return np.concatenate(parts)
        return np.zeros(0 if self.classes is None else (0, self.classes), np.float32)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model to a safetensors file, with a JSON file beside it; returns the safetensors file.

        Args:
            path: The file; `.safetensors` is added if it has no ending. Existing files are replaced.
        """
        file = Path(path)
        if file.suffix not in ("", model_files.SUFFIX):
            raise SpecError(f"A model is saved to a file that ends in {model_files.SUFFIX}, got {file.name!r}")
        file = file.with_suffix(model_files.SUFFIX)
        arrays = model_files.named_arrays(self.params)
        model_files.write_model(file, arrays, model_files.describe(self.about, arrays))
        return file

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, cluster: int | None = None, task: Task | None = None) -> ServedModel:
        """Read a model that `save`, `coterie export` or `coterie join` wrote.

        Args:
            path: The safetensors file, the JSON file beside it, or a folder with `model.safetensors`.
            cluster: Which model, if the file has the models of several clusters.
            task: The task, for a model that was not built by name.

        Raises:
            RecordError: If a file is missing or damaged, or the model cannot be built without its task.
        """
        arrays, about = model_files.read_model(Path(path))
        arrays, about = _one_model(Path(path), arrays, about, cluster)
        return cls(
            task_of_facts(about, task, f"ServedModel.load({str(path)!r}, task=task)"),
            model_files.nested_arrays(arrays),
            about,
        )

    def _checked(self, x: Array) -> Array:
        if tuple(x.shape[1:]) == self.input_shape:
            return x
        ids = self._vectors is not None and x.dtype.kind in "iu" and tuple(x.shape[1:]) == self.input_shape[:-1]
        if not ids:
            raise RecordError(f"The model takes inputs of shape {shape_text(self.task)}, got {x.shape}")
        return x

    def _as_vectors(self, x: Array) -> Array:
        if self._vectors is None or tuple(x.shape[1:]) == self.input_shape:
            return x
        return self._vectors(x)


def shape_text(task: Task) -> str:
    """The shape of a batch of inputs, for messages."""
    return f"(rows, {', '.join(map(str, task.shape))})"


def facts_of_task(task: Task) -> dict[str, Any]:
    """The description of a task that was not built by name, or of its recipe."""
    if task.recipe is not None:
        return model_files.facts_of_recipe(task.recipe)
    scale = task.normalize if isinstance(task.normalize, models.Normalize) else None
    return {
        "model": {"name": task.name},
        "own_model": True,
        "input_shape": list(task.shape),
        "classes": task.classes,
        "normalize": scale and {"mean": model_files.plain(scale.mean), "deviation": model_files.plain(scale.deviation)},
    }


def task_of_facts(facts: Mapping[str, Any], task: Task | None, advice: str) -> Task:
    """The task of a description (`coterie.runs.model_files`): built by name, or the given one.

    Args:
        facts: The description.
        task: The task, for a model that was not built by name.
        advice: The call that gets the task, for the error.

    Raises:
        RecordError: If the model cannot be built without its task.
    """
    name = facts["model"]["name"]
    if task is not None:
        return task
    if facts.get("own_model"):
        raise RecordError(
            f"Model {name!r} is not one of Coterie's own, so that it cannot be rebuilt from files; give the task that "
            f"the run used: {advice}"
        )
    try:
        return models.from_recipe(model_files.recipe_of_facts(facts))
    except SpecError as fault:
        raise RecordError(f"Model {name!r} cannot be rebuilt: {fault}. Give its task: {advice}") from fault


def _one_model(
    path: Path, arrays: dict[str, Array], about: dict[str, Any], cluster: int | None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the description of one model of a file that may have several."""
    about = {key: value for key, value in about.items() if key not in ("arrays", "file", "format")}
    several = about.get("models")
    if several is None:
        if cluster is not None and about.get("cluster") != cluster:
            raise RecordError(f"{path} has the model of cluster {about.get('cluster')}, not of cluster {cluster}")
        return arrays, about
    if cluster is None or str(cluster) not in several:
        raise RecordError(f"{path} has the models {', '.join(several)}; choose one: ServedModel.load(path, cluster=…)")
    prefix = f"{cluster}/"
    own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    return own, {**{key: value for key, value in about.items() if key != "models"}, "cluster": cluster}


def _check_params(task: Task, params: Params) -> None:
    """Raise RecordError if parameters do not belong to a task."""
    wanted = {path: tuple(leaf.shape) for path, leaf in tree.paths(task.init(Seed(0)))}
    given = {path: tuple(leaf.shape) for path, leaf in tree.paths(params)}
    if wanted == given:
        return
    different = sorted(path for path in {*wanted, *given} if wanted.get(path) != given.get(path))
    path = different[0]
    raise RecordError(
        f"The parameters are not those of model {task.name}: {path} has shape {given.get(path, 'none')} here and "
        f"{wanted.get(path, 'none')} in the model. If the run used a model of your own, give its task: task=task"
    )
