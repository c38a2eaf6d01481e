"""Chars74K by writer."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load
from coterie.errors import DataError, SpecError


def test_a_client_has_each_character_once(tiny):
    data = load("chars74k", clients=0)
    assert data.clients == tuple(f"{number:02d}" for number in range(25))
    assert (data.label_counts("fit") + data.label_counts("test") == 1).all()
    assert data.sizes("fit").tolist() == [55] * 25  # floor(0.9·62)
    assert data.truth is None


def test_some_writers_can_be_drawn(tiny):
    assert len(load("chars74k", clients=7).clients) == 7
    with pytest.raises(SpecError, match="clients must be at most 25, the number of writers, got 56"):
        load("chars74k", clients=56)


def test_an_archive_without_writers_is_refused(tiny):
    path = tiny / "data" / "chars74k_hnd.npz"
    held = dict(np.load(path))
    np.savez(path, **held | {"writer": held["writer"][:-1]})
    with pytest.raises(DataError, match="writer must hold a whole number for each image in x"):
        load("chars74k")
    del held["writer"]
    np.savez(path, **held)
    with pytest.raises(DataError, match="has no array 'writer'"):
        load("chars74k")


@pytest.mark.data
def test_the_real_characters_are_of_55_writers(real):
    data = real("chars74k")
    assert len(data.clients) == 55
    assert (data.label_counts("fit") + data.label_counts("test") == 1).all()
    assert "a subset" not in data.source
