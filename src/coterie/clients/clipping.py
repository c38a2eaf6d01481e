"""Clipping of a client's update to a maximum L2 norm, the basis of the privacy of [privacy].

    w' = w_start + Δ · min(1, C / ‖Δ‖),    Δ = w - w_start

The norm is over all parameters of the model together. Clients clip before they send; the server clips again, so that a
client that does not clip has no more influence than the others.
"""

from __future__ import annotations

import numpy as np

from coterie import tree
from coterie.types import Array, Bank


def clipped_updates(bank: Bank, starts: Bank | None, max_norm: float) -> Bank:
    """The updates of models, in float64, each with at most this norm.

    Args:
        bank: The models that clients send.
        starts: The models from which they started, one row each; None: the bank holds updates or gradients.
        max_norm: C, the maximum norm.
    """
    updates = _updates(bank, starts)
    scale = _scale(updates, max_norm)
    return tree.map(lambda leaf: leaf * scale.reshape(-1, *[1] * (leaf.ndim - 1)), updates)


def clipped_models(bank: Bank, starts: Bank | None, max_norm: float) -> Bank:
    """Models whose updates have at most this norm; rows that already do are unchanged to the bit.

    Args:
        bank: The models that clients send.
        starts: The models from which they started, one row each; None: the bank holds updates or gradients.
        max_norm: C, the maximum norm.
    """
    updates = _updates(bank, starts)
    scale = _scale(updates, max_norm)
    if (scale == 1).all():
        return bank

    def shortened(model: Array, update: Array, *start: Array) -> Array:
        factor = scale.reshape(-1, *[1] * (model.ndim - 1))
        moved = update * factor + (start[0] if start else 0.0)
        return np.where(factor == 1, model, moved.astype(model.dtype))

    return tree.map(shortened, bank, updates, *(() if starts is None else (starts,)))


def _updates(bank: Bank, starts: Bank | None) -> Bank:
    if starts is None:
        return tree.map(lambda leaf: np.asarray(leaf, np.float64), bank)
    return tree.map(lambda leaf, start: np.asarray(leaf, np.float64) - start, bank, starts)


def _scale(updates: Bank, max_norm: float) -> Array:
    """min(1, C / ‖Δ‖) of each row. A row that is not finite keeps its values: the server rejects it."""
    squares = [np.square(leaf).reshape(len(leaf), -1).sum(axis=1) for leaf in tree.leaves(updates) if leaf.size]
    norms: Array = np.sqrt(np.sum(squares, axis=0)) if squares else np.zeros(tree.rows(updates))
    scale: Array = np.where(norms > max_norm, max_norm / np.where(norms > 0, norms, 1.0), 1.0)
    return np.where(np.isfinite(norms), scale, 1.0)
