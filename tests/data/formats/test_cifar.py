"""The archives of CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import os
import pickle
import tarfile

import numpy as np
import pytest

from coterie.data.formats.cifar import read_cifar10, read_cifar100
from coterie.errors import DataError


def images(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), np.uint8)


X, Y = images(10), np.arange(10)
X_TEST, Y_TEST = images(4, 1), np.array([3, 8, 8, 0])


@pytest.fixture
def archive(tmp_path):
    return tmp_path / "cifar-10-python.tar.gz"


@pytest.fixture(params=["python2", "python3"])
def pickled(request, write):
    return getattr(write, request.param)


def test_batches_are_joined_and_the_test_batch_is_last(archive, write, pickled):
    archive.write_bytes(write.cifar10(X, Y, X_TEST, Y_TEST, pickled))
    got = read_cifar10([archive])
    assert got.train == 10
    np.testing.assert_array_equal(got.x, np.concatenate([X, X_TEST]))
    assert got.y.tolist() == [*range(10), 3, 8, 8, 0]
    assert (got.x.dtype, got.y.dtype) == (np.uint8, np.int32)


def test_the_python_2_pickle_of_the_tests_is_a_real_pickle(write):
    # The layout that the tests write by hand is a real pickle: Python's own reader finds the same in it.
    held = pickle.loads(write.batch(X, labels=Y), encoding="bytes")
    assert held[b"labels"] == list(range(10))
    np.testing.assert_array_equal(held[b"data"][:, :1024], X[:, :, :, 0].reshape(10, 1024))  # red first


def test_fine_labels_are_the_labels_and_coarse_ones_a_column(archive, write, pickled):
    coarse, coarse_test = Y % 3, Y_TEST % 3
    archive.write_bytes(write.cifar100(X, Y + 90, coarse, X_TEST, Y_TEST, coarse_test, pickled))
    got = read_cifar100([archive])
    assert got.y.tolist() == [*range(90, 100), 3, 8, 8, 0]
    assert got.columns["coarse"].tolist() == [*coarse, *coarse_test]
    np.testing.assert_array_equal(got.x[10:], X_TEST)


def members(write):
    parts = {f"cifar-10-batches-py/data_batch_{number}": write.batch(X[:2], labels=Y[:2]) for number in range(1, 6)}
    return parts | {"cifar-10-batches-py/test_batch": write.batch(X_TEST, labels=Y_TEST)}


def entry(name, kind, target=""):
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("../outside", b"x", r"its member '\.\./outside' leads out of the archive"),
        ("a/../../outside", b"x", "leads out of the archive"),
        ("/etc/outside", b"x", "leads out of the archive"),
        ("C:\\outside", b"x", "leads out of the archive"),
        ("link", entry("link", tarfile.SYMTYPE, "/etc/passwd"), "its member 'link' is a link or a device"),
        ("link", entry("link", tarfile.LNKTYPE, "cifar-10-batches-py/test_batch"), "is a link or a device"),
        ("pipe", entry("pipe", tarfile.FIFOTYPE), "is a link or a device"),
        ("disk", entry("disk", tarfile.BLKTYPE), "is a link or a device"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_an_archive_with_unsafe_members_is_rejected(archive, write, tmp_path, name, content, text, first):
    good = members(write)
    archive.write_bytes(write.tar({name: content, **good} if first else {**good, name: content}))
    before = sorted(os.listdir(tmp_path.parent)), sorted(os.listdir(tmp_path))
    with pytest.raises(DataError, match=text) as caught:
        read_cifar10([archive])
    assert str(archive) in str(caught.value)
    assert (sorted(os.listdir(tmp_path.parent)), sorted(os.listdir(tmp_path))) == before  # nothing was unpacked


def test_an_archive_of_too_many_or_too_large_members_is_rejected(archive, write):
    archive.write_bytes(write.tar({f"file{number}": b"" for number in range(60)}))
    with pytest.raises(DataError, match="'file50' is too large, or there are too many members"):
        read_cifar10([archive])
    huge = tarfile.TarInfo("cifar-10-batches-py/test_batch")
    huge.size = 1 << 30
    archive.write_bytes(write.tar({"huge": huge}))
    with pytest.raises(DataError, match="test_batch' is too large, or there are too many members"):
        read_cifar10([archive])


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (lambda content: b"", "cannot be read: empty file"),
        (lambda content: content[:100], "cannot be read: "),
        (lambda content: content[: len(content) // 2], "cannot be read: "),
        (lambda content: b"<html>not found</html>", "cannot be read: "),
    ],
    ids=["empty", "a beginning", "half", "page"],
)
def test_a_damaged_archive_is_rejected(archive, write, harm, text):
    archive.write_bytes(harm(write.cifar10(images(100), np.arange(100) % 10, X_TEST, Y_TEST)))
    with pytest.raises(DataError, match=text):
        read_cifar10([archive])


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ({b"labels": [1, 2]}, "'data' must hold bytes of shape"),
        ({b"data": np.zeros((2, 100), np.uint8), b"labels": [1, 2]}, "'data' must hold bytes of shape"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}, "'labels' must be a list of 2 integers"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 200]}, "integers from 0 to 99"),
        ({b"data": np.zeros((2, 3072), np.uint8)}, "'labels' must be a list of 2 integers"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, b"two"]}, "must be a list of 2 integers"),
    ],
)
def test_a_batch_of_another_layout_is_rejected_with_its_name(archive, write, batch, text):
    parts = members(write) | {"cifar-10-batches-py/data_batch_3": write.python2(batch)}
    archive.write_bytes(write.tar(parts))
    with pytest.raises(DataError, match=text) as caught:
        read_cifar10([archive])
    assert "data_batch_3" in str(caught.value)


def test_a_missing_batch_is_named(archive, write):
    parts = members(write)
    del parts["cifar-10-batches-py/data_batch_4"]
    archive.write_bytes(write.tar(parts))
    with pytest.raises(DataError, match="has no member cifar-10-batches-py/data_batch_4"):
        read_cifar10([archive])


class Harm:
    """An object that pickles to a call of `os.system`."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_batch_that_would_run_a_command_is_rejected_and_runs_nothing(archive, write, tmp_path, protocol):
    mark = tmp_path / "it ran"
    bad = pickle.dumps({b"data": Harm(f"touch '{mark}'"), b"labels": [1]}, protocol)
    pickle.loads(bad)  # it would indeed
    assert mark.exists()
    mark.unlink()
    archive.write_bytes(write.tar(members(write) | {"cifar-10-batches-py/data_batch_1": bad}))
    with pytest.raises(
        DataError, match=r"asks for '(posix|nt)\.system', which is not plain data. Nothing in it was executed"
    ):
        read_cifar10([archive])
    assert not mark.exists()
