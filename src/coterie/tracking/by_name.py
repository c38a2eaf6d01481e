"""Trackers by name, as `--track` takes them."""

from __future__ import annotations

from coterie.errors import SpecError, unknown
from coterie.runs.observers import Observer
from coterie.tracking.mlflow import MLflow
from coterie.tracking.tensorboard import TensorBoard
from coterie.tracking.wandb import WandB

#: Name of a tracker → its class.
TRACKERS: dict[str, type[TensorBoard] | type[MLflow] | type[WandB]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


def named(names: str) -> list[Observer]:
    """New trackers with their defaults.

    Args:
        names: Names separated by commas, such as `tensorboard,mlflow`.

    Raises:
        SpecError: If a name is unknown, is given twice, or its extra is not installed.
    """
    given = [name.strip() for name in names.split(",") if name.strip()]
    if not given:
        raise SpecError(f"Give the names of trackers separated by commas: {', '.join(TRACKERS)}")
    for name in given:
        if name not in TRACKERS:
            raise SpecError(unknown("tracker", name, TRACKERS))
        if given.count(name) > 1:
            raise SpecError(f"Tracker {name} is given twice; give each once")
    return [TRACKERS[name]() for name in given]
