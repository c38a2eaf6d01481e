"""Fed-MEx from the archive with its test part; for the published files see test_either_source.py."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load
from coterie.data.formats.npz import read_testpart
from coterie.errors import DataError, SpecError


def test_the_test_part_alone_is_split_as_the_source_says(tiny):
    data = load("fed-mex")
    assert data.clients == tuple(f"f_{number:02d}" for number in range(1, 31))
    assert data.sizes("fit").tolist() == [6] * 30  # floor(0.8·8)
    assert sorted([*data.rows(3), *data.rows(3, "test")]) == list(range(24, 32))
    assert "a subset: 0 of 934 training and 240 of 250 test images, from fed_mex_testpart.npz" in data.source
    assert (data.shape, data.classes, data.normalize, data.truth) == ((5, 16, 16), 7, None, None)


def test_people_can_be_drawn(tiny):
    assert len(load("fed-mex", clients=4).clients) == 4
    with pytest.raises(SpecError, match="clients must be at most 30, the number of people, got 31"):
        load("fed-mex", clients=31)


GOOD = {"x": np.zeros((4, 5, 16, 16), np.float32), "y": np.zeros(4, int), "offsets": np.array([0, 1, 4])}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"x": np.zeros((4, 5, 16, 16), int)}, "x must hold a row of numbers for each example"),
        ({"y": np.full(4, 2**32)}, "y must hold 32-bit integers"),
        ({"offsets": np.array([0, 3, 1, 4], np.uint8)}, "offsets must be increasing integers"),
        ({"y": np.zeros(3, int)}, "y must hold an integer for each example in x"),
        ({"offsets": np.array([0, 5, 4])}, "offsets must be increasing integers"),
        ({"offsets": np.array([0, 1, 3])}, "offsets must go from 0 to 4, the number of examples"),
        ({"offsets": None}, "has no array 'offsets'"),
    ],
)
def test_an_archive_of_another_layout_is_rejected(tmp_path, changes, text):
    path = tmp_path / "fed_mex_testpart.npz"
    np.savez(path, **{name: array for name, array in (GOOD | changes).items() if array is not None})
    with pytest.raises(DataError, match=text) as caught:
        read_testpart([path])
    assert str(path) in str(caught.value)


@pytest.mark.data
def test_the_real_test_part_has_at_most_two_exercises_per_person(real):
    data = real("fed-mex")
    held = data.label_counts("fit") + data.label_counts("test")
    assert held.sum() in (250, 1184)
    assert (held.astype(bool).sum(axis=1) <= 2).all()
