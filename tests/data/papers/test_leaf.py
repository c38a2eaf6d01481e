"""FEMNIST by writer."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load
from coterie.errors import SpecError


def test_a_client_has_all_that_its_writer_wrote_split_nine_to_one(tiny):
    held = np.load(tiny / "data" / "femnist.npz")
    data = load("femnist", clients=5)
    assert len(data.clients) == 5
    assert data.classes == 62
    for position, client in enumerate(data.clients):
        mine = np.flatnonzero(held["writer"] == int(client))  # 62 + 80 of them: 127 = floor(0.9·142) for training
        assert sorted([*data.rows(position), *data.rows(position, "test")]) == mine.tolist()
        assert len(mine) == 142
    assert data.sizes("fit").tolist() == [127] * 5
    assert data.truth is None


def test_pixels_are_used_from_nought_to_one(tiny):
    assert load("femnist", clients=2).normalize == (0.0, 255.0)


def test_a_seed_draws_the_writers_and_all_can_be_had(tiny):
    assert load("femnist", clients=5, seed=1).clients != load("femnist", clients=5, seed=2).clients
    assert load("femnist", clients=0).clients == tuple(f"{number:02d}" for number in range(25))
    with pytest.raises(SpecError, match="clients must be at most 25, the number of writers, got 50"):
        load("femnist")
