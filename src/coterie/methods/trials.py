"""Trial runs: how good a partition of clients is, by a few rounds of FedAvg with a light model in each of its clusters.

Clients train on nine tenths of their training examples and judge on the tenth that is kept for validation. What is
sent for it counts as `trial` in the ledger.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
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

#: Which model trial runs are made with: logistic regression, or LeNet-5 with half the filters.
Light = Literal["mclr", "lenet5"]

#: Train the light model.
train = dataclasses.replace(fit, name="trial.fit", purpose="trial", stream="trial")

#: Judge the light model.
judge = dataclasses.replace(score, name="trial.score", purpose="trial", stream="trial.score")


@lru_cache(maxsize=16)
def light_task(task: Task, light: Light) -> Task:
    """The light model for the same examples; the same object for the same task, for which it is compiled once."""
    options = {"width": 0.5} if light == "lenet5" else {}
    return build(light, task.shape, task.classes, normalize=task.normalize, **options)


def validation_accuracies(
    clusters: Sequence[Sequence[ClientId]],
    fed: Federation,
    cohort: Cohort,
    seed: Seed,
    *,
    light: Light,
    local: LocalSGD,
    rounds: int,
) -> dict[ClientId, float]:
    """Client → the share of its validation examples that its cluster's model gets right after so many rounds.

    Clusters do not touch each other, and start and batches come from the seed and the clients' names: a cluster ends
    at the same model whatever the others are. Who did not answer, or has no validation examples, is missing.

    Args:
        clusters: Members of each; all of them take part in every round.
        fed: The clients.
        cohort: The step at hand.
        seed: Of the start and the batches.
        light: Which model.
        local: How clients train.
        rounds: Of averaging.

    Raises:
        TooFewReplies: If nobody judged, but some of those who were lost might have.
    """
    row = {client: j for j, members in enumerate(clusters) for client in members}
    asked = dataclasses.replace(cohort.of(row), efforts={})
    task = light_task(fed.task, light)
    there = fed.on(task)
    bank = tree.stack([task.init(seed.fold("init"))] * len(clusters))
    how = Mean(groups=len(clusters), by=row)
    for r in range(rounds):
        name = seed.fold("round", r)
        got = there.ask(asked, train, name, part="rest", reduce=how, start=PerClient(bank, row), local=local.at(r))
        bank = move_groups(bank, got)
    judged = there.ask(asked, judge, seed.fold("judge"), part="held", params=PerClient(bank, row))
    correct, sizes = judged.by_client("correct"), dict(zip(judged.clients, judged.samples.tolist(), strict=True))
    found = {client: correct[client] / n for client, n in sizes.items() if n}
    if not found and judged.lost:
        raise TooFewReplies(f"{len(judged.lost)} of {len(row)} clients did not judge, and the others have no examples")
    return found


def accuracies_of(
    partitions: Array,
    known: Array,
    judges: Sequence[ClientId],
    run: Callable[[list[list[ClientId]]], dict[ClientId, float]],
) -> Array:
    """Each judge's accuracy in the first partition that is not tried yet, (judges,); -1 where it is not known.

    Args:
        partitions: The cluster of each judge, (partitions, judges).
        known: The accuracies in those that are tried, (tried, judges).
        judges: Who.
        run: Clusters → their members' accuracies; asked for those clusters only that no earlier partition holds.
    """
    tried, now = partitions[: len(known)], partitions[len(known)]
    found = np.full(len(judges), -1.0)
    fresh = []
    for label in np.unique(now):
        inside = now == label
        same = [s for s, labels in enumerate(tried) if np.array_equal(labels == labels[inside.argmax()], inside)]
        if same:
            found[inside] = known[same[0], inside]
        else:
            fresh.append([judges[i] for i in np.flatnonzero(inside).tolist()])
    new = run(fresh) if fresh else {}
    return np.array([new.get(client, before) for client, before in zip(judges, found.tolist(), strict=True)])


def mean_accuracies(accuracies: Array) -> list[float]:
    """The goodness of each partition: the mean over the clients that judged it, each of whom counts 1.

    Args:
        accuracies: (partitions, clients), negative where a client did not judge.

    Raises:
        SpecError: If nobody judged a partition.
    """
    judged = accuracies >= 0
    if not judged.any(axis=1).all():
        raise SpecError(
            "flag chooses its clusters on validation examples, but none of the clients that judge has any: "
            "keep a share of the training examples for validation, or let more clients judge (method.judges)"
        )
    return [float(row[there].mean()) for row, there in zip(accuracies, judged, strict=True)]
