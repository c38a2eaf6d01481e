"""LEAF's json with texts."""

from __future__ import annotations

import json

import pytest

from coterie.data.publishers.leaf_text import read_split
from coterie.errors import DataError


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


def test_users_of_several_files_come_in_the_order_of_their_names(put):
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
        ("{", "is not JSON, or not whole"),
        ("[]", "must hold an object with users, a list, and user_data"),
        ('{"users": ["a"]}', "must hold an object with users, a list, and user_data"),
        ('{"users": ["a"], "user_data": {}}', "user 'a': user_data must have lists x and y of one length"),
        ('{"users": [3], "user_data": {}}', "user 3: user_data must have lists x and y of one length"),
        ({"a": {"x": ["p"], "y": []}}, "user 'a': user_data must have lists x and y of one length"),
    ],
)
def test_what_leaf_does_not_write_is_refused(put, content, text):
    with pytest.raises(DataError, match=text):
        read_split([put("train", "1.json", content)], anything, "")


def test_an_example_that_is_not_what_it_should_be_is_named(put):
    path = put("train", "1.json", {"a": {"x": ["p", 3], "y": [0, 1]}})
    with pytest.raises(DataError, match="user 'a', example 1: x must be a text"):
        read_split([path], lambda x, y: isinstance(x, str), "x must be a text")


def test_a_user_in_two_files_is_refused(put):
    paths = [put("train", name, {"a": {"x": ["p"], "y": [0]}}) for name in ("1.json", "2.json")]
    with pytest.raises(DataError, match=r"user 'a' occurs twice\. Keep the files of one sampling only"):
        read_split(paths, anything, "")


def test_both_parts_must_be_there(put):
    with pytest.raises(DataError, match=r"must have the folders train and test with \.json files, it has train only"):
        read_split([put("train", "1.json", {"a": {"x": [], "y": []}})], anything, "")
