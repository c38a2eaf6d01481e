"""Next-character prediction on fifty Shakespeare roles."""

from __future__ import annotations

import math

import numpy as np
import pytest

import coterie
from coterie.data import load
from coterie.data.loading import available


@pytest.mark.exhaustive
@pytest.mark.data
def test_the_model_beats_predicting_the_most_frequent_character():
    if not available("shakespeare"):
        pytest.skip("shakespeare.json.gz is not in the folder that COTERIE_DATA names")
    few = {"name": "shakespeare", "clients": 50, "max_samples": 200}
    data = load(**few)
    frequent = np.bincount(data.y[data.fit.order]).argmax()
    tested = data.y[data.test.order]
    guessed = float((tested == frequent).mean())
    # About one sixth of some 2,400 characters are spaces: three standard deviations of that fraction are 2.3 %.
    margin = 3 * math.sqrt(guessed * (1 - guessed) / len(tested))
    record = coterie.run(
        {
            "data": few,
            "model": {"name": "char-lstm", "units": 64},
            "local": {"steps": 20, "batch_size": 10, "learning_rate": 0.01, "optimizer": "adam"},
            "run": {"rounds": 12, "clients_per_round": 10, "evaluate_every": 12},
        }
    )
    assert record.summary["accuracy"]["weighted"] > guessed + margin
