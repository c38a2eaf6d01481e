"""Rotated and inverted images."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coterie.data.transforms import TRANSFORMS, apply, invert, rot90, rot180, rot270
from coterie.errors import SpecError

images = hnp.arrays(
    np.uint8, st.tuples(st.integers(0, 3), st.integers(1, 5)).map(lambda s: (s[0], s[1], s[1]))
) | hnp.arrays(np.uint8, st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 5), st.integers(1, 3)))


@settings(deadline=None, max_examples=50)
@given(images)
def test_four_rotations_by_90_degrees_restore_the_image(x):
    np.testing.assert_array_equal(rot90(rot90(rot90(rot90(x)))), x)


@settings(deadline=None, max_examples=50)
@given(images)
def test_rotations_agree_with_numpy(x):
    for times, rotate in enumerate((rot90, rot180, rot270), start=1):
        np.testing.assert_array_equal(rotate(x), np.rot90(x, times, axes=(1, 2)))


@settings(deadline=None, max_examples=50)
@given(images, st.sampled_from(["invert", "rot180"]))
def test_inversion_and_rotation_by_180_degrees_are_their_own_inverse(x, name):
    np.testing.assert_array_equal(apply(name, apply(name, x)), x)


def test_inversion_depends_on_the_type():
    # 255 - 0 = 255 and 255 - 200 = 55 in bytes; 1 - 0.25 = 0.75 in floats; 16 - 3 = 13 in 17 gray levels.
    assert invert(np.array([[[0, 200]]], np.uint8)).tolist() == [[[255, 55]]]
    assert invert(np.array([[[0.25]]], np.float32)).tolist() == [[[0.75]]]
    assert apply("invert16", np.array([[[3]]], np.uint8)).tolist() == [[[13]]]


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_transform_keeps_type_and_shape(name, dtype):
    x = np.zeros((2, 4, 4, 3), dtype)
    out = apply(name, x)
    assert (out.dtype, out.shape) == (x.dtype, x.shape)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_traced_arrays_are_transformed_like_numpy_arrays(name):
    import jax

    x = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) % 17
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda batch: apply(name, batch))(x)), apply(name, x))


def test_an_unknown_transform_is_rejected_with_a_suggestion():
    with pytest.raises(SpecError, match=r"No transform 'rot9'\. Did you mean 'rot90'\?"):
        apply("rot9", np.zeros((1, 2, 2)))
