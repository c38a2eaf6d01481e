"""Default normalization of inputs."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import from_arrays
from coterie.data.description import described
from coterie.runs.resolve import normalization


@pytest.mark.parametrize(
    ("numbers", "scaled"),
    [
        ([-8, -2, -4, -1], [-1, -0.25, -0.5, -0.125]),  # divided by 8, the largest magnitude; signs stay
        ([-8, 2, 4, 1], [-1, 0.25, 0.5, 0.125]),
        ([0, 2, 4, 1], [0, 0.5, 1, 0.25]),
        ([0, 0, 0, 0], [0, 0, 0, 0]),
    ],
)
@pytest.mark.parametrize("rule", ["auto", "unit"])
def test_whole_numbers_are_divided_by_the_largest_magnitude(rule, numbers, scaled):
    x = np.array(numbers)[:, None]
    data = from_arrays({"a": (x, np.zeros(4, int))}, test_share=0)
    scale = normalization(rule, described(data))
    np.testing.assert_allclose(np.asarray(scale(x.astype(np.float32))).ravel(), scaled)
