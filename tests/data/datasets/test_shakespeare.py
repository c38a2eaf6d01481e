"""Shakespeare by role, from our archive and from LEAF's files."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from coterie.data import load
from coterie.data.formats.text import CHARACTERS
from coterie.errors import DataError, SpecError


def spelled(ids):
    return "".join(CHARACTERS[i] for i in ids)


def archive(folders, **roles):
    content = {name: {"play": "P", "speaker": name, "lines": lines} for name, lines in roles.items()}
    with gzip.open(folders / "data" / "shakespeare.json.gz", "wt") as stream:
        json.dump(content, stream)


def leaf(folders, train, test, place="shakespeare"):
    """Files as LEAF's preprocess.sh writes them."""
    for part, users in (("train", train), ("test", test)):
        content = {
            "users": list(users),
            "hierarchies": ["P"] * len(users),
            "num_samples": [len(text) - 80 for text in users.values()],
            "user_data": {
                user: {"x": [text[i : i + 80] for i in range(len(text) - 80)], "y": list(text[80:])}
                for user, text in users.items()
            },
        }
        folder = folders / "data" / place / part
        folder.mkdir(parents=True)
        (folder / f"all_data_niid_0_keep_0_{part}_8.json").write_text(json.dumps(content))


def test_the_input_is_the_80_characters_before_the_label(folders):
    archive(folders, B=["x" * 150, "y" * 349], A=["Now is the winter of our discontent"] * 20)
    data = load("shakespeare", clients=0)
    assert data.clients == ("A", "B")
    x, y = data.examples("A")
    assert (spelled(x[0]), spelled(y[:3])) == (" " * 80, "Now")
    assert spelled(x[5]) == " " * 75 + "Now i"
    x, y = data.examples("B")
    # 150 x, a line break, 349 y: of 500 characters the first 400 are for training.
    assert len(y) == 400
    assert spelled(y[148:153]) == "xx\nyy"
    assert spelled(x[152]) == "x" * 78 + "\ny"


def test_test_inputs_do_not_overlap_with_training_labels(folders):
    archive(folders, A=["".join(CHARACTERS[53 + i % 26] for i in range(500))])
    data = load("shakespeare", clients=1)
    x, y = data.examples("A", "test")
    # Characters 0..399 are labels for training, 400..478 are left out, and 479 has 399..478 before it.
    assert len(y) == 500 - 479
    assert spelled(y[:2]) == spelled([53 + 479 % 26, 53 + 480 % 26])
    assert x[0].tolist() == [53 + i % 26 for i in range(399, 479)]


def test_a_short_role_has_no_test_examples(folders):
    archive(folders, A=["a" * 500], B=["b" * 90])
    data = load("shakespeare", clients=0)
    assert data.sizes("fit").tolist() == [400, 72]
    assert data.sizes("test").tolist() == [21, 0]


def test_inputs_are_token_ids_stored_as_bytes(tiny):
    data = load("shakespeare", clients=3)
    assert (data.x.dtype, data.shape, data.classes, data.tokens, data.ids) == (np.uint8, (80,), 80, 80, 80)
    assert data.source == "Shakespeare's plays by role, from shakespeare.json.gz"
    assert data.truth is None


def test_the_number_of_examples_can_be_limited(tiny):
    data = load("shakespeare", clients=2, max_samples=40)
    assert data.sizes("fit").tolist() == [40, 40]
    assert data.sizes("test").tolist() == [10, 10]
    whole = load("shakespeare", clients=2)
    assert whole.examples(data.clients[0])[0][:40].tolist() == data.examples(data.clients[0])[0].tolist()


@pytest.mark.parametrize("place", ["shakespeare", "shakespeare/data"])
def test_leafs_files_are_read_with_their_split(folders, place):
    long = "The quality of mercy is not strain'd, it droppeth as the gentle rain from heaven upon the place"
    leaf(folders, {"P_B": long, "P_A": long[5:]}, {"P_B": long[1:], "P_A": long[9:]}, place)
    data = load("shakespeare", clients=0)
    assert data.clients == ("P_A", "P_B")
    x, y = data.examples("P_B")
    assert (spelled(x[0]), spelled(y)) == (long[:80], long[80:])
    x, y = data.examples("P_A", "test")
    assert (spelled(x[-1]), spelled(y)) == (long[-81:-1], long[89:])
    assert data.source.endswith(
        "from all_data_niid_0_keep_0_train_8.json and all_data_niid_0_keep_0_test_8.json, as published"
    )


def test_leafs_files_in_the_wrong_format_are_rejected(folders):
    leaf(folders, {"P_A": "a" * 90}, {"P_A": "a" * 85})
    path = next((folders / "data" / "shakespeare" / "test").iterdir())
    content = json.loads(path.read_text())
    content["user_data"]["P_A"]["x"][3] = "too short"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="user 'P_A', example 3: x must be 80 characters and y the next one"):
        load("shakespeare", clients=0)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"no archive", "cannot be read: Not a gzipped file"),
        (gzip.compress(b"{", mtime=0), "cannot be read: "),
        (gzip.compress(b"[]", mtime=0), "has no roles"),
        (gzip.compress(b'{"A": {"text": ""}}', mtime=0), "role 'A': has no list of strings called lines"),
    ],
)
def test_a_damaged_archive_is_rejected(folders, content, text):
    (folders / "data" / "shakespeare.json.gz").write_bytes(content)
    with pytest.raises(DataError, match=text):
        load("shakespeare")


def test_a_single_surrogate_is_an_unknown_character(folders):
    content = json.dumps({"A": {"lines": ["a\ud83d" * 100]}}).encode()
    (folders / "data" / "shakespeare.json.gz").write_bytes(gzip.compress(content, mtime=0))
    data = load("shakespeare", clients=1)
    assert spelled(data.examples("A")[1][:4]) == "a}a}"  # unknown characters get the last id


def test_a_role_name_that_is_not_utf_8_is_rejected(folders):
    content = json.dumps({"A\ud83d": {"lines": ["a" * 200]}}).encode()
    (folders / "data" / "shakespeare.json.gz").write_bytes(gzip.compress(content, mtime=0))
    with pytest.raises(DataError, match="cannot be encoded as UTF-8"):
        load("shakespeare", clients=1)


def test_the_error_for_missing_files_says_where_to_put_and_how_to_make_them(folders):
    with pytest.raises(DataError) as caught:
        load("shakespeare")
    for part in (
        "train/*.json and test/*.json",
        str(folders / "data" / "shakespeare"),
        "preprocess.sh",
        "shakespeare.json.gz",
    ):
        assert part in str(caught.value)
    assert caught.value.exit_code == 3


def test_invalid_settings_are_rejected(tiny):
    with pytest.raises(SpecError, match="clients must be at most 25, the number of roles, got 26"):
        load("shakespeare", clients=26)
    with pytest.raises(SpecError, match="max_samples must be at least 0, got -1"):
        load("shakespeare", max_samples=-1)


@pytest.mark.exhaustive
@pytest.mark.data
def test_real_roles_have_their_text(real):
    data = real("shakespeare", clients=0)
    assert len(data.clients) == 798
    x, y = data.examples("Hamlet__HAMLET")
    text = spelled(y)
    assert "To be, or not to be: that is the question:\nWhether 'tis nobler in the mind to suffer" in text
    assert spelled(x[100]) == text[20:100]
    # One character of 4.1 million, a dollar sign, is not in LEAF's alphabet.
    assert (data.y == 79).sum() <= 1
