"""A small entry: two methods on eight clients, in two variants."""

from __future__ import annotations

import pytest

from coterie.reproduce.loading import parse

TINY = """
title = "A small table"
paper = "A. Author, A Paper, 2020"
source = "Table 1"
setting = "Eight clients."
compares = "weighted accuracy at the end, %"
seeds = 2
measure = "last_weighted"
values = { k = 2 }
spec.data = { name = "blobs", clients = 8, samples = 20 }
spec.local = { epochs = 1, learning_rate = 0.1 }
spec.run = { rounds = 4, clients_per_round = 4, checkpoint_every = 1 }

[[columns]]
name = "FedAvg"
spec.method = "fedavg"

[[columns]]
name = "IFCA"
spec.method = { name = "ifca", clusters = "$k" }
coded.method = { agg = "first_only" }
trust = "One client per cluster is averaged."

[[rows]]
name = "easy"
published = ["50.0", "60.0 ± 1.5"]

[quick_run]
note = "Two rounds."
columns = ["FedAvg"]

[quick]
run = { rounds = 2 }
"""


@pytest.fixture
def tiny_text() -> str:
    return TINY


@pytest.fixture
def tiny():
    return parse("tiny", TINY)
