"""LEAF's JSON: FEMNIST, Fed-MEx and text."""

from __future__ import annotations

import json

import numpy as np
import pytest

from coterie.data import files
from coterie.data.catalog import CATALOG
from coterie.data.formats.leaf import read_fed_mex, read_femnist, read_split, read_users
from coterie.errors import DataError


def rows(images):
    """Images as in LEAF: each byte divided by 255, in one row."""
    return (images.reshape(len(images), -1) / 255).tolist()


def test_every_byte_value_of_an_image_is_restored(tmp_path, write):
    images = np.arange(784 * 2, dtype=np.uint16).reshape(2, 28, 28).astype(np.uint8)  # every value from 0 to 255
    path = tmp_path / "all_data_0.json"
    path.write_bytes(write.leaf({"f0001_30": (rows(images), [61, 0])}))
    got = read_femnist([path])
    np.testing.assert_array_equal(got.x, images)
    assert (got.x.dtype, got.y.dtype) == (np.uint8, np.int32)
    assert got.y.tolist() == [61, 0]


def test_writers_of_all_files_are_joined(tmp_path, write):
    image = rows(np.zeros((1, 28, 28)))
    first, second = tmp_path / "all_data_0.json", tmp_path / "all_data_1.json"
    first.write_bytes(write.leaf({"b": (image * 2, [1, 2]), "a": (image, [3])}))
    second.write_bytes(write.leaf({"empty": ([], []), "c": (image * 3, [4, 5, 6])}))
    got = read_femnist([first, second])
    assert got.y.tolist() == [1, 2, 3, 4, 5, 6]
    assert got.columns["writer"].tolist() == [0, 0, 1, 3, 3, 3]
    assert list(got.names["writer"]) == ["b", "a", "empty", "c"]
    assert got.train == 6


def test_files_are_found_by_pattern_in_numerical_order(folders):
    femnist = CATALOG["femnist"].files[0]
    place = folders / "data" / "femnist" / "data" / "all_data"
    place.mkdir(parents=True)
    for number in (10, 2, 0):
        (place / f"all_data_{number}.json").touch()
    assert [path.name for path in files.locate(femnist).paths] == [
        "all_data_0.json",
        "all_data_2.json",
        "all_data_10.json",
    ]
    (folders / "data" / "femnist" / "all_data_7.json").touch()
    assert [path.name for path in files.locate(femnist).paths] == ["all_data_7.json"]


def test_a_writer_that_occurs_twice_is_rejected(tmp_path, write):
    paths = [tmp_path / "all_data_0.json", tmp_path / "all_data_niid_0.json"]
    for path in paths:
        path.write_bytes(write.leaf({"a": (rows(np.zeros((1, 28, 28))), [1])}))
    with pytest.raises(DataError, match=r"user 'a' occurs twice\. Keep the files of one sampling only"):
        read_femnist(paths)


def test_pixels_outside_0_and_1_are_rejected(tmp_path, write):
    (tmp_path / "a.json").write_bytes(write.leaf({"a": ([[255.0] * 784], [1])}))
    with pytest.raises(DataError, match="user 'a': pixels must be numbers from 0 to 1"):
        read_femnist([tmp_path / "a.json"])


GOOD = {"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[0.5, 1]], "y": [3.0]}}}


def test_labels_may_have_a_decimal_point(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(GOOD))
    ((user, x, y),) = read_users(tmp_path / "a.json", 2)
    assert (user, x.tolist(), y.tolist(), y.dtype) == ("a", [[0.5, 1.0]], [3], np.int32)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "is not valid or not complete JSON"),
        (json.dumps(GOOD)[:-5], "is not valid or not complete JSON"),
        ("[" * 100_000, "is not valid or not complete JSON"),
        ("[]", "must hold an object with users, num_samples and user_data"),
        (GOOD | {"users": {"a": 1}}, "users and num_samples must be lists"),
        (GOOD | {"users": []}, "1 entries in num_samples for 0 users"),
        (GOOD | {"users": ["b"]}, "user 'b': user_data has no x and y for it"),
        (GOOD | {"users": [["a"]]}, "user_data has no x and y for it"),
        (GOOD | {"num_samples": [2]}, "must have 2 rows of 2 numbers and 2 labels"),
        (GOOD | {"user_data": {"a": {"x": [[0.5]], "y": [3]}}}, "must have 1 rows of 2 numbers"),
        (GOOD | {"user_data": {"a": {"x": [[0.5, 1], [1]], "y": [3]}}}, "x must be rows of 2 numbers each"),
        (GOOD | {"user_data": {"a": {"x": [["?", 1]], "y": [3]}}}, "x must be rows of 2 numbers each"),
        (GOOD | {"user_data": {"a": {"x": [[0.5, 1]], "y": 3}}}, "and 1 labels"),
        (GOOD | {"user_data": {"a": {"x": [[0.5, 1]], "y": [-1]}}}, "labels must be integers of at least 0"),
        (GOOD | {"user_data": {"a": {"x": [[0.5, 1]], "y": [0.5]}}}, "labels must be integers of at least 0"),
        (GOOD | {"user_data": {"a": {"x": [[0.5, 1]], "y": [2**32]}}}, "labels must be 32-bit integers"),
        (GOOD | {"user_data": {"a": {"x": [[0.5, 1]], "y": ["b"]}}}, "labels must be integers of at least 0"),
        (GOOD | {"user_data": {"a": {"x": [[0.5, float("nan")]], "y": [1]}}}, "all numbers finite"),
    ],
)
def test_a_damaged_file_is_rejected_and_named(tmp_path, content, text):
    path = tmp_path / "a.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(DataError, match=text) as caught:
        read_users(path, 2)
    assert str(path) in str(caught.value)


def test_fed_mex_keeps_its_published_split_with_people_in_order(tmp_path, write):
    def example(value):
        return [value] * 1280

    paths = [tmp_path / "train.json", tmp_path / "test.json"]
    paths[0].write_bytes(write.leaf({"f_30": ([example(0.25)], [6]), "f_02": ([example(0.5), example(1)], [0, 1])}))
    paths[1].write_bytes(write.leaf({"f_30": ([], []), "f_02": ([example(0)], [2])}))
    got = read_fed_mex(paths)
    assert (got.x.shape, got.x.dtype, got.train) == ((4, 5, 16, 16), np.float32, 3)
    assert got.x[:, 0, 0, 0].tolist() == [0.5, 1, 0.25, 0]
    assert got.y.tolist() == [0, 1, 6, 2]
    assert got.columns["client"].tolist() == [0, 0, 1, 0]
    assert list(got.names["client"]) == ["f_02", "f_30"]
    paths[1].write_bytes(write.leaf({"f_02": ([example(0)], [2])}))
    with pytest.raises(DataError, match="has other users than"):
        read_fed_mex(paths)


def anything(x, y):
    return True


@pytest.fixture
def put(tmp_path):
    def write(part, name, content):
        folder = tmp_path / part
        folder.mkdir(exist_ok=True)
        text = content if isinstance(content, str) else json.dumps({"users": list(content), "user_data": content})
        (folder / name).write_text(text)
        return folder / name

    return write


def test_users_of_several_files_are_sorted_by_name(put):
    paths = [
        put("train", "1.json", {"b": {"x": ["p"], "y": [1]}}),
        put("train", "2.json", {"a": {"x": ["q", "r"], "y": [0, 1]}}),
        put("test", "1.json", {"a": {"x": ["s"], "y": [0]}}),
    ]
    users = read_split(paths, anything, "")
    assert list(users) == ["a", "b"]
    assert users["a"].train == (["q", "r"], [0, 1])
    assert users["a"].test == (["s"], [0])
    assert users["b"].test == ([], [])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "is not valid or not complete JSON"),
        ("[]", "must hold an object with users, a list, and user_data"),
        ('{"users": ["a"]}', "must hold an object with users, a list, and user_data"),
        ('{"users": ["a"], "user_data": {}}', "user 'a': user_data must have lists x and y of one length"),
        ('{"users": [3], "user_data": {}}', "user 3: user_data must have lists x and y of one length"),
        ({"a": {"x": ["p"], "y": []}}, "user 'a': user_data must have lists x and y of one length"),
    ],
)
def test_a_text_file_with_another_structure_is_rejected(put, content, text):
    with pytest.raises(DataError, match=text):
        read_split([put("train", "1.json", content)], anything, "")


def test_an_example_with_the_wrong_format_is_named(put):
    path = put("train", "1.json", {"a": {"x": ["p", 3], "y": [0, 1]}})
    with pytest.raises(DataError, match="user 'a', example 1: x must be a text"):
        read_split([path], lambda x, y: isinstance(x, str), "x must be a text")


def test_a_user_in_two_text_files_is_rejected(put):
    paths = [put("train", name, {"a": {"x": ["p"], "y": [0]}}) for name in ("1.json", "2.json")]
    with pytest.raises(DataError, match=r"user 'a' occurs twice\. Keep the files of one sampling only"):
        read_split(paths, anything, "")


def test_both_parts_are_required(put):
    with pytest.raises(DataError, match=r"must have the folders train and test with \.json files, it has train only"):
        read_split([put("train", "1.json", {"a": {"x": [], "y": []}})], anything, "")
