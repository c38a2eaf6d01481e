"""Accuracy and loss over clients."""

from __future__ import annotations

import math

import numpy as np

from coterie.errors import SpecError
from coterie.metrics.validation import Values, Vector, aligned


def weighted_accuracy(correct: Values, total: Values) -> float:
    """Accuracy over the test examples of all clients, Σ k_i / Σ m_i.

    Args:
        correct: k_i, number of correctly classified test examples of each client.
        total: m_i, number of test examples of each client.
    """
    right, tested = _counts(correct, total)
    return float(right.sum() / tested.sum())


def mean_accuracy(correct: Values, total: Values) -> float:
    """Mean of the clients' accuracies k_i / m_i; clients without test examples are skipped.

    Args:
        correct: k_i, number of correctly classified test examples of each client.
        total: m_i, number of test examples of each client.
    """
    right, tested = _counts(correct, total)
    return float((right / tested).mean())


def worst_share_accuracy(correct: Values, total: Values, share: float = 0.1) -> float:
    """Mean accuracy of the clients with the lowest accuracies; clients without test examples are skipped.

    Args:
        correct: k_i, number of correctly classified test examples of each client.
        total: m_i, number of test examples of each client.
        share: Share of the clients, 0 < share ≤ 1, rounded down, but at least one client.
    """
    if not 0 < share <= 1:
        raise SpecError(f"share must be greater than 0 and at most 1, got {share}")
    right, tested = _counts(correct, total)
    n_worst = max(1, math.floor(share * len(tested) + 1e-9))
    return float(np.sort(right / tested)[:n_worst].mean())


def training_loss(losses: Values, samples: Values) -> float:
    """Mean of the clients' losses, weighted by their number of examples; clients without examples are skipped.

    Args:
        losses: Loss of each client.
        samples: Number of examples of each client.
    """
    loss, size = aligned(losses, samples, "losses", "samples")
    if not (np.isfinite(size) & (size >= 0)).all():
        raise SpecError("samples must be finite and non-negative")
    if not size.any():
        raise SpecError("No client has examples: a mean loss needs at least one")
    loss, size = loss[size > 0], size[size > 0]
    return float((loss * size).sum() / size.sum())


def _counts(correct: Values, total: Values) -> tuple[Vector, Vector]:
    """Numbers of correct and of all test examples, of the clients that have test examples."""
    right, tested = aligned(correct, total, "correct", "total")
    if not ((right >= 0) & (right <= tested) & np.isfinite(tested)).all():
        raise SpecError("correct must be between 0 and total, and total must be finite, for every client")
    if not tested.any():
        raise SpecError("No client has test examples: an accuracy needs at least one")
    return right[tested > 0], tested[tested > 0]
