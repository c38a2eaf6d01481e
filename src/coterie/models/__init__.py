"""Parameters and losses as pure functions: the tasks that clients learn."""

from __future__ import annotations

from coterie.models.library import MODELS, build, linear_regression, mclr, mlp
from coterie.models.task import Normalize, Task, trainable
from coterie.models.wrap import from_flax, from_functions

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
