"""The search space, as a mapping and as the command line gives it."""

from __future__ import annotations

import pytest

from coterie.errors import SpecError
from coterie.runs.spec import Spec
from coterie.runs.tuning import Choices, Range, search_space
from coterie.runs.tuning.search_space import check_space


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("1e-3..1e-1:log", Range(0.001, 0.1, log=True)),
        ("2..8", Range(2, 8)),
        (" 0.5 .. 1 ", Range(0.5, 1)),
        ("-1..1", Range(-1, 1)),
        ((2, 8), Range(2, 8)),
        ((1e-3, 1e-1, "log"), Range(0.001, 0.1, log=True)),
        ("mclr,mlp", Choices(("mclr", "mlp"))),
        ("1, 2.5, true", Choices((1, 2.5, True))),
        (["sgd", "adam"], Choices(("sgd", "adam"))),
    ],
)
def test_values_are_ranges_or_choices(values, expected):
    assert search_space({"local.a": values}) == {"local.a": expected}
    if isinstance(values, str):
        assert search_space([f"local.a={values}"]) == {"local.a": expected}


def test_a_range_is_of_whole_numbers_if_both_bounds_are():
    assert Range(2, 8).whole
    assert not Range(0.5, 1).whole


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({}, "There is nothing to search"),
        (["local.a"], "--over takes section.key=VALUES, such as 1e-3..1e-1:log, 2..8 or mclr,mlp, got 'local.a'"),
        (["clusters=2..4"], "--over takes .*Did you mean method.clusters=2..4?"),
        (["local.a=1..2", "local.a=1..2"], "local.a is given twice; give all of its values at once"),
        ({"local.a": "8..2"}, "The lower bound of local.a must be below the upper bound, got 8..2"),
        ({"local.a": "0..2:log"}, "A logarithmic range of local.a must begin above 0, got 0"),
        ({"local.a": "a..b"}, "The bounds of local.a must be numbers, got 'a'"),
        ({"local.a": "1..2:lin"}, "A range of local.a has the form LOW..HIGH or LOW..HIGH:log"),
        ({"local.a": "4"}, "local.a needs at least two values to choose from"),
        ({"local.a": (1, 2, 3)}, "The values of local.a must be a text"),
        ({"local.a": [[1], [2]]}, "The choices of local.a must be numbers, texts or true and false"),
        ({"data.clients": "2..4"}, "data.clients cannot be searched: scores on different data cannot be compared"),
        ({"run.seed": "0..4"}, "run.seed cannot be searched"),
        ({"run.primary_metric": "auroc,accuracy"}, "run.primary_metric cannot be searched: it is what trials are"),
    ],
)
def test_a_wrong_search_space_is_an_error(over, message):
    import re

    pattern = ".*".join(map(re.escape, message.split(".*")))
    with pytest.raises(SpecError, match=f"^{pattern}"):
        search_space(over)


def test_all_combinations_of_the_ends_are_checked():
    spec = Spec.from_dict({"method": "ifca"})
    check_space(spec, search_space({"method.name": "ifca,fesem", "method.clusters": "2..4"}))
    with pytest.raises(SpecError, match="No setting 'clusters' of method fedavg"):
        check_space(spec, search_space({"method.name": "ifca,fedavg", "method.clusters": "2..4"}))
    with pytest.raises(SpecError, match=r"local\.learning_rate must be at least 0, got -1"):
        check_space(spec, search_space({"local.learning_rate": "-1..1"}))
