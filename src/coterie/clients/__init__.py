"""What a client can be asked to do: local training, gradients, scores, counts."""

from __future__ import annotations

from coterie.clients.local import TRAINED, LocalSGD, fit, train
from coterie.clients.schema import Model, Ragged, Settings, Values
from coterie.clients.scores import gradient, label_counts, losses_of, score
from coterie.clients.work import Batches, Client, Steps, Work, known_work

__all__ = [
    "TRAINED",
    "Batches",
    "Client",
    "LocalSGD",
    "Model",
    "Ragged",
    "Settings",
    "Steps",
    "Values",
    "Work",
    "fit",
    "gradient",
    "known_work",
    "label_counts",
    "losses_of",
    "score",
    "train",
]
