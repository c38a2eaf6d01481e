"""Scores while data change, and what methods noticed."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install 'coterie[figures]'")

from coterie.errors import RecordError
from coterie.reports import drift, drift_outcomes

# 60 %, then 85 %
ANSWERS = [{"a": (0, 5), "b": (1, 7)}, {"a": (0, 9), "b": (1, 8)}]
FEDAVG = {"method": {"name": "fedavg"}}


SHIFTING = {"shift": {"name": "swap_all"}}
FIGURES = {"detected": 3, "missed": 1, "false_alarms": 2, "migrations": 4, "migrations_correct": 4}


def test_drift_has_a_strip_with_the_number_of_clients_whose_data_changed(write):
    # Nothing changes before the first round; in the second both clients change.
    ax = drift(write(ANSWERS, spec=SHIFTING, lines=[{}, {"shifted": ["a", "b"]}]))
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[1, 60], [2, 85]])
    (strip,) = ax.child_axes
    assert [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in strip.patches] == [(2, 2)]
    # The strip ends below the lowest point of the lines.
    low, high = ax.get_ylim()
    assert low + 0.16 * (high - low) < 60


def test_drift_without_shifted_data_says_what_to_do(write):
    for draw in (drift, drift_outcomes):
        with pytest.raises(
            RecordError, match=r"The data of no client changed .*; run it with drift, such as --set shift"
        ):
            draw(write(ANSWERS, name=draw.__name__))


def test_outcomes_leave_out_methods_that_do_not_react(write):
    lines = [{"shifted": ["a"]}, {}]
    runs = [
        write(ANSWERS, name="a", spec=SHIFTING, lines=lines, summary={"drift": FIGURES}),
        write(ANSWERS, name="b", spec={**SHIFTING, **FEDAVG}, lines=lines, summary={"drift": {"missed": 4}}),
    ]
    ax = drift_outcomes(runs)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["ifca"]
    found = {bars.get_label(): bars[0].get_width() for bars in ax.containers}
    # Wrong migrations are not known.
    assert found == {"detected": 3, "missed": 1, "false alarms": 2, "moved correctly": 4, "moved wrongly": 0}
