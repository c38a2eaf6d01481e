"""`Reference`, a correct method, and methods that differ from it by one error each, which the contract suite finds."""

from __future__ import annotations

import dataclasses
import random
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from coterie import tree
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD, fit, losses_of
from coterie.codec import state as plain
from coterie.federation.protocol import PerClient
from coterie.methods.protocol import Placement, Round
from coterie.seeds import Seed


@plain
@dataclass(frozen=True)
class State:
    """State of `Reference`.

    Attributes:
        w0: The initial model; also served to clients without a cluster.
        bank: The models of the two clusters.
        row: Client → cluster.
    """

    w0: dict[str, Any]
    bank: dict[str, Any]
    row: ClientMap[int] = field(default_factory=ClientMap)
    more: Any = None


@dataclass(frozen=True)
class Reference:
    """Two clusters: a new client trains once and joins the nearest model; then a round of FedAvg in each cluster."""

    local: LocalSGD = field(default_factory=lambda: LocalSGD(epochs=2, batch_size=8, learning_rate=0.1))

    def start(self, task, seed):
        w0 = task.init(seed.fold("init"))
        return State(w0, tree.stack([w0, task.init(seed.fold("init", 1))]))

    def stage(self, now):
        return "train"

    def round(self, now, fed, cohort, seed):
        active = cohort.active()
        now = self.join(now, fed, active.of(client for client in active if client not in now.row), seed.fold("join"))
        row = {client: now.row[client] for client in active if client in now.row}
        got = self.train(now, fed, active.of(row), row, seed)
        bank = self.average(now, fed, active, row, got)
        return Round(dataclasses.replace(now, bank=bank), self.report(cohort, row, got))

    def join(self, now, fed, new, seed, min_replies=0):
        if not len(new):
            return now
        asked = dataclasses.replace(new, efforts={}) if hasattr(new, "efforts") else new
        got = fed.ask(asked, fit, seed, start=now.w0, local=self.local, min_replies=min_replies)
        if not len(got):
            return now
        away = np.stack([tree.row_distances(got["params"], _repeated(now.bank, k, len(got))) for k in range(2)], axis=1)
        return dataclasses.replace(
            now, row=now.row.set(dict(zip(got.clients, away.argmin(axis=1).tolist(), strict=True)))
        )

    def train(self, now, fed, cohort, row, seed):
        return fed.ask(cohort, fit, seed, start=PerClient(now.bank, row), local=self.local.at(cohort.t))

    def average(self, now, fed, cohort, row, got):
        return self.weighted(now, fed, row, got, got.samples)

    def weighted(self, now, fed, row, got, weights):
        models = []
        for k in range(2):
            members = [i for i, client in enumerate(got.clients) if row[client] == k]
            mean = fed.average(tree.take(got["params"], members), np.asarray(weights)[members]) if members else None
            models.append(tree.row(now.bank, k) if mean is None else mean)
        return tree.stack(models)

    def report(self, cohort, row, got):
        return {client: row[client] for client in got.clients}

    def place(self, now, fed, clients, seed):
        asked = list(clients)
        now = self.join(now, fed, [client for client in asked if client not in now.row], seed)
        row = {client: now.row[client] for client in asked if client in now.row}
        return now, Placement(now.bank, row, fallback=now.w0)


def _repeated(bank, k, count):
    return tree.stack([tree.row(bank, k)] * count)


# ----------------------------------------------------------------------------------------------- reports of the clients


class ClaimsTheWholeCohort(Reference):
    def report(self, cohort, row, got):
        return {client: row.get(client, 0) for client in cohort.active()}


class ReportsLostDistances(Reference):
    def round(self, now, fed, cohort, seed):
        return dataclasses.replace(super().round(now, fed, cohort, seed), distances=dict.fromkeys(cohort.active(), 0.0))


class NumbersClustersByPosition(Reference):
    def join(self, now, fed, new, seed, min_replies=0):
        return now

    def round(self, now, fed, cohort, seed):
        by_position = {client: place % 2 for place, client in enumerate(cohort.active())}
        return super().round(dataclasses.replace(now, row=ClientMap(by_position)), fed, cohort, seed)

    def place(self, now, fed, clients, seed):
        return now, Placement(now.bank, dict.fromkeys(clients, 0), fallback=now.w0)


class DrawsClustersByPosition(NumbersClustersByPosition):
    def round(self, now, fed, cohort, seed):
        drawn = {client: seed.fold("cluster", place).integer(2) for place, client in enumerate(cohort.active())}
        return Reference.round(self, dataclasses.replace(now, row=ClientMap(drawn)), fed, cohort, seed)


# -------------------------------------------------------------------------------------------------- weights and replies


class DividesByTheCohort(Reference):
    """Sums the replies of a cluster, and divides by the samples of all of the cluster's clients in the cohort."""

    def average(self, now, fed, cohort, row, got):
        bank = super().average(now, fed, cohort, row, got)
        share = np.float32(len(got) / len(cohort))
        return tree.map(lambda leaf: leaf * share, bank)


class WeightsByPosition(Reference):
    def average(self, now, fed, cohort, row, got):
        weights = {client: 1.0 + place for place, client in enumerate(cohort)}
        return self.weighted(now, fed, row, got, [weights[client] for client in got.clients])


class UsesOldReplies(Reference):
    """Averages the last model of every client in the cohort, also of those whose reply was lost."""

    def round(self, now, fed, cohort, seed):
        got = fed.ask(cohort.active(), fit, seed, start=tree.row(now.bank, 0), local=self.local)
        old = {**(now.more or {}), **got.by_client("params")}
        known = [client for client in cohort.active() if client in old]
        w = fed.average(tree.stack(old[client] for client in known), np.ones(len(known)))
        return Round(dataclasses.replace(now, bank=tree.stack([w, w]), more=old), dict.fromkeys(got.clients, 0))


class ChangesRepliesInPlace(Reference):
    def average(self, now, fed, cohort, row, got):
        for leaf in tree.leaves(got["params"]):
            leaf *= np.float32(0.9)
        return super().average(now, fed, cohort, row, got)


class ChangesItsStateInPlace(Reference):
    def average(self, now, fed, cohort, row, got):
        for old, new in zip(
            tree.leaves(now.bank), tree.leaves(super().average(now, fed, cohort, row, got)), strict=True
        ):
            old[:] = new
        return now.bank


class SaysSkippedAndMoves(Reference):
    def round(self, now, fed, cohort, seed):
        result = super().round(now, fed, cohort, seed)
        return dataclasses.replace(result, skipped="too few clients") if cohort.t == 1 else result


class MovesWithoutReplies(Reference):
    def round(self, now, fed, cohort, seed):
        got = fed.ask(cohort.active(), fit, seed, start=tree.row(now.bank, 0), local=self.local, min_replies=0)
        bank = self.weighted(now, fed, dict.fromkeys(got.clients, 0), got, got.samples)
        return Round(dataclasses.replace(now, bank=tree.map(lambda leaf: leaf * np.float32(0.99), bank)))


# ------------------------------------------------------------------------------------------------------- whom it asks


class AsksEveryone(Reference):
    def train(self, now, fed, cohort, row, seed):
        everyone = dict.fromkeys(fed.clients, 0)
        return fed.ask(cohort.of(everyone), fit, seed, start=PerClient(now.bank, everyone), local=self.local)

    def average(self, now, fed, cohort, row, got):
        return super().average(now, fed, cohort, dict.fromkeys(got.clients, 0), got)

    def report(self, cohort, row, got):
        return dict.fromkeys(got.clients, 0)


class AsksAllAvailableClients(Reference):
    def train(self, now, fed, cohort, row, seed):
        fed.ask(cohort.of(cohort.available), losses_of, seed, centers=now.bank)
        return super().train(now, fed, cohort, row, seed)


class TrainsOnTestData(Reference):
    def train(self, now, fed, cohort, row, seed):
        return fed.ask(cohort, fit, seed, part="test", start=PerClient(now.bank, row), local=self.local)


class PlacesByTestData(Reference):
    def place(self, now, fed, clients, seed):
        got = fed.ask(clients, losses_of, seed, part="test", centers=now.bank)
        row = dict(zip(got.clients, got["losses"].argmin(axis=1).tolist(), strict=True))
        return now, Placement(now.bank, row, fallback=now.w0)


class IgnoresStragglers(Reference):
    def round(self, now, fed, cohort, seed):
        return super().round(now, fed, dataclasses.replace(cohort, efforts={}), seed)


class TrainsOnTheSameBatches(Reference):
    def train(self, now, fed, cohort, row, seed):
        return super().train(now, fed, cohort, row, Seed(0))


# ------------------------------------------------------------------------------------------------------------ learning


class NeverTrains(Reference):
    def round(self, now, fed, cohort, seed):
        got = fed.ask(cohort.active(), losses_of, seed, centers=now.bank)
        row = dict(zip(got.clients, got["losses"].argmin(axis=1).tolist(), strict=True))
        return Round(dataclasses.replace(now, row=now.row.set(row)), row)


class ServesZeros(Reference):
    def place(self, now, fed, clients, seed):
        now, placement = super().place(now, fed, clients, seed)
        return now, dataclasses.replace(placement, bank=tree.map(np.zeros_like, now.bank))


class TrainsAwayFromTheMinimum(Reference):
    def average(self, now, fed, cohort, row, got):
        moved = super().average(now, fed, cohort, row, got)
        return tree.map(lambda old, new: 2 * old - new, now.bank, moved)


# -------------------------------------------------------------------------------------------------- hidden dependencies


@dataclass(frozen=True)
class KeepsStateOnTheObject(Reference):
    """Counts its rounds on the object, and decays the learning rate by them."""

    rounds: list[int] = field(default_factory=list)

    def train(self, now, fed, cohort, row, seed):
        self.rounds.append(cohort.t)
        local = dataclasses.replace(self.local, learning_rate=0.1 / len(self.rounds))
        return fed.ask(cohort, fit, seed, start=PerClient(now.bank, row), local=local)


class KeepsStateOnTheClass(Reference):
    seen: ClassVar[dict[str, int]] = {}

    def train(self, now, fed, cohort, row, seed):
        for client in row:
            self.seen[client] = self.seen.get(client, 0) + 1
        local = dataclasses.replace(self.local, learning_rate=0.1 / (1 + sum(self.seen.values())))
        return fed.ask(cohort, fit, seed, start=PerClient(now.bank, row), local=local)


class ScalesRandomly(Reference):
    """Multiplies the new models by a number close to 1 from somewhere."""

    def factor(self, got):
        raise NotImplementedError

    def average(self, now, fed, cohort, row, got):
        factor = np.float32(1 - 0.01 * self.factor(got))
        return tree.map(lambda leaf: leaf * factor, super().average(now, fed, cohort, row, got))


class DrawsFromNumpy(ScalesRandomly):
    def factor(self, got):
        return np.random.rand()


class DrawsFromPython(ScalesRandomly):
    def factor(self, got):
        return random.random()


class DrawsFromAnUnseededGenerator(ScalesRandomly):
    def factor(self, got):
        return np.random.default_rng().random()


class ReadsTheClock(ScalesRandomly):
    def factor(self, got):
        return int(time.time()) % 1000 / 1000


_CALLS: list[str] = []


class KeepsStateInTheModule(ScalesRandomly):
    def factor(self, got):
        _CALLS.append("average")
        return len(_CALLS) % 7 / 7


class DependsOnTheOrderOfADict(Reference):
    """Remembers clients in the order in which they took part; a saved dict is sorted."""

    def round(self, now, fed, cohort, seed):
        result = super().round(now, fed, cohort, seed)
        seen = {**(now.more or {}), **dict.fromkeys(reversed(list(result.assignment)), 0)}
        factor = np.float32(1 - int(next(iter(seen))) / 100)
        bank = tree.map(lambda leaf: leaf * factor, result.state.bank)
        return dataclasses.replace(result, state=dataclasses.replace(result.state, bank=bank, more=seen))


class NeverFinishesPreparing(Reference):
    def stage(self, now):
        return "prepare"


class DependsOnTheOrderOfASet(ScalesRandomly):
    def factor(self, got):
        return int(next(iter(set(got.clients)))) / 10


@dataclass(frozen=True)
class ReadsTheTruth(Reference):
    truth: Any = None

    def join(self, now, fed, new, seed, min_replies=0):
        return dataclasses.replace(now, row=now.row.set({client: int(self.truth[client]) for client in new}))


class ReachesIntoTheFederation(Reference):
    def train(self, now, fed, cohort, row, seed):
        assert len(fed._transport.clients)
        return super().train(now, fed, cohort, row, seed)


class StoresAGenerator(Reference):
    def round(self, now, fed, cohort, seed):
        result = super().round(now, fed, cohort, seed)
        return dataclasses.replace(result, state=dataclasses.replace(result.state, more=np.random.default_rng(0)))


class StoresAJaxArray(Reference):
    def round(self, now, fed, cohort, seed):
        import jax.numpy as jnp

        result = super().round(now, fed, cohort, seed)
        return dataclasses.replace(result, state=dataclasses.replace(result.state, more=jnp.zeros(2)))


# ------------------------------------------------------------------------------------------------------------ placement


class ChangesPlacement(Reference):
    """Serves something else than it should."""

    def changed(self, now, placement):
        raise NotImplementedError

    def place(self, now, fed, clients, seed):
        now, placement = super().place(now, fed, clients, seed)
        return now, self.changed(now, placement)


class ServesRowsOutsideTheBank(ChangesPlacement):
    def changed(self, now, placement):
        return dataclasses.replace(placement, row={client: row + 2 for client, row in placement.row.items()})


class ForgetsNewcomers(ChangesPlacement):
    def changed(self, now, placement):
        return dataclasses.replace(placement, row={c: row for c, row in placement.row.items() if int(c) < 8})


class HasNoFallback(ChangesPlacement):
    def changed(self, now, placement):
        return dataclasses.replace(placement, fallback=None)


class FallbackIsABank(ChangesPlacement):
    def changed(self, now, placement):
        return dataclasses.replace(placement, fallback=now.bank)


class FallbackIsNotFinite(ChangesPlacement):
    def changed(self, now, placement):
        return dataclasses.replace(placement, fallback=tree.map(lambda leaf: leaf * np.float32(np.nan), now.w0))


class BankHasAnotherShape(ChangesPlacement):
    def changed(self, now, placement):
        return dataclasses.replace(placement, bank=tree.map(lambda leaf: leaf[..., None], now.bank))


class PlacesByPosition(ChangesPlacement):
    def changed(self, now, placement):
        return dataclasses.replace(placement, row={client: place % 2 for place, client in enumerate(placement.row)})


class NeedsRepliesToPlace(Reference):
    def place(self, now, fed, clients, seed):
        got = fed.ask(clients, losses_of, seed, centers=now.bank)
        row = dict(zip(clients, got["losses"].reshape(-1, 2).argmin(axis=1).tolist(), strict=True))
        return now, Placement(now.bank, row, fallback=now.w0)


class ForgetsPaidPlacements(Reference):
    def place(self, now, fed, clients, seed):
        return now, super().place(now, fed, clients, seed)[1]
