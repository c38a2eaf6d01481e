"""Weights of examples in the training loss: sample weights of the data, and class weights of local training."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from coterie.errors import SpecError
from coterie.types import Array


def wants_balanced_classes(settings: Mapping[str, object]) -> bool:
    """Whether the settings of a request ask for class weights (`local.class_weight = "balanced"`)."""
    return any(getattr(each, "class_weight", None) == "balanced" for each in settings.values())


def class_weights(y: Array, classes: int | None) -> Array:
    """The weight of each class that makes all classes of a client count alike, (classes,) float32.

    n / (number of classes that occur · n_c) for a class with n_c of the n examples, as in scikit-learn; 0 for classes
    that do not occur.
    """
    if classes is None:
        raise SpecError("local.class_weight = 'balanced' needs classes, and the task is a regression; use 'none'")
    counts = np.bincount(y, minlength=classes)
    present = max(int((counts > 0).sum()), 1)
    weights = np.divide(len(y), present * counts, out=np.zeros(classes), where=counts > 0)
    return weights.astype(np.float32)
