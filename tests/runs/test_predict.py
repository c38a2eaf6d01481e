"""Predictions with recorded models."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie import tree
from coterie.errors import RecordError
from coterie.models.library import build
from coterie.runs import predict
from coterie.runs.record import RunRecord
from coterie.seeds import Seed


@pytest.fixture
def reviews(tmp_path, monkeypatch):
    """Sentences of two reviewers, with hashed word vectors."""
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    predict._loaded.cache_clear()
    parts = {"y": np.array([0, 1]), "offsets": np.array([0, 1, 2]), "text": np.array(["The end.", "He dies."])}
    np.savez(
        tmp_path / "fed_goodreads.npz", **{f"{k}_{part}": v for k, v in parts.items() for part in ("train", "test")}
    )
    yield coterie.data.load("goodreads-sentences", vectors="hashed", seed=3)
    predict._loaded.cache_clear()


@pytest.fixture
def record(reviews):
    """`record(**changes)`: a record with two untrained models for `reviews`."""
    task = build("mclr", reviews.shape, 2)
    made = {
        "bank": tree.stack([task.init(Seed(0)), task.init(Seed(1))]),
        "row": {"0": 0, "1": 1},
        "adapted": False,
        "input": predict.described(task),
        "spec": {
            "data": {"name": "goodreads-sentences", "vectors": "hashed", "seed": 3},
            "model": {"name": "mclr", "l2": 0.0, "normalize": "auto"},
        },
    }
    return lambda **changes: RunRecord({}, [], None, {**made, **changes})


def test_word_ids_are_replaced_by_the_vectors_of_the_data(reviews, record):
    ids = np.tile(reviews.x, (400, 1))  # more than one batch
    assert ids.shape[1:] == (40,)
    for client in ("0", "1"):
        wanted = record().predict(reviews.inputs(np.arange(len(reviews.x))), client=client)
        np.testing.assert_array_equal(record().predict(ids, client=client), np.tile(wanted, 400))


def test_ids_without_a_vector_are_rejected(reviews, record):
    with pytest.raises(RecordError, match=rf"word vectors for ids 0 to {reviews.tokens - 1}, got ids from 0 to 999"):
        record().predict(np.array([[0] * 39 + [999]]), client="0")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"name": "unknown data"}, "unknown data cannot be loaded again"),
        ({"name": "/gone/mine.csv"}, "/gone/mine.csv cannot be loaded again"),
        ({"name": "blobs", "clients": 4}, "blobs has no word vectors"),
    ],
)
def test_without_the_data_of_the_run_the_error_says_how_to_compute_vectors(record, data, text):
    changed = record(spec={**record().served["spec"], "data": data})
    hint = r", and the model takes vectors of shape \(rows, 40, 300\); compute them with data\.inputs\(rows\)"
    with pytest.raises(RecordError, match=text + hint):
        changed.predict(np.zeros((2, 40), np.int64), client="0")


def test_other_vectors_than_those_of_the_run_are_rejected(reviews, record):
    ids = np.zeros((2, 40), np.int64)
    assert record(source=reviews.source).predict(ids, client="0").shape == (2,)
    with pytest.raises(
        RecordError, match=r"goodreads-sentences has changed from 'words as vectors of glove' to '.*' since the run"
    ):
        record(source="words as vectors of glove").predict(ids, client="0")


@pytest.mark.parametrize("x", [np.zeros((2, 40), np.float32), np.zeros((2, 41), np.int64), np.zeros((2, 3, 40), int)])
def test_inputs_of_another_shape_are_rejected(record, x):
    with pytest.raises(RecordError, match=r"The model takes inputs of shape \(rows, 40, 300\), got \("):
        record().predict(x, client="0")
