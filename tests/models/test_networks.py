"""Convolutional networks: numbers of parameters of the papers, shapes, running statistics, dropout."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from coterie import data as datasets
from coterie import models, tree
from coterie.clients import LocalSGD, fit
from coterie.errors import SpecError
from coterie.federation import sequential, vectorized
from coterie.models import layers, networks
from coterie.models.layers import BatchNorm, Conv, Dense, Dropout, GroupNorm, Residual, pool, relu
from coterie.seeds import Seed

MNIST, CIFAR = (28, 28), (32, 32, 3)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options", "count"),
    [
        ("cnn-mnist", MNIST, 10, {}, 50_186),
        ("cnn-femnist", MNIST, 10, {}, 325_578),
        ("cnn-fmnist", MNIST, 10, {}, 3_274_634),
        ("cnn-fedsim", MNIST, 10, {}, 6_497_162),
        ("cnn-fedsim", MNIST, 26, {}, 6_529_946),
        ("cnn-fedsim", MNIST, 10, {"form": "paper"}, 6_482_634),
        ("cnn-fedsim", MNIST, 62, {}, 6_603_710),  # LEAF's
        ("lenet5", CIFAR, 10, {}, 62_006),
        ("lenet5", MNIST, 10, {}, 44_426),
        ("resnet9", CIFAR, 10, {}, 2_274_880),
        ("resnet9-gn", CIFAR, 100, {}, 6_621_540),
    ],
)
def test_the_number_of_parameters_is_that_of_the_paper(name, shape, classes, options, count):
    task = models.build(name, shape, classes, **options)
    assert tree.size(models.trainable(task.init(Seed(0)))) == count


@pytest.mark.parametrize("name", ["cnn-mnist", "cnn-femnist", "lenet5", "resnet9", "resnet9-gn"])
def test_outputs_have_one_column_per_class(name):
    task = models.build(name, CIFAR, 7)
    shape = jax.eval_shape(task.outputs, task.init(Seed(0)), np.zeros((2, *CIFAR), np.uint8)).shape
    assert shape == (2, 7)


def by_hand(x, kernel, stride, pads):
    """A convolution by its definition."""
    outputs, k = kernel.shape[:2]
    padded = np.pad(x, ((0, 0), pads, pads, (0, 0)))
    side = (padded.shape[1] - k) // stride + 1
    out = np.zeros((len(x), side, side, outputs))
    for i in range(side):
        for j in range(side):
            window = padded[:, i * stride : i * stride + k, j * stride : j * stride + k]
            out[:, i, j] = np.tensordot(window, kernel, axes=([1, 2, 3], [1, 2, 3]))
    return out


@pytest.mark.parametrize(
    ("stride", "padding", "side", "pads"),
    # TensorFlow's `same`: ceil(6/2) = 3 outputs need (3 - 1)·2 + 5 = 9 inputs, 3 more than 6: one before, two after.
    [(1, "same", 6, (2, 2)), (1, "valid", 6, (0, 0)), (2, "same", 6, (1, 2)), (2, 2, 7, (2, 2))],
)
def test_a_convolution_equals_its_definition(stride, padding, side, pads):
    draw = np.random.default_rng(0)
    layer = Conv(3, 5, stride=stride, padding=padding)
    params, shape = layer.init(Seed(0), (side, side, 2), "glorot")
    x = draw.normal(size=(2, side, side, 2)).astype(np.float32)
    out = layer.apply(params, x, layers.Context(), "conv", None)
    np.testing.assert_allclose(out, by_hand(x, params["kernel"], stride, pads), rtol=1e-4, atol=1e-5)
    assert out.shape[1:] == shape


def test_pooling_takes_the_maximum_of_each_square_and_drops_the_edge():
    x = np.arange(25, dtype=np.float32).reshape(1, 5, 5, 1)
    # Rows 0-1 and 2-3, columns 0-1 and 2-3 of 0..24 counted by fives: the largest are 6, 8, 16, 18.
    assert np.asarray(pool().apply({}, x, layers.Context(), "", None)).ravel().tolist() == [6, 8, 16, 18]


def test_group_norm_gives_each_group_mean_zero_and_variance_one():
    layer = GroupNorm(2)
    params, _ = layer.init(Seed(0), (3, 3, 4), "glorot")
    x = np.random.default_rng(0).normal(3.0, 2.0, (2, 3, 3, 4)).astype(np.float32)
    parts = np.asarray(layer.apply(params, x, layers.Context(), "", None)).reshape(2, 9, 2, 2)
    np.testing.assert_allclose(parts.mean(axis=(1, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(parts.var(axis=(1, 3)), 1, rtol=1e-3)


def test_batch_norm_ignores_padding_and_updates_its_running_statistics():
    layer = BatchNorm(momentum=0.5)
    params, _ = layer.init(Seed(0), (1,), "glorot")
    # Two examples, 1 and 3, and a third row of padding: mean 2, variance 1, unbiased 2.
    context = layers.Context(key=None, weight=np.array([1.0, 1.0, 0.0], np.float32))
    out = layer.apply(params, np.array([[1.0], [3.0], [99.0]], np.float32), context, "norm", params["stats"])
    np.testing.assert_allclose(np.asarray(out)[:2, 0], [-1, 1], rtol=1e-4)
    fresh = context.stats["norm"]
    # Halfway from the initial statistics, mean 0 and variance 1.
    np.testing.assert_allclose([fresh["mean"][0], fresh["variance"][0]], [1.0, 1.5], rtol=1e-6)


def test_batch_norm_uses_its_running_statistics_outside_training():
    layer = BatchNorm()
    params, _ = layer.init(Seed(0), (1,), "glorot")
    stats = {"mean": np.array([2.0], np.float32), "variance": np.array([4.0], np.float32)}
    out = layer.apply(params, np.array([[6.0]], np.float32), layers.Context(), "norm", stats)
    assert float(out[0, 0]) == pytest.approx(2.0, rel=1e-5)  # (6 - 2) / sqrt(4)


def test_dropout_is_active_only_in_training_and_keeps_the_mean():
    layer, x = Dropout(0.5), np.ones((200, 200), np.float32)
    assert layer.apply({}, x, layers.Context(), "drop", None) is x
    thinned = np.asarray(layer.apply({}, x, layers.Context(key=Seed(0).key()), "drop", None))
    assert set(np.unique(thinned)) == {0.0, 2.0}
    # 40,000 draws of 0 or 2: the mean's deviation is 1/200, tolerance: six deviations.
    assert abs(thinned.mean() - 1) < 6 / 200


SMALL = datasets.load("blobs", clients=4, clusters=2, samples=20, side=8, classes=3, seed=0)


def small(*inner):
    parts = [Conv(4, 3), *inner, relu, pool(), Residual([Conv(4, 3, bias=False), relu]), Dense(3)]
    return networks.network("small", SMALL.shape, 3, parts, normalize=models.Normalize(0.0, 255.0))


@pytest.mark.exhaustive
@pytest.mark.parametrize("inner", [[BatchNorm()], [GroupNorm(2)], [Dropout(0.3)]], ids=["batch", "group", "dropout"])
def test_backends_agree_on_norms_and_dropout(inner):
    task = small(*inner)
    start = task.init(Seed(0))
    sent = {"start": start, "local": LocalSGD(epochs=2, batch_size=8, learning_rate=0.05)}
    one = sequential(SMALL, task).ask(SMALL.clients, fit, Seed(1), **sent)
    other = vectorized(SMALL, task).ask(SMALL.clients, fit, Seed(1), **sent)
    here, there = tree.flatten_rows(one["params"]), tree.flatten_rows(other["params"])
    way = np.linalg.norm(here - tree.flatten(start)[None])
    assert 0 < np.linalg.norm(here - there) <= 1e-5 * way or np.array_equal(here, there)


def test_statistics_are_sent_with_the_model_and_excluded_from_update_vectors():
    task = small(BatchNorm())
    start = task.init(Seed(0))
    got = vectorized(SMALL, task).ask(SMALL.clients, fit, Seed(1), start=start, local=LocalSGD(batch_size=8))
    moved = got["params"]["layer01"]["stats"]["mean"]
    assert (moved != start["layer01"]["stats"]["mean"]).any()
    assert not any("stats" in path for path, _ in tree.paths(models.trainable(got["params"])))


@pytest.mark.parametrize(
    ("shape", "classes", "text"),
    [
        ((64,), 3, "cnn takes images"),
        ((8, 8), None, "cnn is a classifier"),
    ],
)
def test_data_that_are_not_labeled_images_are_rejected(shape, classes, text):
    with pytest.raises(SpecError, match=text):
        models.build("cnn", shape, classes)


def test_images_that_are_too_small_are_rejected():
    with pytest.raises(SpecError, match=r"lenet5 needs larger images than \(8, 8\)"):
        models.build("lenet5", (8, 8), 3)
