"""Sent140, from the original csv and from LEAF's files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from coterie.data import load
from coterie.errors import DataError, SpecError

FILE = "training.1600000.processed.noemoticon.csv"


def line(polarity, account, text):
    """A line of the published file: six quoted fields, inner quotes doubled, in Latin-1."""
    doubled = text.replace('"', '""')
    return f'"{polarity}","1467810369","Mon Apr 06 22:19:45 PDT 2009","NO_QUERY","{account}","{doubled}"\n'


def published(folders, *rows):
    (folders / "data" / FILE).write_bytes("".join(line(*row) for row in rows).encode("latin-1"))


def tweet(account, text):
    """An example as in LEAF's files: the fields of the csv without the first, and a note."""
    return ["1467810369", "Mon Apr 06 22:19:45 PDT 2009", "NO_QUERY", account, text, "training"]


def leaf(folders, train, test, place="sent140"):
    for part, users in (("train", train), ("test", test)):
        held = {
            "users": list(users),
            "num_samples": [len(pairs) for pairs in users.values()],
            "user_data": {
                user: {"x": [tweet(user, text) for text, _ in pairs], "y": [label for _, label in pairs]}
                for user, pairs in users.items()
            },
        }
        folder = folders / "data" / place / part
        folder.mkdir(parents=True)
        (folder / f"all_data_niid_3_keep_30_{part}_8.json").write_text(json.dumps(held))


def tweets_of(data, client, part="fit"):
    """Ids of a client's tweets without padding, and their labels."""
    rows = data.rows(data.position(client), part)
    return [[i for i in row if i] for row in data.x[rows].tolist()], data.y[rows].tolist()


def test_accounts_with_enough_tweets_are_clients_and_polarity_four_is_positive(folders):
    rows = [
        (4, "anna", "good"),
        (0, "bob", "bad"),
        (4, "anna", 'so "good", café'),
        (2, "anna", "bad"),
        (0, "anna", "bad"),
    ]
    published(folders, *rows, (4, "anna", "good"))
    data = load("sent140", clients=1, min_samples=5)
    assert data.clients == ("anna",)
    assert (data.sizes("fit").tolist(), data.sizes("test").tolist()) == ([4], [1])  # 80/20 of five
    # In alphabetical order: "," 1, bad 2, café 3, good 4, so 5.
    pairs = [list(zip(*tweets_of(data, "anna", part), strict=True)) for part in ("fit", "test")]
    assert sorted(pairs[0] + pairs[1]) == sorted([([4], 1), ([5, 4, 1, 3], 1), ([2], 0), ([2], 0), ([4], 1)])


def test_30_percent_of_the_accounts_are_drawn(tiny):
    data = load("sent140")
    assert len(data.clients) == 8  # 0.3·25 = 7.5, rounded half to even
    assert len(load("sent140", clients=25).clients) == 25
    assert data.sizes("fit").tolist() == [24] * 8


def test_inputs_are_vectors_of_25_words(tiny):
    data = load("sent140", clients=2)
    assert data.shape == (25, 300)
    assert data.ids is None
    x, _ = data.examples(data.clients[0])
    assert (x.dtype, x.shape) == (np.float32, (24, 25, 300))
    stored = data.x[data.rows(0)]
    np.testing.assert_array_equal(x, data.table[stored])
    assert not stored[:, 5:].any()  # "café time, yay!" has five words and marks, "so sad today" three
    assert not load("sent140", clients=2, padding="before").x[:, :20].any()


def test_the_source_names_the_word_vectors(tiny, caplog):
    data = load("sent140", clients=2)
    assert data.source == (
        f"Sentiment140 (Go et al. 2009), from {FILE}; words as random vectors by hash,"
        " since glove.6B.300d.txt is not available"
    )
    assert "glove.6B.300d.txt is not available" in caplog.text


@pytest.mark.parametrize("place", ["sent140", "sent140/data"])
@pytest.mark.parametrize(("yes", "no"), [(1, 0), ("4", "0")], ids=["LEAF", "FedProx"])
def test_leafs_files_are_read_with_their_split(folders, place, yes, no):
    leaf(
        folders,
        {"bob": [("b a", yes), ("a", no)], "anna": [("c", no)]},
        {"bob": [("c", yes)], "anna": [("a", no)]},
        place,
    )
    data = load("sent140")
    assert data.clients == ("anna", "bob")
    assert tweets_of(data, "bob") == ([[2, 1], [1]], [1, 0])
    assert tweets_of(data, "bob", "test") == ([[3]], [1])
    assert tweets_of(data, "anna", "test") == ([[1]], [0])
    assert load("sent140", clients=1).clients in (("anna",), ("bob",))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (line(5, "anna", "hm"), "line 1: Each line must be"),
        (line(4, "anna", "hm") + '"4","anna"\n', "line 2: Each line must be"),
        ("target,ids,date,flag,user,text\n", "line 1: Each line must be"),
    ],
)
def test_the_error_names_the_line_in_another_format(folders, content, text):
    (folders / "data" / FILE).write_text(content)
    with pytest.raises(DataError, match=text):
        load("sent140")


def test_a_minimum_that_no_account_reaches_is_rejected(tiny):
    with pytest.raises(DataError, match=r"has no account with 31 tweets\. Set min_samples to a smaller number"):
        load("sent140", min_samples=31)


def test_invalid_settings_are_rejected(tiny):
    with pytest.raises(SpecError, match="clients must be at most 25, the number of accounts, got 26"):
        load("sent140", clients=26)
    with pytest.raises(SpecError, match=r"No vectors 'w2v'\. Known: auto, glove, hashed"):
        load("sent140", vectors="w2v")


def test_the_error_for_missing_files_says_where_to_put_and_how_to_make_them(folders):
    with pytest.raises(DataError) as caught:
        load("sent140")
    for part in ("train/*.json and test/*.json", str(folders / "data" / "sent140"), "preprocess.sh", FILE):
        assert part in str(caught.value)
    assert caught.value.exit_code == 3
