"""Entries are read from TOML; a mistake in a file gives a sentence that names the file and what is allowed."""

import pytest

from coterie.errors import SpecError
from coterie.reproduce.loading import entry, parse
from coterie.reproduce.schema import Published


@pytest.mark.parametrize(
    ("text", "value", "deviation", "digits"),
    [
        ("89.8", 89.8, None, 1),
        ("92.03 ± 0.30", 92.03, 0.30, 2),
        ("-0.06 ± 2.47", -0.06, 2.47, 2),
        ("39", 39.0, None, 0),
    ],
)
def test_a_published_value_keeps_its_digits(text, value, deviation, digits):
    assert Published.parse(text) == Published(text, value, deviation, digits)


@pytest.mark.parametrize("text", ["", "about 90", "90 ± ", "90%", "9 0"])
def test_another_text_is_no_published_value(text):
    with pytest.raises(SpecError, match=r'A published value is a text such as "89.8" or "92.03 ± 0.30", got'):
        Published.parse(text)


def test_published_values_belong_to_columns_in_their_order(tiny):
    found = tiny.published()
    assert found["easy", "FedAvg"].text == "50.0"
    assert found["easy", "IFCA"].deviation == 1.5


def test_an_empty_text_is_no_cell_and_a_question_mark_a_cell_without_a_published_value(tiny_text):
    one = parse("tiny", tiny_text.replace('["50.0", "60.0 ± 1.5"]', '["", "?"]'))
    assert [(row.name, column.name) for row, column in one.pairs()] == [("easy", "IFCA")]
    assert one.published() == {}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title =", "titel =", r"tiny\.toml: No key 'titel' in an entry\. Did you mean 'title'\?"),
        ('title = "A small table"', "", r"tiny\.toml: title must be a text, got None"),
        ("seeds = 2", "seeds = 0", r"tiny\.toml: seeds must be a whole number of at least 1, got 0"),
        ('"last_weighted"', '"last_weihgted"', r"No measure 'last_weihgted'\. Did you mean 'last_weighted'\?"),
        ('"last_weighted"', '{ name = "rounds_to" }', r"The measure rounds_to needs target"),
        ('["50.0", "60.0 ± 1.5"]', '["50.0"]', r"published of row 'easy' must be a list of 2 texts, one per column"),
        ('"60.0 ± 1.5"', '"sixty"', r"A published value is a text"),
        ("spec.local", "spec.locla", r"No section of a spec \(in spec of the entry\) 'locla'\. Did you mean 'local'\?"),
        ('columns = ["FedAvg"]', 'columns = ["Fedavg"]', r"No column 'Fedavg'\. Did you mean 'FedAvg'\?"),
        ('note = "Two rounds."', "", r"note must be a text"),
        ('name = "IFCA"', 'name = "FedAvg"', r"There are two columns 'FedAvg'; give each its own name"),
        ('name = "easy"', 'name = "easy"\nparts = ["mnist"]', r"No part 'mnist'"),
        ("[quick]", '[[claims]]\ntext = "x"\nrule = "at_least"\n[quick]', r"the rule 'at_least' needs low"),
        ("[quick]", '[[cells]]\nrow = "hard"\ncolumn = "IFCA"\n[quick]', r"No row 'hard'"),
        ("[quick]", "[quick", r"tiny\.toml is not valid TOML: "),
    ],
)
def test_a_mistake_is_named_with_what_is_allowed(tiny_text, old, new, message):
    assert old in tiny_text
    with pytest.raises(SpecError, match=message):
        parse("tiny", tiny_text.replace(old, new, 1))


def test_an_unknown_entry_is_named_with_the_nearest_one():
    with pytest.raises(SpecError, match=r"No entry 'fedsim-table8'\. Did you mean 'fedsim-table7'\?"):
        entry("fedsim-table8")
