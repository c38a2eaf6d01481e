"""Metrics of predictions: (labels or targets, predictions) → number. Conventions are those of scikit-learn.

A value that is not defined, such as the AUROC of examples of one class, is NaN.
"""

from __future__ import annotations

import numpy as np

from coterie.errors import SpecError
from coterie.metrics.sums import BINS, FROM_SUMS
from coterie.metrics.validation import Vector
from coterie.types import Array


def accuracy(y_true: Array, y_pred: Array, sample_weight: Array | None = None) -> float:
    """Share of correct predictions.

    Args:
        y_true: (n,) labels.
        y_pred: (n,) predicted labels.
        sample_weight: (n,) weights; None: 1 each.
    """
    return _value("accuracy", _label_sums(y_true, y_pred, sample_weight))


def balanced_accuracy(y_true: Array, y_pred: Array, sample_weight: Array | None = None) -> float:
    """Mean over the classes in `y_true` of the share of correct predictions. Arguments as in `accuracy`."""
    return _value("balanced_accuracy", _label_sums(y_true, y_pred, sample_weight))


def macro_f1(y_true: Array, y_pred: Array, sample_weight: Array | None = None) -> float:
    """Mean of F1 = 2 hits / (true + predicted) over the classes in `y_true` or `y_pred`. Arguments as in `accuracy`."""
    return _value("macro_f1", _label_sums(y_true, y_pred, sample_weight))


def log_loss(y_true: Array, y_prob: Array, sample_weight: Array | None = None) -> float:
    """Mean of -log p(true class). Probabilities are limited to at least the resolution of their dtype.

    Args:
        y_true: (n,) labels 0..C-1.
        y_prob: (n, C) probabilities.
        sample_weight: (n,) weights; None: 1 each.
    """
    labels, probabilities, weight = _probabilities(y_true, y_prob, sample_weight)
    tiny = np.finfo(np.asarray(y_prob).dtype if np.asarray(y_prob).dtype.kind == "f" else np.float64).eps
    own = np.clip(probabilities, tiny, 1 - tiny)[np.arange(len(labels)), labels]
    return _value("log_loss", {"log_loss": _sum(-weight * np.log(own)), "weight": _sum(weight)})


def brier(y_true: Array, y_prob: Array, sample_weight: Array | None = None) -> float:
    """Brier score: mean of ||p - e_true||², with two classes half of it: (1 - p(true class))².

    Args:
        y_true: (n,) labels 0..C-1.
        y_prob: (n, C) probabilities.
        sample_weight: (n,) weights; None: 1 each.
    """
    labels, probabilities, weight = _probabilities(y_true, y_prob, sample_weight)
    hot = labels[:, None] == np.arange(probabilities.shape[1])
    squares = ((probabilities - hot) ** 2).sum(axis=1)
    classes = np.zeros((1, probabilities.shape[1]))
    return _value("brier", {"brier": _sum(weight * squares), "weight": _sum(weight), "hits": classes})


def ece(y_true: Array, y_prob: Array, sample_weight: Array | None = None, *, bins: int = BINS) -> float:
    """Expected calibration error: mean over bins of |accuracy - confidence|, weighted by the examples in a bin.

    The confidence is the probability of the predicted class. Bins have equal width, and their upper limits belong to
    them (Guo et al. 2017, arXiv:1706.04599).

    Args:
        y_true: (n,) labels 0..C-1.
        y_prob: (n, C) probabilities.
        sample_weight: (n,) weights; None: 1 each.
        bins: Number of bins.
    """
    if bins < 1:
        raise SpecError(f"bins must be at least 1, got {bins}")
    labels, probabilities, weight = _probabilities(y_true, y_prob, sample_weight)
    confidence = probabilities.max(axis=1, initial=0.0)
    correct = probabilities.argmax(axis=1) == labels
    place = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    columns = [np.bincount(place, weight * each, bins) for each in (np.ones(len(labels)), confidence, correct)]
    return _value("ece", {"bins": np.stack(columns, axis=-1)[None], "weight": _sum(weight)})


def auroc(y_true: Array, y_prob: Array, sample_weight: Array | None = None) -> float:
    """Area under the ROC curve; with more than two classes the mean of one-vs-rest over the classes in `y_true`.

    NaN if `y_true` has fewer than two classes.

    Args:
        y_true: (n,) labels 0..C-1.
        y_prob: (n, C) probabilities or other scores that rank the examples of each class.
        sample_weight: (n,) weights; None: 1 each.
    """
    labels, scores, weight = _probabilities(y_true, y_prob, sample_weight)
    present = np.unique(labels[weight > 0])
    if len(present) < 2:
        return float("nan")
    classes = [1] if scores.shape[1] == 2 else present.tolist()
    return float(np.mean([_binary_auroc(labels == each, scores[:, each], weight) for each in classes]))


def rmse(y_true: Array, y_pred: Array, sample_weight: Array | None = None) -> float:
    """Root of the mean squared error.

    Args:
        y_true: (n,) targets.
        y_pred: (n,) predictions.
        sample_weight: (n,) weights; None: 1 each.
    """
    return _value("rmse", _target_sums(y_true, y_pred, sample_weight))


def mae(y_true: Array, y_pred: Array, sample_weight: Array | None = None) -> float:
    """Mean absolute error. Arguments as in `rmse`."""
    return _value("mae", _target_sums(y_true, y_pred, sample_weight))


def r2(y_true: Array, y_pred: Array, sample_weight: Array | None = None) -> float:
    """R², 1 - Σ(y - prediction)² / Σ(y - mean)²; NaN if all targets are equal. Arguments as in `rmse`."""
    return _value("r2", _target_sums(y_true, y_pred, sample_weight))


def _value(name: str, sums: dict[str, Array]) -> float:
    return float(FROM_SUMS[name](sums)[0])


def _sum(values: Array) -> Array:
    return np.asarray([values.sum()])


def _vectors(y_true: Array, y_pred: Array, sample_weight: Array | None, ndim: int) -> tuple[Array, Array, Vector]:
    true, predicted = np.asarray(y_true), np.asarray(y_pred)
    weight = np.ones(len(true)) if sample_weight is None else np.asarray(sample_weight, np.float64)
    if true.ndim != 1 or predicted.ndim != ndim or len(predicted) != len(true) or weight.shape != true.shape:
        wanted = "(n,)" if ndim == 1 else "(n, classes)"
        raise SpecError(
            f"A metric takes labels of shape (n,), predictions of shape {wanted} and weights of shape (n,), got "
            f"{true.shape}, {predicted.shape} and {weight.shape}"
        )
    if not (np.isfinite(weight) & (weight >= 0)).all():
        raise SpecError("sample_weight must be finite and non-negative")
    return true, predicted, weight


def _label_sums(y_true: Array, y_pred: Array, sample_weight: Array | None) -> dict[str, Array]:
    true, predicted, weight = _vectors(y_true, y_pred, sample_weight, 1)
    names, codes = np.unique(np.concatenate([true, predicted]), return_inverse=True)
    one, other = np.split(codes, [len(true)])
    counted = {"hits": one[one == other], "true": one, "predicted": other}
    weights = {"hits": weight[one == other], "true": weight, "predicted": weight}
    sums = {name: np.bincount(counted[name], weights[name], len(names))[None] for name in counted}
    return {**sums, "weight": _sum(weight)}


def _target_sums(y_true: Array, y_pred: Array, sample_weight: Array | None) -> dict[str, Array]:
    true, predicted, weight = _vectors(y_true, y_pred, sample_weight, 1)
    true, error = true.astype(np.float64), true.astype(np.float64) - predicted
    mean = np.average(true, weights=weight) if weight.any() else 0.0
    sums = {"squared": weight * error**2, "absolute": weight * np.abs(error), "spread": weight * (true - mean) ** 2}
    return {**{name: _sum(values) for name, values in sums.items()}, "weight": _sum(weight)}


def _probabilities(y_true: Array, y_prob: Array, sample_weight: Array | None) -> tuple[Array, Vector, Vector]:
    labels, probabilities, weight = _vectors(y_true, y_prob, sample_weight, 2)
    if len(labels) and not 0 <= labels.min() <= labels.max() < probabilities.shape[1]:
        raise SpecError(
            f"Labels must be columns of the probabilities, 0 to {probabilities.shape[1] - 1}, got {labels.min()} to "
            f"{labels.max()}"
        )
    return labels.astype(np.int64), probabilities.astype(np.float64), weight


def _binary_auroc(positive: Array, score: Vector, weight: Vector) -> float:
    """Probability that a positive example has a higher score than a negative one; equal scores count half."""
    _, group = np.unique(score, return_inverse=True)
    wins, losses = (np.bincount(group, weight * mask) for mask in (positive, ~positive))
    below = np.cumsum(losses) - losses
    return float((wins * (below + losses / 2)).sum() / (wins.sum() * losses.sum()))
