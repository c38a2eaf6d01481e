"""The product of a dense layer, with a gradient that XLA fuses into the update of the kernel.

For small batches, the gradient of a wide kernel is written as a sum of outer products, one per example. XLA computes a
matrix product in a call of its own, which writes the gradient to memory; a sum of outer products becomes part of the
loop that updates the kernel, so that the kernel is read and written once.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from coterie.models.compiled_for import for_gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array as JaxArray

#: Largest number of examples for which outer products are added up; each one is unrolled in the compiled code.
MAX_EXAMPLES = 16
#: Smallest number of outputs; the gradient of a smaller kernel stays in the cache.
MIN_OUTPUTS = 32


def dense_product(kernel: Any, x: Any) -> Any:
    """Return `x @ kernel.T`.

    Args:
        kernel: (outputs, inputs).
        x: (examples, inputs).
    """
    if not for_gpu() and x.shape[0] <= MAX_EXAMPLES and kernel.shape[0] >= MIN_OUTPUTS:
        return _with_outer_products()(kernel, x)
    return x @ kernel.T


@cache
def _with_outer_products() -> Callable[[JaxArray, JaxArray], JaxArray]:
    """The product whose gradient is a sum of outer products; created at the first use, as JAX is imported late."""
    import jax
    from jax import lax

    @jax.custom_vjp
    def product(kernel: JaxArray, x: JaxArray) -> JaxArray:
        return x @ kernel.T

    def forward(kernel: JaxArray, x: JaxArray) -> tuple[JaxArray, tuple[JaxArray, JaxArray]]:
        return x @ kernel.T, (kernel, x)

    def backward(saved: tuple[JaxArray, JaxArray], above: JaxArray) -> tuple[JaxArray, JaxArray]:
        kernel, x = saved
        # Without the barrier, XLA computes `above` again for every entry of the kernel.
        above = lax.optimization_barrier(above)
        gradient = above[0][:, None] * x[0][None, :]
        for example in range(1, x.shape[0]):
            gradient = gradient + above[example][:, None] * x[example][None, :]
        return gradient, above @ kernel

    product.defvjp(forward, backward)
    return product
