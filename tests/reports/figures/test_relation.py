"""Relations between numbers, and between the distances of two runs."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install 'coterie[figures]'")

from coterie.errors import RecordError, SpecError
from coterie.reports import distance_relation, relation, sweep

CLIENTS = ["a", "b", "c"]
ANSWERS = [{"a": (0, 5), "b": (0, 7), "c": (0, 6)}]


def square(ab, ac, bc):
    return np.array([[0, ab, ac], [ab, 0, bc], [ac, bc, 0.0]])


def test_points_on_a_line_have_the_correlation_one_and_lie_on_the_fit():
    ax = relation([0, 1, 2], [1, 3, 5], xlabel="PNI", ylabel="gain")
    dots, fit = ax.lines
    np.testing.assert_allclose(dots.get_xydata(), [[0, 1], [1, 3], [2, 5]])
    np.testing.assert_allclose(fit.get_xydata(), [[0, 1], [2, 5]])
    assert ax.texts[0].get_text() == "$r = 1.000$"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("PNI", "gain")


def test_of_matrices_each_pair_of_clients_is_one_point():
    ax = relation(square(1, 2, 3), square(4, 5, 6), fit=False)
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[1, 4], [2, 5], [3, 6]])
    assert len(ax.lines) == 1


def test_names_are_written_beside_their_points():
    ax = relation([1, 2], [1, 1], names=["mnist", "a$b"])
    assert [text.get_text() for text in ax.texts] == ["mnist", "a\\$b"]  # no fit: all y are equal


@pytest.mark.parametrize(
    ("x", "y", "names", "message"),
    [
        ([1, 2], [1], (), "x and y must have the same number of points, got 2 and 1"),
        ([1, 2], [1, 2], ["one"], "one name per point: 2 points, 1 names"),
        ([1, float("nan")], [1, 2], (), "x contains NaN or infinity"),
        (np.zeros((2, 3)), [1, 2], (), r"x must be one number per point or a square matrix, got .* \(2, 3\)"),
    ],
)
def test_points_that_do_not_fit_are_refused(x, y, names, message):
    with pytest.raises(SpecError, match=message):
        relation(x, y, names=names)


def fedgroup(write, name, clients, distances):
    evidence = {0: {"clients": clients, "distances": distances, "labels": np.zeros(len(clients), np.int64)}}
    return write(ANSWERS, name=name, spec={"method": {"name": "fedgroup", "measure": "madc"}}, evidence=evidence)


def test_the_same_pairs_of_two_runs_are_compared(write):
    # The second run has its clients in another order: c, b, a.
    first = fedgroup(write, "first", CLIENTS, square(1, 2, 3))
    second = fedgroup(write, "second", CLIENTS[::-1], square(60, 50, 40))  # c-b, c-a, b-a
    ax = distance_relation([first, second])
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[1, 40], [2, 50], [3, 60]])
    assert ax.get_xlabel() == "MADC of updates"


def test_runs_without_common_clients_are_refused(write):
    first = fedgroup(write, "first", CLIENTS, square(1, 2, 3))
    other = fedgroup(write, "other", ["a", "x", "y"], square(1, 2, 3))
    with pytest.raises(RecordError, match="distances of 1 common clients; at least 3 are needed"):
        distance_relation([first, other])
    with pytest.raises(SpecError, match="needs two runs, got 1"):
        distance_relation(first)


def test_a_sweep_has_one_line_per_series_and_bands_where_deviations_are_given():
    ax = sweep([0, 1], {"β = 0": [1, 2], "β = 1": [3, 5]}, deviations={"β = 1": [0.5, 1]}, xlabel="α", ylabel="PNI")
    assert [line.get_xydata().tolist() for line in ax.lines] == [[[0, 1], [1, 2]], [[0, 3], [1, 5]]]
    (band,) = ax.collections
    extents = band.get_paths()[0].get_extents()
    assert (extents.y0, extents.y1) == (2.5, 6)
    with pytest.raises(SpecError, match="Series 'β = 0' must have 2 values"):
        sweep([0, 1], {"β = 0": [1, 2, 3]})
