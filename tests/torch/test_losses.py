"""PyTorch losses: Coterie's own if they are equal, PyTorch's otherwise."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie.errors import SpecError
from coterie.seeds import Seed

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'coterie[torch]'")
nn = torch.nn


def task_of(loss, classes=2, **options):
    return coterie.torch.task(nn.Sequential(nn.Linear(1, classes or 1)), loss, shape=(1,), classes=classes, **options)


LOGITS = jnp.array([[0.0, math.log(3)], [0.0, math.log(3)]])  # probabilities 1/4 and 3/4


@pytest.mark.parametrize(
    "loss",
    [nn.CrossEntropyLoss(), nn.functional.cross_entropy, lambda o, y: nn.functional.cross_entropy(o, y)],
    ids=["module", "function", "unknown"],
)
def test_cross_entropy_is_the_logarithm_of_the_probability(loss):
    task = task_of(loss)
    # -log 1/4 and -log 3/4
    losses = task.losses_of(LOGITS, np.array([0, 1]))
    assert np.asarray(losses) == pytest.approx([math.log(4), math.log(4 / 3)], rel=1e-6)  # float32
    # The gradient is the probability, minus 1 for the label.
    slope = jax.jit(jax.grad(lambda z: task.losses_of(z, np.array([0, 1])).sum()))(LOGITS)
    assert np.asarray(slope) == pytest.approx(np.array([[-0.75, 0.75], [0.25, -0.25]]), rel=1e-6)


def test_the_squared_error_is_pytorchs_and_not_half_of_it():
    for loss in (nn.MSELoss(), nn.functional.mse_loss):
        task = task_of(loss, None)
        # (3 - 1)² = 4
        assert np.asarray(task.losses_of(jnp.array([3.0]), np.array([1.0]))).tolist() == [4]


def test_any_other_loss_is_computed_by_pytorch_per_example():
    task = task_of(nn.L1Loss(), None)
    outputs, y = jnp.array([3.0, -1.0]), np.array([1.0, 1.0], np.float32)
    # |3 - 1| and |-1 - 1|, with derivatives 1 and -1
    assert np.asarray(task.losses_of(outputs, y)).tolist() == [2, 2]
    assert np.asarray(jax.grad(lambda z: task.losses_of(z, y).sum())(outputs)).tolist() == [1, -1]


def test_a_function_without_reduction_is_called_for_each_example_separately():
    rows = []

    def largest(outputs, y):
        rows.append(len(outputs))
        return (outputs - y).abs().max()

    task = task_of(largest, None)
    rows.clear()
    losses = task.losses_of(jnp.array([3.0, 5.0]), np.array([1.0, 1.0], np.float32))
    assert np.asarray(losses).tolist() == [2, 4]  # for both at once the largest would be 4
    assert rows == [1, 1]


def test_class_weights_are_applied_and_the_mean_is_over_examples():
    task = task_of(nn.CrossEntropyLoss(weight=torch.tensor([10.0, 1.0])))
    # ten times -log 1/4 for class 0
    losses = task.losses_of(LOGITS, np.array([0, 1]))
    assert np.asarray(losses) == pytest.approx([10 * math.log(4), math.log(4 / 3)], rel=1e-6)


def test_losses_of_several_models_at_once_equal_those_of_each():
    task = task_of(nn.L1Loss(), None)
    models = [task.init(Seed(j)) for j in range(3)]
    x, y = np.array([[1.0], [2.0]], np.float32), np.zeros(2, np.float32)
    stacked = jax.tree.map(lambda *leaf: np.stack(leaf), *models)
    together = jax.jit(jax.vmap(lambda one: task.losses(one, x, y)))(stacked)
    assert np.array_equal(together, [task.losses(model, x, y) for model in models])


def test_a_module_with_a_custom_loss_is_not_converted():
    with pytest.raises(SpecError, match="cannot be converted: its loss is neither cross-entropy nor the squared error"):
        task_of(nn.L1Loss(), None, convert=True)


@pytest.mark.parametrize(
    ("loss", "classes", "text"),
    [
        (nn.CrossEntropyLoss(reduction="sum"), 2, "CrossEntropyLoss has reduction='sum': use 'mean'"),
        (nn.CrossEntropyLoss, 2, r"takes a loss such as nn\.CrossEntropyLoss\(\)"),
        ("cross_entropy", 2, r"takes a loss such as nn\.CrossEntropyLoss\(\) .* got 'cross_entropy'"),
        (nn.CrossEntropyLoss(), None, "Cross-entropy is a loss for classification: give the number of classes"),
        (nn.MSELoss(), 3, "a loss for regression, but there are 3 classes"),
        (nn.BCELoss(), 2, "The loss failed with outputs of shape"),
        (
            lambda outputs, y: (outputs.argmax() - y).sum(),
            2,
            r"The loss must return float32, got torch\.int64",
        ),
    ],
)
def test_an_invalid_loss_is_rejected(loss, classes, text):
    with pytest.raises(SpecError, match=text):
        task_of(loss, classes)


@pytest.mark.parametrize("loss", [nn.BCEWithLogitsLoss(), nn.BCELoss(), nn.functional.binary_cross_entropy_with_logits])
def test_a_binary_loss_for_one_output_is_an_error_that_says_what_to_use(loss):
    with pytest.raises(SpecError, match=r"Two classes need two outputs: .* nn\.CrossEntropyLoss\(\) with classes=2"):
        coterie.torch.task(nn.Sequential(nn.Linear(1, 1)), loss, shape=(1,), classes=2)
