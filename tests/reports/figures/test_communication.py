"""Bars of traffic, with scores."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install 'coterie[figures]'")

from coterie.errors import SpecError
from coterie.reports import communication

# 60 %, then 85 %
ANSWERS = [{"a": (0, 5), "b": (1, 7)}, {"a": (0, 9), "b": (1, 8)}]
FEDAVG = {"method": {"name": "fedavg"}}


def test_bars_of_traffic_are_bytes_down_and_up_with_the_score_behind_them(write):
    ax = communication([write(ANSWERS, name="a"), write(ANSWERS[:1], name="b", spec=FEDAVG)])
    down, up = ax.containers
    # 100 bytes down and 50 up in each of two rounds, and of one
    np.testing.assert_allclose([bar.get_width() for bar in down], [200e-6, 100e-6])
    np.testing.assert_allclose([bar.get_width() for bar in up], [100e-6, 50e-6])
    np.testing.assert_allclose([bar.get_x() for bar in up], [200e-6, 100e-6])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["ifca", "fedavg"]
    # the mean of the last ten rounds: (60 + 85) / 2
    assert [text.get_text() for text in ax.texts] == ["72.5 %", "60.0 %"]


def test_bars_of_traffic_by_purpose_leave_out_evaluation(write):
    purposes = {"train": {"down": 3, "up": 1}, "pretrain": {"down": 5, "up": 5}, "evaluate": {"down": 9, "up": 9}}
    ax = communication(write(ANSWERS, summary={"traffic": {"by_purpose": purposes}}), by="purpose")
    widths = {bars.get_label(): bars[0].get_width() for bars in ax.containers}
    assert widths == pytest.approx({"pretrain": 10e-6, "train": 4e-6})
    with pytest.raises(SpecError, match=r"No split 'purposes'. Did you mean 'purpose'?"):
        communication(write(ANSWERS, name="other"), by="purposes")
