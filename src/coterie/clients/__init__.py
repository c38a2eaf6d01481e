"""Works: the computations that clients can be asked to run, such as local training, gradients and scores."""

from __future__ import annotations

from coterie.clients.local_training import TRAINED, LocalSGD, fit, train
from coterie.clients.schema import Model, Ragged, Settings, Values
from coterie.clients.scores import gradient, label_counts, label_errors, losses_of, score
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
    "label_errors",
    "losses_of",
    "score",
    "train",
]
