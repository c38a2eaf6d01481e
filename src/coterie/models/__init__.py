"""Models as tasks: pure functions for initial parameters, outputs and losses."""

from __future__ import annotations

from coterie.models.custom import from_flax, from_functions
from coterie.models.library import MODELS, build, from_factory, from_recipe, linear_regression, mclr, mlp
from coterie.models.recipe import recipe_of
from coterie.models.task import Normalize, Task, trainable

__all__ = [
    "MODELS",
    "Normalize",
    "Task",
    "build",
    "from_factory",
    "from_flax",
    "from_functions",
    "from_recipe",
    "linear_regression",
    "mclr",
    "mlp",
    "recipe_of",
    "trainable",
]
