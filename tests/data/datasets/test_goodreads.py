"""Fed-Goodreads as counts and as sentences, from our archive and from the publishers' files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from coterie.data import load
from coterie.errors import DataError, SpecError

TRAIN = {"u1": ([[0, 2, 1], [1, 0, 0]], ["he dies", "A book"], [1, 0]), "u2": ([[0, 0, 3]], ["the end !"], [1])}
TEST = {"u1": ([[4, 0, 0]], ["A he"], [0]), "u2": ([[0, 1, 0]], ["dies"], [1])}


def archive(folders):
    parts = {}
    for part, users in (("train", TRAIN), ("test", TEST)):
        counts, sentences, labels = ([each for user in users.values() for each in user[i]] for i in range(3))
        parts |= {f"x_{part}": np.array(counts, np.uint8), f"text_{part}": np.array(sentences)}
        sizes = [len(user[2]) for user in users.values()]
        parts |= {f"y_{part}": np.array(labels, np.uint8), f"offsets_{part}": np.cumsum([0, *sizes], dtype=np.int32)}
    np.savez(folders / "data" / "fed_goodreads.npz", **parts)


def publishers(folders):
    """Files as in data/goodreads of FedSim's repository: `data_text` has counts, `data` sentences; no num_samples."""
    for place, field in (("data_text", 0), ("data", 1)):
        for part, users in (("train", TRAIN), ("test", TEST)):
            folder = folders / "data" / "goodreads" / place / part
            folder.mkdir(parents=True)
            data = {user: {"y": own[2], "x": own[field]} for user, own in users.items()}
            (folder / f"{part}.json").write_text(json.dumps({"users": list(users), "user_data": data}))


FORMS = pytest.mark.parametrize(("form", "names"), [(archive, ("0", "1")), (publishers, ("u1", "u2"))])


@FORMS
def test_counts_are_not_normalized(folders, form, names):
    form(folders)
    data = load("goodreads")
    assert data.clients == names
    assert [data.examples(names[0], part)[0].tolist() for part in ("fit", "test")] == [TRAIN["u1"][0], TEST["u1"][0]]
    assert data.examples(names[1])[1].tolist() == [1]
    assert (data.x.dtype, data.normalize, data.tokens, data.classes) == (np.uint8, (0.0, 1.0), None, 2)


@FORMS
def test_sentences_are_40_words(folders, form, names):
    form(folders)
    data = load("goodreads-sentences")
    assert data.clients == names
    assert data.shape == (40, 300)
    # In the order of the alphabet: "!" 1, a 2, book 3, dies 4, end 5, he 6, the 7.
    found = [[i for i in row if i] for row in data.x[data.rows(0)].tolist()]
    assert found == [[6, 4], [2, 3]]
    assert data.x[data.rows(1, "test")][0, :2].tolist() == [4, 0]
    assert data.examples(names[0])[1].tolist() == [1, 0]


def test_reviewers_can_be_drawn(tiny):
    for name in ("goodreads", "goodreads-sentences"):
        data = load(name, clients=3)
        assert len(data.clients) == 3
        assert (data.sizes("fit").tolist(), data.sizes("test").tolist()) == ([4] * 3, [1] * 3)
    with pytest.raises(SpecError, match="clients must be at most 25, the number of reviewers, got 26"):
        load("goodreads", clients=26)


def changed(path, **arrays):
    np.savez(path, **{**np.load(path), **arrays})


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"offsets_train": np.array([0, 5, 3])}, "offsets must be integers that increase from 0 to"),
        ({"y_test": np.zeros(7, np.uint8)}, "y must hold 0 or 1 for each of the"),
        ({"offsets_test": np.array([0, 2])}, "different numbers of reviewers"),
    ],
)
def test_an_archive_with_mismatched_arrays_is_rejected(folders, arrays, text):
    archive(folders)
    changed(folders / "data" / "fed_goodreads.npz", **arrays)
    with pytest.raises(DataError, match=text):
        load("goodreads")


@pytest.mark.parametrize(
    ("name", "place", "x", "text"),
    [
        ("goodreads", "data_text", ["words"], "x must be a row of counts and y 0 or 1"),
        ("goodreads", "data_text", [[1]], "rows of counts differ in length"),
        ("goodreads-sentences", "data", [[1, 2]], "x must be a sentence and y 0 or 1"),
    ],
)
def test_publishers_files_in_the_wrong_format_are_rejected(folders, name, place, x, text):
    publishers(folders)
    path = folders / "data" / "goodreads" / place / "train" / "train.json"
    held = json.loads(path.read_text())
    held["user_data"]["u2"]["x"] = x
    path.write_text(json.dumps(held))
    with pytest.raises(DataError, match=text):
        load(name)


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        (
            "goodreads",
            {"x_train": np.array(1, np.uint8)},
            "x must hold rows of counts, unsigned integers, got uint8",
        ),
        ("goodreads", {"y_test": np.array(["spoiler"] * 25)}, "y must hold 0 or 1 for each of the 25 examples"),
        ("goodreads", {"y_test": np.full(25, 2**32)}, "y must hold 0 or 1 for each of the 25 examples"),
        ("goodreads", {"offsets_test": np.array(25)}, "offsets must be integers that increase from 0 to 25"),
        ("goodreads", {"offsets_test": np.array([0, 9, 3, 25], np.uint8)}, "offsets must be integers that increase"),
        ("goodreads-sentences", {"text_train": np.array("He dies.")}, "text must hold a sentence for each example"),
    ],
)
def test_an_archive_in_the_wrong_format_is_rejected_and_named(tiny, name, change, text):
    path = tiny / "data" / "fed_goodreads.npz"
    np.savez(path, **{**np.load(path), **change})
    with pytest.raises(DataError, match=text) as caught:
        load(name)
    assert str(path) in str(caught.value)


def test_the_error_for_missing_files_says_where_to_get_and_put_them(folders):
    with pytest.raises(DataError) as caught:
        load("goodreads-sentences")
    for part in ("fed_goodreads.npz", str(folders / "data" / "goodreads"), "github.com/chamathpali/FedSim"):
        assert part in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.data
def test_real_reviewers_have_few_sentences(real):
    counts, sentences = real("goodreads"), real("goodreads-sentences", vectors="hashed")
    assert counts.shape == (2517,)
    for data in (counts, sentences):
        assert (len(data.clients), len(data.fit.order), len(data.test.order)) == (100, 355, 130)
        assert set(data.sizes("fit")) <= set(range(1, 7))
    np.testing.assert_array_equal(counts.y, sentences.y)
