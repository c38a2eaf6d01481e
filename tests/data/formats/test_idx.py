"""The idx format of MNIST."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest

from coterie.data.formats.idx import read_idx, read_images, read_writers
from coterie.errors import DataError


@pytest.fixture
def four(tmp_path, write):
    """Images and labels of 7 training and 3 test images."""
    draw = np.random.default_rng(0)
    arrays = [draw.integers(0, 256, (7, 28, 28), np.uint8), np.arange(7, dtype=np.uint8)]
    arrays += [draw.integers(0, 256, (3, 28, 28), np.uint8), np.arange(3, dtype=np.uint8)]
    paths = [tmp_path / f"{number}.gz" for number in range(4)]
    for path, array in zip(paths, arrays, strict=True):
        path.write_bytes(write.idx(array))
    return paths, arrays


def test_the_first_bytes_are_the_published_magic_numbers(four):
    # 2051 for images and 2049 for labels, as the publisher's page says: 0x00000803 and 0x00000801.
    paths, _ = four
    magic = [struct.unpack(">I", gzip.decompress(path.read_bytes())[:4])[0] for path in paths]
    assert magic == [2051, 2049, 2051, 2049]


def test_training_images_come_first(four):
    paths, (x, y, x_test, y_test) = four
    got = read_images(paths)
    assert got.train == 7
    np.testing.assert_array_equal(got.x, np.concatenate([x, x_test]))
    assert got.y.tolist() == [*y, *y_test]
    assert (got.x.dtype, got.y.dtype) == (np.uint8, np.int32)


def test_writers_and_series_are_columns_of_qmnists_labels(tmp_path, write):
    # Class, series, writer, number of the digit, and four more columns; MNIST's test images come first in QMNIST's.
    train = np.array([[5, 0, 1019, 3, 0, 0, 0, 0], [0, 4, 2200, 1, 0, 0, 0, 0]], np.int32)
    test = np.array([[7, 4, 3001, 0, 0, 0, 0, 0], [1, 0, 70000, 0, 0, 0, 0, 0]], np.int32)
    paths = [tmp_path / "train.gz", tmp_path / "test.gz"]
    for path, table in zip(paths, (train, test), strict=True):
        path.write_bytes(write.idx(table))
    assert [part.tolist() for part in read_writers(paths, 1)] == [[1019, 2200], [0, 4], [3001], [4]]
    paths[0].write_bytes(write.idx(train[:, :2].copy()))
    with pytest.raises(DataError, match="must have columns for the class, the series and the writer, got 2"):
        read_writers(paths, 1)


HEAD = struct.pack(">BBBBI", 0, 0, 8, 1, 4)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "must begin with bytes 0 0 8 or 12 1, not nothing"),
        (gzip.compress(b"", mtime=0), "must begin with bytes 0 0 8 or 12 1, not nothing"),
        (b"not gzip at all", "cannot be read: Not a gzipped file"),
        (gzip.compress(HEAD + b"1234", mtime=0)[:-9], "cannot be read: Compressed file ended before the end"),
        (gzip.compress(HEAD + b"1234")[:-8] + bytes(8), "cannot be read: CRC check failed"),
        (gzip.compress(b"\0\0\x08\x03" + HEAD[4:] + bytes(12)), "not 0 0 8 3"),
        (gzip.compress(b"\0\0\x0d\x01" + HEAD[4:] + b"1234"), "not 0 0 13 1"),
        (gzip.compress(b"\x80\x02}q" + HEAD[4:] + b"1234"), "not 128 2 125 113"),
        (gzip.compress(HEAD + b"123"), r"holds less than its header says, an array of shape \(4,\)"),
        (gzip.compress(HEAD + b"12345"), "holds more than its header says"),
        (gzip.compress(b"\0\0\x08\x01\xff\xff\xff\xff"), "too large for this data set"),
    ],
    ids=["empty", "empty gzip", "no gzip", "cut", "crc", "axes", "floats", "pickle", "short", "long", "huge"],
)
def test_a_damaged_file_is_rejected_and_named(tmp_path, content, text):
    path = tmp_path / "labels.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=text) as caught:
        read_idx(path, 1)
    assert str(path) in str(caught.value)


def test_a_file_that_is_a_folder_is_rejected(tmp_path):
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_idx(tmp_path, 1)


def test_mismatched_files_are_rejected(four, write):
    paths, _ = four
    paths[1].write_bytes(write.idx(np.zeros(6, np.uint8)))
    with pytest.raises(DataError, match="has 6 labels for 7 images"):
        read_images(paths)
    paths[1].write_bytes(write.idx(np.zeros(7, np.uint8)))
    paths[2].write_bytes(write.idx(np.zeros((3, 8, 8), np.uint8)))
    with pytest.raises(DataError, match=r"have shape \(8, 8\), training images \(28, 28\)"):
        read_images(paths)
