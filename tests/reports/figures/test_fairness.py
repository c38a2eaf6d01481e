"""The distribution of the scores of clients."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install 'coterie[figures]'")

from coterie.reports import fairness

# 60 %, then 85 %
ANSWERS = [{"a": (0, 5), "b": (1, 7)}, {"a": (0, 9), "b": (1, 8)}]
FEDAVG = {"method": {"name": "fedavg"}}


def test_fairness_shows_which_part_of_clients_has_at_most_a_score(write):
    ax = fairness(write([{"a": (0, 9), "b": (0, 3), "c": (0, 5), "d": (0, 5)}]))
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [30, 30, 50, 50, 90])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0, 25, 50, 75, 100])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("accuracy of a client (%)", "clients (%)")


def test_fairness_of_losses_begins_with_the_highest(write):
    # The mean test losses of the two clients are 1 - 3/10 and 1 - 9/10.
    ax = fairness(write([{"a": (0, 9), "b": (0, 3)}], spec={"run": {"primary_metric": "loss"}}))
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [0.7, 0.7, 0.1], rtol=1e-6)
