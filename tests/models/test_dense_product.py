"""The product of a dense layer and its gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.models.dense_product import MAX_EXAMPLES, MIN_OUTPUTS, dense_product


def gradients(product, kernel, x):
    """Gradients of half the sum of squares of the product: y @ x for the kernel, y @ kernel for x."""
    return jax.grad(lambda k, inputs: 0.5 * jnp.sum(product(k, inputs) ** 2), argnums=(0, 1))(kernel, x)


def uses_outer_products(examples, outputs):
    """Whether the gradient of the kernel is computed without a product that contracts the examples."""
    kernel, x = jnp.ones((outputs, 3)), jnp.ones((examples, 3))
    text = str(jax.make_jaxpr(lambda k, i: jax.grad(lambda k: jnp.sum(dense_product(k, i) ** 2))(k))(kernel, x))
    return "optimization_barrier" in text


def test_the_gradient_of_a_wide_kernel_is_the_sum_of_outer_products():
    # Row j of the kernel is (j, 0), x = [(1, 2), (0, 1)], so y = [(0, 1, 2, …), (0, 0, 0, …)].
    # The gradient of the kernel is y.T @ x: row j is j · (1, 2). That of x is y @ kernel: (Σ j², 0) and (0, 0).
    kernel = jnp.stack([jnp.arange(32.0), jnp.zeros(32)], axis=1)
    x = jnp.array([[1.0, 2.0], [0.0, 1.0]])
    of_kernel, of_x = gradients(dense_product, kernel, x)
    np.testing.assert_array_equal(of_kernel, np.outer(np.arange(32.0), [1.0, 2.0]))
    np.testing.assert_array_equal(of_x, [[31 * 32 * 63 / 6, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize(("examples", "outputs"), [(1, 128), (MAX_EXAMPLES, MIN_OUTPUTS), (MAX_EXAMPLES + 1, 128)])
def test_product_and_gradients_are_those_of_a_matrix_product(examples, outputs):
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=(outputs, 50)).astype(np.float32)
    x = rng.normal(size=(examples, 50)).astype(np.float32)
    np.testing.assert_array_equal(dense_product(kernel, jnp.asarray(x)), jnp.asarray(x) @ kernel.T)
    for ours, plain in zip(
        gradients(dense_product, kernel, x), gradients(lambda k, i: i @ k.T, kernel, x), strict=True
    ):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-5 * np.abs(plain).max())


@pytest.mark.parametrize(
    ("examples", "outputs", "expected"),
    [(MAX_EXAMPLES, MIN_OUTPUTS, True), (MAX_EXAMPLES + 1, MIN_OUTPUTS, False), (MAX_EXAMPLES, MIN_OUTPUTS - 1, False)],
)
def test_outer_products_are_for_small_batches_and_wide_layers(examples, outputs, expected):
    assert uses_outer_products(examples, outputs) is expected


def test_it_can_be_mapped_over_models():
    kernels = jnp.arange(2 * 32 * 3, dtype=jnp.float32).reshape(2, 32, 3)
    x = jnp.array([[1.0, 0.0, -1.0]])
    together = jax.vmap(lambda kernel: gradients(dense_product, kernel, x)[0])(kernels)
    alone = [gradients(dense_product, kernel, x)[0] for kernel in kernels]
    np.testing.assert_array_equal(together, np.stack(alone))
