"""The discrepancy over rounds, of one method with its score."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install 'coterie[figures]'")

from coterie.reports import discrepancy

# 60 %, then 85 %
ANSWERS = [{"a": (0, 5), "b": (1, 7)}, {"a": (0, 9), "b": (1, 8)}]
FEDAVG = {"method": {"name": "fedavg"}}


def test_discrepancy_of_one_method_has_its_score_on_the_left_axis(write):
    ax = discrepancy(write(ANSWERS, lines=[{"discrepancy": 0.5}, {"discrepancy": 0.25}]))
    left, right = ax.figure.axes
    assert left is ax
    np.testing.assert_allclose(left.lines[0].get_xydata(), [[1, 60], [2, 85]])
    np.testing.assert_allclose(right.lines[0].get_xydata(), [[1, 0.5], [2, 0.25]])
    assert (left.get_ylabel(), right.get_ylabel()) == ("test accuracy (%)", "discrepancy")


def test_discrepancy_of_several_methods_is_one_line_each(write):
    ax = discrepancy([write(ANSWERS, name="a"), write(ANSWERS, name="b", spec=FEDAVG)])
    assert ax.figure.axes == [ax]
    assert [line.get_label() for line in ax.lines] == ["ifca", "fedavg"]
    np.testing.assert_allclose(ax.lines[1].get_ydata(), [0.1, 0.1])
