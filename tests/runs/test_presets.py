"""Every data set whose files are available runs three rounds of FedAvg; the others are skipped with the reason."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie.data.catalog import CATALOG
from coterie.data.loading import available, loader_options

#: One data set of numbers and one of images. `make test-all` runs the others: characters take ten seconds to compile.
EACH_TIME = ("regression", "digits")


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in EACH_TIME else pytest.mark.exhaustive) for name in sorted(CATALOG)],
)
def test_a_preset_runs_three_rounds(name):
    if not available(name):
        needs = ", ".join(each.archive for each in CATALOG[name].files)
        pytest.skip(f"{name} needs files that are not in $COTERIE_DATA: {needs}")
    local = {"steps": 2, "batch_size": 10, "learning_rate": 0.01}
    few = {"max_samples": 40} if "max_samples" in loader_options(name) else {}  # large data sets take long to evaluate
    record = coterie.run(
        {
            "data": {"name": name, **few},
            "local": local,
            "run": {"rounds": 3, "clients_per_round": 3, "evaluate_every": 3},
        }
    )
    rounds = [row for row in record.rounds if row["stage"] == "train"]
    assert len(rounds) == 3
    assert all(np.isfinite(row["loss"]) for row in rounds)
    assert record.summary["coverage"] == 1.0
    assert (record.summary["accuracy"] is None) == (name == "regression")
