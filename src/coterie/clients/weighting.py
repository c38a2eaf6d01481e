"""Means over weighted examples inside traced works."""

from __future__ import annotations

from coterie import tree
from coterie.clients.work import Batches
from coterie.types import Params, TracedArray


def divided(total: TracedArray, weight: TracedArray) -> TracedArray:
    """A sum divided by the sum of the sample weights, which may be less than 1; 0 if the weights add up to 0."""
    import jax.numpy as jnp

    return jnp.where(weight > 0, total / jnp.where(weight > 0, weight, 1.0), 0.0)


def mean_gradient(batches: Batches, total: Params, weight: TracedArray) -> Params:
    """The mean of gradients from their sum over examples of these batches and the sum of the weights."""
    return tree.map(lambda g: divided(g, weight) if batches.weighted else g / weight, total)


def mean_loss(batches: Batches, total: TracedArray, weight: TracedArray) -> TracedArray:
    """The mean of losses from their sum over examples of these batches and the sum of the weights; 0 without any."""
    import jax.numpy as jnp

    return divided(total, weight) if batches.weighted else total / jnp.maximum(weight, 1.0)
