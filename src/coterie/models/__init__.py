"""Models as tasks: pure functions for initial parameters, outputs and losses."""

from __future__ import annotations

from coterie.models.custom import from_flax, from_functions
from coterie.models.library import MODELS, build, linear_regression, mclr, mlp
from coterie.models.task import Normalize, Task, trainable

__all__ = [
    "MODELS",
    "Normalize",
    "Task",
    "build",
    "from_flax",
    "from_functions",
    "linear_regression",
    "mclr",
    "mlp",
    "trainable",
]
