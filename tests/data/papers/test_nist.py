"""FEMNIST-200, without and with the published script's leak."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load
from coterie.errors import DataError, SpecError


def test_a_client_has_as_many_of_each_of_five_neighbouring_letters(tiny):
    held = np.load(tiny / "data" / "femnist.npz")
    data = load("femnist-200", clients=8)
    counts = data.label_counts("fit") + data.label_counts("test")
    for u, own in enumerate(counts):
        assert np.flatnonzero(own).tolist() == sorted((u + j) % 10 for j in range(5))
        assert len(set(own[own > 0])) == 1
        assert own.max() >= 2
    used = np.concatenate([data.fit.order, data.test.order])
    # Labels 36 to 45 of FEMNIST are the letters a to j, here 0 to 9.
    np.testing.assert_array_equal(data.y[used], held["y"][used].astype(int) - 36)


def test_without_the_leak_no_image_serves_two_clients_while_there_are_others(tiny):
    data = load("femnist-200", clients=8)
    used = np.concatenate([data.fit.order, data.test.order])
    assert len(np.unique(used)) == len(used)


def test_with_the_leak_every_client_has_the_first_images_and_some_are_trained_on_and_tested_on(tiny):
    data = load("femnist-200", clients=20, compat_prefix=True)
    own = [set(data.rows(i)) | set(data.rows(i, "test")) for i in range(20)]
    # Clients 0 and 10 own the letters a to e: the smaller one's images are all among the larger one's.
    few, many = sorted((own[0], own[10]), key=len)
    assert few <= many
    assert set(data.fit.order) & set(data.test.order)
    assert data.fit.sizes().tolist() == load("femnist-200", clients=20).fit.sizes().tolist()


def test_the_pool_of_a_letter_is_in_random_order_and_holds_4000_at_most(tiny):
    path = tiny / "data" / "femnist.npz"
    y = np.concatenate([np.full(4100, 36), np.repeat(np.arange(37, 46), 300)]).astype(np.uint8)
    np.savez(path, x=np.zeros((len(y), 28, 28), np.uint8), y=y, writer=np.zeros(len(y), int))
    # One client of one letter at a time takes them in turn: 600 clients want more than there are.
    data = load("femnist-200", clients=600, per_client=1, test_share=0)
    of_a = data.fit.order[data.y[data.fit.order] == 0]
    assert len(np.unique(of_a)) == 4000
    assert of_a[:100].tolist() != sorted(of_a[:100])


def test_models_can_have_the_outputs_of_fedgroup_and_fedsim(tiny):
    assert load("femnist-200", clients=8).classes == 10
    assert load("femnist-200", clients=8, classes=26).classes == 26
    with pytest.raises(SpecError, match="classes must be at least 10, got 9"):
        load("femnist-200", classes=9)


def test_a_letter_that_is_missing_is_named(tiny):
    path = tiny / "data" / "femnist.npz"
    held = np.load(path)
    kept = held["y"] != 45
    np.savez(path, **{name: array[kept] for name, array in held.items()})
    with pytest.raises(DataError, match="There is no letter 'j' in LEAF FEMNIST"):
        load("femnist-200", clients=8)
