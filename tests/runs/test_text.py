"""Runs on text: default model, normalization, and what the record says."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

import coterie
from coterie.errors import SpecError

RUN = {"local": {"steps": 2}, "run": {"rounds": 1, "clients_per_round": 2}}


@pytest.fixture(autouse=True)
def texts(tmp_path, monkeypatch):
    """Two roles and two reviewers."""
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with gzip.open(tmp_path / "shakespeare.json.gz", "wt") as stream:
        json.dump({name: {"lines": ["a rose is a rose "] * 6} for name in ("A", "B")}, stream)
    parts = {"y": np.array([0, 1]), "offsets": np.array([0, 1, 2]), "text": np.array(["The end.", "He dies."])}
    np.savez(
        tmp_path / "fed_goodreads.npz", **{f"{k}_{part}": v for k, v in parts.items() for part in ("train", "test")}
    )


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_default_model_for_characters_is_a_character_lstm():
    data = {"name": "shakespeare", "clients": 0, "max_samples": 12}
    record = coterie.run({**RUN, "data": data, "model": {"name": "auto"}})
    assert record.summary["model"] == "char-lstm"
    assert record.summary["parameters"] == 819_920
    # One model down and one up for each of two clients, 4 bytes per parameter.
    by_purpose = record.summary["traffic"]["by_purpose"]["train"]
    assert by_purpose == {"down": 2 * 4 * 819_920, "up": 2 * 4 * 819_920}
    ids = np.zeros((3, 80), np.uint8)
    assert record.predict(ids, client="A").shape == (3,)


@pytest.mark.slow
def test_the_record_names_the_word_vectors_and_no_vectors_are_sent(caplog):
    record = coterie.run({**RUN, "data": "goodreads-sentences", "model": "rnn"})
    assert "glove.6B.300d.txt is not available: words have random vectors instead" in caplog.text
    assert record.summary["source"].endswith(
        "words as random vectors by hash, since glove.6B.300d.txt is not available"
    )
    assert record.summary["traffic"]["by_purpose"]["train"]["up"] == 2 * 4 * 55_041
    assert record.predict(np.zeros((3, 40, 300), np.float32), client="0").shape == (3,)
    assert record.predict(np.zeros((3, 40), np.uint8), client="0").shape == (3,)  # ids are looked up


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"data": "shakespeare", "model": "mclr"}, "Model mclr takes numbers, but the inputs are ids of 80 tokens"),
        (
            {"data": "goodreads-sentences", "model": {"name": "rnn", "normalize": "unit"}},
            "model.normalize must be 'auto' or 'none' for goodreads-sentences, which has token ids, got 'unit'",
        ),
        ({"data": "goodreads-sentences", "model": "char-lstm"}, "char-lstm takes sequences of character ids"),
    ],
)
def test_models_and_settings_that_do_not_fit_text_are_rejected(spec, text):
    spec = {**RUN, **spec}
    if spec["data"] == "shakespeare":
        spec["data"] = {"name": "shakespeare", "clients": 0}
    with pytest.raises(SpecError, match=text):
        coterie.run(spec)
