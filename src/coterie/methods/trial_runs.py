"""FLAG's trial runs: measure a partition by a few rounds of FedAvg with a small model in each of its clusters.

Clients train on nine tenths of their training examples and validate on the remaining tenth. The bytes of trial runs
count as `trial` in the traffic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from coterie import tree
from coterie.clients import LocalSGD, fit, score
from coterie.errors import SpecError, TooFewReplies
from coterie.federation.protocol import Cohort, Federation, Mean, PerClient
from coterie.methods.fedavg import move_groups
from coterie.models import Task, build
from coterie.seeds import Seed
from coterie.types import Array, ClientId

#: The model of trial runs: logistic regression, or LeNet-5 with half the filters.
TrialModel = Literal["mclr", "lenet5"]

#: Train the trial model.
trial_fit = dataclasses.replace(fit, name="trial.fit", purpose="trial", stream="trial")

#: Evaluate the trial model.
trial_score = dataclasses.replace(score, name="trial.score", purpose="trial", stream="trial.score")


@lru_cache(maxsize=16)
def trial_task(task: Task, model: TrialModel) -> Task:
    """The task of trial runs on the same examples; cached, so that it is compiled once."""
    options = {"width": 0.5} if model == "lenet5" else {}
    return build(model, task.shape, task.classes, normalize=task.normalize, **options)


@dataclass(frozen=True)
class TrialRun:
    """A few rounds of FedAvg in each cluster.

    Attributes:
        model: The trial model.
        local: Settings of local training.
        rounds: Number of rounds.
    """

    model: TrialModel
    local: LocalSGD
    rounds: int

    def validate(
        self, clusters: Sequence[Sequence[ClientId]], fed: Federation, cohort: Cohort, seed: Seed
    ) -> dict[ClientId, tuple[float, float]]:
        """Client → validation accuracy and mean loss of its cluster's model after the rounds.

        Clusters train independently of each other. The initial model and the batches depend only on the seed and the
        client ids, so that a cluster ends at the same model in every partition. Clients that did not reply or have no
        validation examples are missing.

        Args:
            clusters: The members of each cluster; all of them take part in every round.
            fed: The federation.
            cohort: The current step.
            seed: Seed of the initial model and the batches.

        Raises:
            TooFewReplies: If no score is known, but some replies were lost.
        """
        row = {client: j for j, members in enumerate(clusters) for client in members}
        asked = dataclasses.replace(cohort.of(row), efforts={})
        task = trial_task(fed.task, self.model)
        trial_fed = fed.on(task)
        bank = tree.stack([task.init(seed.fold("init"))] * len(clusters))
        mean = Mean(groups=len(clusters), by=row, released=False)
        for r in range(self.rounds):
            start, local = PerClient(bank, row), self.local.at(r)
            seed_r = seed.fold("round", r)
            got = trial_fed.ask(asked, trial_fit, seed_r, part="rest", reduce=mean, start=start, local=local)
            bank = move_groups(bank, got)
        got = trial_fed.ask(asked, trial_score, seed.fold("judge"), part="held", params=PerClient(bank, row))
        correct, losses = got.by_client("correct"), got.by_client("loss")
        sizes = dict(zip(got.clients, got.samples.tolist(), strict=True))
        scores = {client: (correct[client] / n, losses[client] / n) for client, n in sizes.items() if n}
        if not scores and got.lost:
            raise TooFewReplies(
                f"{len(got.lost)} of {len(row)} clients did not validate, and the others have no validation examples"
            )
        return scores


def next_scores(
    partitions: Array,
    known: Array,
    clients: Sequence[ClientId],
    run: Callable[[list[list[ClientId]]], dict[ClientId, tuple[float, float]]],
) -> Array:
    """The scores of the validation clients in the first partition that is not tried yet, (clients, 2); -1 if unknown.

    Args:
        partitions: The cluster of each validation client, (partitions, clients).
        known: The scores in the partitions tried so far, (tried, clients, 2).
        clients: The validation clients.
        run: Clusters → accuracy and loss of their members; called only with clusters that no earlier partition has.
    """
    tried, labels = partitions[: len(known)], partitions[len(known)]
    reused = np.full((len(clients), 2), -1.0)
    new_clusters = []
    for label in np.unique(labels):
        members = labels == label
        first = members.argmax()
        same = [s for s, before in enumerate(tried) if np.array_equal(before == before[first], members)]
        if same:
            reused[members] = known[same[0], members]
        else:
            new_clusters.append([clients[i] for i in np.flatnonzero(members).tolist()])
    found = run(new_clusters) if new_clusters else {}
    return np.array([found.get(client, before) for client, before in zip(clients, reused.tolist(), strict=True)])


def mean_accuracies(accuracies: Array) -> list[float]:
    """The goodness of each partition: the mean over the clients that validated it, with equal weights.

    Args:
        accuracies: (partitions, clients), negative where unknown.

    Raises:
        SpecError: If a partition has no known accuracy.
    """
    known = accuracies >= 0
    if not known.any(axis=1).all():
        raise SpecError(
            "flag chooses its clusters on validation examples, but none of the validation clients has any: keep a "
            "share of the training examples for validation, or raise method.validation_clients"
        )
    return [float(row[valid].mean()) for row, valid in zip(accuracies, known, strict=True)]
