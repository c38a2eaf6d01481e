"""Characters and words as ids, and word vectors."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data.formats.text import (
    CHARACTERS,
    GLOVE,
    WIDTH,
    characters,
    describe_vectors,
    embedded,
    hashed,
    read_glove,
    words,
)
from coterie.errors import DataError, SpecError

HOW = {"vectors": "hashed", "padding": "after", "seed": 0}


def glove(folder, *known):
    """A file in GloVe's format: per line a word and 300 numbers; all numbers of word k are k + 0.5."""
    lines = [f"{word} " + " ".join([f"{number}.5"] * WIDTH) for number, word in enumerate(known)]
    (folder / GLOVE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / GLOVE


def test_leafs_alphabet_has_80_characters():
    assert len(CHARACTERS) == len(set(CHARACTERS)) == 80
    assert (CHARACTERS[0], CHARACTERS[1], CHARACTERS[11], CHARACTERS[25], CHARACTERS[53]) == ("\n", " ", "0", "A", "a")


def test_an_id_is_the_position_in_the_alphabet_and_unknown_characters_are_the_last():
    assert characters("\n !aZ").tolist() == [0, 1, 2, 53, 50]
    assert [CHARACTERS[i] for i in characters("To be")] == list("To be")
    assert characters("$é€~😀").tolist() == [79] * 5  # -1, the result of a failed search, is the last index in Python
    assert characters("").shape == (0,)
    assert characters("a").dtype == np.uint8


def test_words_are_lower_case_and_marks_are_separate():
    assert words("I'm SO happy!! :) http://t.co") == ["i'm", "so", "happy", "!", "!", "http", "t", ".", "co"]
    assert words("...") == [".", ".", "."]
    assert words("") == []


def test_texts_are_truncated_and_padded_with_zero():
    # In the order of the alphabet a is 1, b is 2, c is 3; "!" is truncated and has no id.
    after = embedded(["b a c", "a", "", "c b a !"], 3, **HOW)
    assert after.x.tolist() == [[2, 1, 3], [1, 0, 0], [0, 0, 0], [3, 2, 1]]
    before = embedded(["b a c", "a"], 3, vectors="hashed", padding="before", seed=0)
    assert before.x.tolist() == [[2, 1, 3], [0, 0, 1]]


def test_the_vector_of_padding_is_zero():
    made = embedded(["a b"], 3, **HOW)
    assert made.table.shape == (3, WIDTH)
    assert made.table.dtype == np.float32
    assert not made.table[0].any()


def test_a_hashed_vector_depends_on_seed_and_word_only():
    one, more = hashed(["b"], 1), hashed(["a", "b", "c"], 1)
    assert one["b"].tolist() == more["b"].tolist()
    assert one["b"].tolist() != hashed(["b"], 2)["b"].tolist()
    assert more["a"].tolist() != more["c"].tolist()
    # Uniform in ±1/2: the mean of 900 numbers has a standard deviation of 1/sqrt(12·900); it stays within six.
    every = np.concatenate(list(more.values()))
    assert abs(every.mean()) < 6 / np.sqrt(12 * 900)
    assert 0.49 < np.abs(every).max() <= 0.5


def test_glove_is_used_if_available(folders, caplog):
    glove(folders / "data", "the", "cat", "sat")
    made = embedded(["the CAT xyzzy"], 4, vectors="auto", padding="after", seed=0)
    # cat comes before the in the alphabet; xyzzy has no vector and is 0, like padding.
    assert made.x.tolist() == [[2, 1, 0, 0]]
    assert made.table[:, 0].tolist() == [0, 1.5, 0.5]
    assert describe_vectors("auto") == describe_vectors("glove") == "words as vectors of glove.6B.300d.txt"
    assert not caplog.records


def test_without_glove_random_vectors_give_a_warning(folders, caplog):
    embedded(["a"], 2, vectors="auto", padding="after", seed=0)
    assert "glove.6B.300d.txt is not available: words have random vectors instead" in caplog.text
    assert describe_vectors("auto") == "words as random vectors by hash, since glove.6B.300d.txt is not available"


def test_requested_hashed_vectors_give_no_warning(folders, caplog):
    glove(folders / "data", "a")
    assert embedded(["a"], 2, **HOW).table[1, 0] != 0.5
    assert describe_vectors("hashed") == "words as random vectors by hash"
    assert not caplog.records


def test_if_glove_is_required_the_error_says_where_to_put_it(folders):
    with pytest.raises(
        DataError, match=r"There is no file glove\.6B\.300d\.txt; looked in .*data and .*projects/glove"
    ):
        embedded(["a"], 2, vectors="glove", padding="after", seed=0)


@pytest.mark.parametrize("line", ["a 1 2 3", "a " + "x " * 300, "a " + "nan " * 300])
def test_the_error_names_the_line_of_a_wrong_file(folders, line):
    path = glove(folders / "data", "the")
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError, match=r"glove\.6B\.300d\.txt, line 2: a word must be followed by 300 numbers"):
        read_glove(path, ["a"])


def test_a_file_with_none_of_the_words_is_rejected(folders):
    with pytest.raises(DataError, match="has no vector for any of the 1 words"):
        read_glove(glove(folders / "data", "the"), ["cat"])


@pytest.mark.parametrize(("setting", "value"), [("vectors", "gloves"), ("padding", "front")])
def test_an_unknown_choice_is_rejected(setting, value):
    with pytest.raises(SpecError, match=f"No {setting} '{value}'"):
        embedded(["a"], 2, **{**HOW, setting: value})
