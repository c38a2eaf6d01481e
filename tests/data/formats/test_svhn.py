"""The MATLAB files of SVHN."""

from __future__ import annotations

import io

import numpy as np
import pytest

from coterie.data.formats.svhn import read_digits
from coterie.errors import DataError

X = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), np.uint8)
Y = np.array([1, 9, 2, 3, 0, 5, 0, 7, 8, 4, 6, 1])


@pytest.fixture
def paths(tmp_path):
    return [tmp_path / "train_32x32.mat", tmp_path / "test_32x32.mat"]


def test_images_are_transposed_and_label_10_is_the_digit_0(paths, write):
    paths[0].write_bytes(write.mat(X[:8], Y[:8]))
    paths[1].write_bytes(write.mat(X[8:], Y[8:]))
    got = read_digits(paths)
    np.testing.assert_array_equal(got.x, X)
    assert got.y.tolist() == Y.tolist()
    assert (got.train, got.x.dtype, got.y.dtype) == (8, np.uint8, np.int32)


def file(**arrays):
    from scipy.io import savemat

    stream = io.BytesIO()
    savemat(stream, arrays, do_compression=True)
    return stream.getvalue()


def test_labels_may_be_stored_as_floats_and_compressed(paths, write):
    content = file(X=X.transpose(1, 2, 3, 0), y=np.where(Y == 0, 10, Y).astype(np.float64)[:, None])
    for path in paths:
        path.write_bytes(content)
    assert read_digits(paths).y.tolist() == [*Y, *Y]


GOOD = X[:2].transpose(1, 2, 3, 0)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is not a readable MATLAB file"),
        (b"nothing that MATLAB wrote", "is not a readable MATLAB file"),
        (file(X=GOOD, y=np.array([[1], [2]]))[:-200], "is not a readable MATLAB file"),
        (file(y=np.array([[1], [2]])), r"X must hold bytes of shape \(32, 32, 3, images\), got nothing"),
        (file(X=X[:2], y=np.array([[1], [2]])), r"got uint8 of shape \(2, 32, 32, 3\)"),
        (file(X=GOOD.astype(float), y=np.array([[1], [2]])), "got float64"),
        (file(X=GOOD), "y must hold a number for each of the 2 images, got nothing"),
        (file(X=GOOD, y=np.array([[1], [2], [3]])), "for each of the 2 images, got int64 of shape"),
        (file(X=GOOD, y=np.array([[0], [2]])), "labels must be 1..10, where 10 is the digit 0"),
        (file(X=GOOD, y=np.array([[1.5], [2]])), "labels must be 1..10"),
    ],
)
def test_a_damaged_file_is_rejected_and_named(paths, write, content, text):
    paths[0].write_bytes(write.mat(X, Y))
    paths[1].write_bytes(content)
    with pytest.raises(DataError, match=text) as caught:
        read_digits(paths)
    assert str(paths[1]) in str(caught.value)
