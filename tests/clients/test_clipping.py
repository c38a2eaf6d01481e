"""Clipping of updates to a maximum L2 norm."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from coterie import tree
from coterie.clients.clipping import clipped_models, clipped_updates


def bank(*rows):
    """Models with the parameters (a, b) in two layers."""
    table = np.array(rows, np.float32)
    return {"one": {"a": table[:, :1]}, "two": {"b": table[:, 1]}}


def test_an_update_is_shortened_to_the_maximum_norm_over_all_layers_together():
    # The update (3, 4) has norm 5: scaled by 2/5 to (1.2, 1.6).
    starts, models = bank((1, 1)), bank((4, 5))
    updates = clipped_updates(models, starts, 2.0)
    np.testing.assert_allclose(tree.flatten(tree.row(updates, 0)), [1.2, 1.6], rtol=1e-15)
    clipped = clipped_models(models, starts, 2.0)
    np.testing.assert_allclose(tree.flatten(tree.row(clipped, 0)), [2.2, 2.6], rtol=1e-7)
    assert tree.leaves(clipped)[0].dtype == np.float32


def test_gradients_are_clipped_around_zero():
    clipped = clipped_models(bank((3, 4), (0.3, 0.4)), None, 1.0)
    np.testing.assert_allclose(tree.flatten_rows(clipped), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-7)


def test_a_model_within_the_norm_is_unchanged_to_the_bit_beside_one_that_is_not():
    starts, models = bank((0.1, 0.7), (0, 0)), bank((0.3, 0.9), (30, 40))
    clipped = clipped_models(models, starts, 1.0)
    assert tree.same(tree.row(clipped, 0), tree.row(models, 0))
    np.testing.assert_allclose(tree.flatten(tree.row(clipped, 1)), [0.6, 0.8], rtol=1e-7)


def test_a_model_that_is_not_finite_stays_not_finite_so_that_the_server_rejects_it():
    models = bank((np.nan, 1), (np.inf, 1), (3, 4))
    clipped = tree.flatten_rows(clipped_models(models, None, 1.0))
    assert not np.isfinite(clipped[:2]).all(axis=1).any()
    np.testing.assert_allclose(clipped[2], [0.6, 0.8], rtol=1e-7)


_NUMBERS = st.floats(-1e6, 1e6, width=32)


@given(
    pairs=arrays.arrays(np.float32, (4, 2, 3), elements=_NUMBERS),
    norm=st.floats(1e-3, 1e6),
)
def test_no_clipped_update_is_longer_than_the_norm_and_its_direction_is_kept(pairs, norm):
    models, starts = {"w": pairs[:, 0]}, {"w": pairs[:, 1]}
    updates = clipped_updates(models, starts, norm)["w"]
    assert (np.linalg.norm(updates, axis=1) <= norm * (1 + 1e-12)).all()
    whole = pairs[:, 0].astype(np.float64) - pairs[:, 1]
    lengths = np.linalg.norm(whole, axis=1)
    factor = np.minimum(1, norm / np.where(lengths > 0, lengths, 1))
    np.testing.assert_allclose(updates, whole * factor[:, None], rtol=1e-12)
