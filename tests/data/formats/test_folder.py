"""A folder with one archive per client."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

from coterie.data import load
from coterie.errors import DataError


def save(folder, client, n=4, **more):
    np.savez(folder / f"{client}.npz", x=np.full((n, 2), n, np.float32), y=np.arange(n) % 2, **more)


def error_of(folder):
    with pytest.raises(DataError) as caught:
        load(str(folder))
    return str(caught.value)


def test_each_file_is_a_client_named_after_it(tmp_path):
    save(tmp_path, "berlin", 10)
    save(tmp_path, "aachen", 20)
    (tmp_path / "README.txt").write_text("not data")
    data = load(str(tmp_path))
    assert data.clients == ("aachen", "berlin")
    assert data.sizes("fit").tolist() == [18, 9]  # nine tenths
    assert data.name == tmp_path.name


def test_given_test_examples_are_used(tmp_path):
    save(tmp_path, "a", 4, x_test=np.zeros((3, 2)), y_test=np.zeros(3, int))
    data = load(str(tmp_path))
    assert data.sizes("fit").tolist() == [4]
    assert data.sizes("test").tolist() == [3]


def test_an_object_array_is_rejected_without_loading_it(tmp_path):
    np.savez(tmp_path / "bad.npz", x=np.array([{"a": 1}], object), y=np.zeros(1))
    text = error_of(tmp_path)
    assert "bad.npz: array 'x' cannot be read: Object arrays cannot be loaded" in text
    assert "Store plain numbers, not objects" in text


def test_a_pickle_is_rejected_without_loading_it(tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was run",))

    (tmp_path / "bad.npz").write_bytes(pickle.dumps(Trap()))
    assert "bad.npz is not an archive of arrays" in error_of(tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 not really"])
def test_a_file_that_is_not_an_archive_is_rejected_by_name(tmp_path, content):
    (tmp_path / "bad.npz").write_bytes(content)
    text = error_of(tmp_path)
    assert "bad.npz is not an archive of arrays" in text
    assert "numpy.savez" in text


def test_a_damaged_archive_is_rejected_by_name(tmp_path):
    np.savez_compressed(tmp_path / "bad.npz", x=np.random.default_rng(0).random((50, 20)), y=np.zeros(50, int))
    content = bytearray((tmp_path / "bad.npz").read_bytes())
    content[200:400] = bytes(200)
    (tmp_path / "bad.npz").write_bytes(bytes(content))
    assert "bad.npz: array 'x' cannot be read" in error_of(tmp_path)


def test_a_single_array_is_rejected(tmp_path):
    with (tmp_path / "bad.npz").open("wb") as stream:
        np.save(stream, np.zeros(3))
    assert "bad.npz holds a single array, not an archive of arrays" in error_of(tmp_path)


def test_missing_arrays_are_named(tmp_path):
    np.savez(tmp_path / "bad.npz", x=np.zeros((1, 1)), labels=np.zeros(1))
    assert "bad.npz has no array 'y', only labels, x" in error_of(tmp_path)
    save(tmp_path, "bad", x_test=np.zeros((1, 2)))
    assert "bad.npz has no array 'y_test', only x, x_test, y" in error_of(tmp_path)


def test_a_folder_without_archives_is_rejected(tmp_path):
    assert "holds no .npz files. Put one per client there" in error_of(tmp_path)


def test_a_file_that_cannot_be_opened_is_rejected_by_name(tmp_path):
    (tmp_path / "bad.npz").mkdir()
    assert "bad.npz cannot be opened" in error_of(tmp_path)


def test_the_error_names_the_client_of_a_wrong_value(tmp_path):
    save(tmp_path, "a")
    np.savez(tmp_path / "b.npz", x=np.array([[0, np.nan]]), y=np.zeros(1, int))
    assert "Client 'b': x is NaN or infinite in row 0" in error_of(tmp_path)


def test_an_array_that_is_a_single_number_is_rejected(tmp_path):
    np.savez(tmp_path / "b.npz", x=np.array(3.0), y=np.zeros(1, int))
    assert "Client 'b': y must hold one label for each example, got x of shape ()" in error_of(tmp_path)


def test_a_name_that_is_not_utf_8_is_rejected(tmp_path):
    save(tmp_path, "a")
    try:
        os.rename(os.fsencode(tmp_path / "a.npz"), os.path.join(os.fsencode(tmp_path), b"caf\xe9.npz"))
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    assert r"has a file whose name is not UTF-8, b'caf\xe9.npz'. Rename it" in error_of(tmp_path)


def test_targets_that_look_like_labels_cause_a_warning(tmp_path, caplog):
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 1)), y=np.array([0.0, 3.0]))
    assert load(tmp_path).classes is None
    (warning,) = caplog.messages
    assert warning.startswith(f"{tmp_path}: labels are integers written as floats, and are used as regression targets")
    caplog.clear()
    assert load(tmp_path, classes=4).classes == 4
    assert not caplog.messages


@pytest.mark.parametrize("order", ["<", ">"])
def test_text_with_characters_that_do_not_exist_is_rejected(tmp_path, order):
    points = np.array([[0x61, 0x110000]], f"{order}u4")
    np.savez(tmp_path / "a.npz", x=points.view(f"{order}U2"), y=np.zeros(1, int))
    assert "a.npz: array 'x' has characters that do not exist in Unicode. Write it with" in error_of(tmp_path)
