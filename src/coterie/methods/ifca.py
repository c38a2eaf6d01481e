"""IFCA: each client joins the cluster whose model already fits it best.

Ghosh, Chung, Yin, Ramchandran, "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020,
arXiv:2006.04088. Algorithm 1:

    (a)  ĵ_i = argmin_j F_i(θ_j)                        client: which cluster am I in? (mean loss on training examples)
    (b)  option I:   g_i = ∇F_i(θ_ĵi)                   client: the gradient of that cluster's model
         option II:  θ̃_i = LocalUpdate(θ_ĵi)            client: train that cluster's model
    (c)  option I:   θ_j ← θ_j - (γ/|M|) Σ_i s_ij g_i   server: s_ij is 1 if ĵ_i = j, else 0; M is the cohort
         option II:  θ_j ← Σ_i s_ij θ̃_i / Σ_i s_ij

θ_j is row j of `bank`, γ is `local.learning_rate`. Weight sharing: lower layers φ in common, a head for each cluster.

Departures from the paper: ties in (a) go to the lowest j, and a cluster that nobody chose keeps its model to the bit
(the paper leaves 0/0 open). Beyond it, from published experiments: a balanced start, a warm start, drawing a number of
members per cluster, and restarts, which train several independent runs side by side and serve the one with the lowest
training loss. If one start is better for everybody, all clients choose it and the others never move: the round counts
its clusters that nobody chose.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from coterie import tree
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD, fit
from coterie.clients.closest import closest, fit_closest, gradient_closest
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, Mean, PerClient, Replies
from coterie.methods.fedavg import average, distances_of, loss_of, move_groups
from coterie.methods.protocol import Placement, Round, Stage, check_choices
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """Where a run of IFCA is.

    Attributes:
        banks: The k models of each restart.
        losses: Each restart's mean training loss in its last round.
        assignment: The last cluster of each client that took part.
        layers: The model's, from input to output.
        prepared: Steps of preparing done.
        rounds: Rounds done.
        pretrained: The one model of preparing with frozen layers.
    """

    banks: tuple[Bank, ...]
    losses: tuple[float, ...]
    assignment: ClientMap[int]
    layers: tuple[str, ...]
    prepared: int = 0
    rounds: int = 0
    pretrained: Params | None = None

    @property
    def best(self) -> int:
        """The restart with the lowest training loss; the first before any training."""
        return int(np.argmin(self.losses))


@dataclass(frozen=True)
class IFCA:
    """k models, and every client of the cohort trains the one that fits it best.

    Attributes:
        local: How clients train.
        clusters: k.
        averaging: Option II of the paper, `models`, or option I, `gradients`, of which `local` sets the rate alone.
        weights: With `models`: a client counts 1, or its examples.
        agg: With `models`: the mean of a cluster's clients, or, as FlexCFL's published code has it, the first of them.
        normalizer: With `gradients`: divide by the cohort, as the paper does, or by the cluster.
        first: Round 0 assigns by loss, or balanced at random.
        members: 0: the cohort chooses and trains. Otherwise all clients choose, and so many of each cluster train.
        shared: Lower layers are each cluster's own; or averaged over the whole cohort; or frozen after preparing.
        head_layers: How many last layers are a cluster's own when the others are shared.
        balanced_share: Redraw all starts until each holds at least this share of the clients; 0 for never.
        warm_rounds: Steps of FedAvg with everyone before the first round: in k random equal groups, or with frozen
            layers in one.
        restarts: Independent runs side by side; the one with the lowest training loss is served.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    clusters: int = 4
    averaging: Literal["models", "gradients"] = "models"
    weights: Literal["uniform", "samples"] = "uniform"
    agg: Literal["mean", "first_only"] = "mean"
    normalizer: Literal["cohort", "cluster"] = "cohort"
    first: Literal["loss", "balanced"] = "loss"
    members: int = 0
    shared: Literal["none", "averaged", "frozen"] = "none"
    head_layers: int = 1
    balanced_share: float = 0.0
    warm_rounds: int = 0
    restarts: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)
        for name, least in (("clusters", 1), ("head_layers", 1), ("restarts", 1), ("members", 0), ("warm_rounds", 0)):
            if getattr(self, name) < least:
                raise SpecError(f"method.{name} of ifca must be at least {least}, got {getattr(self, name)}")
        if not 0 <= self.balanced_share * self.clusters <= 1:
            raise SpecError(
                f"method.balanced_share of ifca must lie between 0 and 1/clusters, got {self.balanced_share}"
            )
        own = self.shared != "none" or self.members or self.first == "balanced" or self.agg != "mean"
        if self.averaging == "gradients" and own:
            raise SpecError(
                "ifca with averaging='gradients' has no shared layers, no members per cluster, no balanced first "
                "round, no agg"
            )

    def start(self, task: Task, seed: Seed) -> State:
        """Independent draws: of two equal models one would win every tie and the other never move."""
        seeds = [seed, *(seed.fold("restart", r) for r in range(1, self.restarts))]
        banks = tuple(self._draw(task, each) for each in seeds)
        return State(banks, (np.inf,) * self.restarts, ClientMap(), task.layers)

    def _draw(self, task: Task, seed: Seed) -> Bank:
        # The first model is every method's, so that one cluster is FedAvg to the bit.
        names = [("init",) if j == 0 else ("init", j) for j in range(self.clusters)]
        bank = tree.stack(task.init(seed.fold(*name)) for name in names)
        return bank if self.shared == "none" else self._with_body(bank, tree.row(bank, 0), task.layers)

    def stage(self, now: State) -> Stage:
        """Preparing takes the warm rounds, and one step before them to balance the starts."""
        steps = self.warm_rounds + (1 if self.balanced_share else 0)
        return "prepare" if now.prepared < steps else "train"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """One exchange, as in the paper: all centers down, one model and one index up; once for each restart."""
        if self.stage(now) == "prepare":
            return self._prepare(now, fed, cohort, seed)
        runs = [
            self._one(now, r, fed, cohort, seed if r == 0 else seed.fold("restart", r)) for r in range(self.restarts)
        ]
        losses = tuple(run.loss if run.loss is not None else now.losses[r] for r, run in enumerate(runs))
        shown = runs[int(np.argmin(losses))]
        kept = now.assignment.set(shown.assignment)
        after = dataclasses.replace(
            now, banks=tuple(run.state for run in runs), losses=losses, assignment=kept, rounds=now.rounds + 1
        )
        return Round(after, shown.assignment, shown.loss, shown.distances, shown.evidence, shown.counts)

    def _one(self, now: State, r: int, fed: Federation, cohort: Cohort, seed: Seed) -> Round[Bank]:
        bank, local = now.banks[r], self._local(now, cohort.t)
        active = cohort.active()
        if self.averaging == "gradients":
            got = fed.ask(
                active, gradient_closest, seed, **self._sent(now, bank), reduce=self._mean("gradient", "choice")
            )
            return self._shown(self._descend(bank, got, local.learning_rate), got)
        if self.members or (self.first == "balanced" and now.rounds == 0):
            active, row, evidence = self._assign(now, bank, fed, active, seed)
            how = dataclasses.replace(self._mean("params", "choice"), by=row)
            got = fed.ask(active, fit, seed, start=PerClient(bank, row), local=local, reduce=how)
            trained = {c: row[c] for c in got.clients}
            moved, counts = self._share(bank, got, now), self._counts(list(row.values()))
            return Round(moved, trained, loss_of(got), distances_of(got), evidence, counts)
        got = fed.ask(
            active, fit_closest, seed, **self._sent(now, bank), local=local, reduce=self._mean("params", "choice")
        )
        return self._shown(self._share(bank, got, now), got)

    def _mean(self, of: str, by: str) -> Mean:
        weights = "uniform" if of != "params" else "first" if self.agg == "first_only" else self.weights
        # With averaged layers a cluster's model is not the mean of its replies: distances to that would be wrong.
        return Mean(of, self.clusters, by, weights, spread=of == "params" and self.shared != "averaged")

    def _local(self, now: State, t: int) -> LocalSGD:
        local = self.local.at(t)
        return (
            dataclasses.replace(local, trainable_layers=self._heads(now.layers)) if self.shared == "frozen" else local
        )

    def _heads(self, layers: tuple[str, ...]) -> tuple[str, ...]:
        return layers[-self.head_layers :]

    def _sent(self, now: State, bank: Bank) -> dict[str, Any]:
        """What goes down: φ once and k heads; or k whole models."""
        if self.shared == "none":
            return {"base": {}, "heads": bank}
        heads = self._heads(now.layers)
        base = {layer: tree.row(bank[layer], 0) for layer in bank if layer not in heads}
        return {"base": base, "heads": {layer: bank[layer] for layer in heads}}

    def _share(self, bank: Bank, got: Replies, now: State) -> Bank:
        """(c), option II; with averaged layers, those at the mean over all clusters."""
        moved = move_groups(bank, got)
        mean, weight = got.means()
        if self.shared != "averaged" or not weight.sum():
            return moved
        common = tree.map(lambda leaf: np.tensordot(weight / weight.sum(), leaf, 1).astype(leaf.dtype), mean)
        return self._with_body(moved, common, now.layers)

    def _with_body(self, bank: Bank, model: Params, layers: tuple[str, ...]) -> Bank:
        """The bank with one model's lower layers in every row."""
        heads = self._heads(layers)
        body = tree.stack([model] * self.clusters)
        return {layer: bank[layer] if layer in heads else body[layer] for layer in bank}

    def _descend(self, bank: Bank, got: Replies, rate: float) -> Bank:
        """(c), option I."""
        mean, weight = got.means()
        share = weight / max(weight.sum(), 1.0) if self.normalizer == "cohort" else np.ones(self.clusters)

        def step(theta: Any, gradient: Any) -> Any:
            factor = (rate * share).reshape(-1, *[1] * (theta.ndim - 1))
            return (theta - factor * gradient).astype(theta.dtype)

        return tree.where_rows(weight > 0, tree.map(step, bank, mean), bank)

    def _shown(self, bank: Bank, got: Replies) -> Round[Bank]:
        counts = self._counts(got["choice"])
        return Round(bank, got.by_client("choice"), loss_of(got), distances_of(got), _evidence(got), counts)

    def _counts(self, choices: Any) -> dict[str, int]:
        sizes = np.bincount(np.asarray(choices, np.int64), minlength=self.clusters)
        return {"empty_clusters": int((sizes == 0).sum())}

    def _assign(
        self, now: State, bank: Bank, fed: Federation, cohort: Cohort, seed: Seed
    ) -> tuple[Cohort, dict[ClientId, int], dict[str, Any]]:
        """Who trains what where it is not the cohort by its own choice, and on what that was decided."""
        pool = list(cohort.available) if self.members else list(cohort)
        evidence: dict[str, Any] = {}
        if self.first == "balanced" and now.rounds == 0:
            row = self._deal(pool, seed)
        else:
            got = fed.ask(cohort.of(pool), closest, seed.fold("assign"), **self._sent(now, bank))
            row, evidence = got.by_client("choice"), _evidence(got)
        if not self.members:
            return cohort, row, evidence
        drawn = [
            client
            for j in range(self.clusters)
            for client in cohort.draw([c for c in row if row[c] == j], self.members, name=f"ifca {j}")
        ]
        return cohort.of(drawn).active(), row, evidence

    def _deal(self, pool: list[ClientId], seed: Seed) -> dict[ClientId, int]:
        """A random balanced assignment: shuffled, then dealt in turn."""
        order = seed.fold("deal").permutation(len(pool))
        return {pool[client]: int(place % self.clusters) for place, client in enumerate(order)}

    def _prepare(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        after = dataclasses.replace(now, prepared=now.prepared + 1)
        if self.balanced_share and now.prepared == 0:
            banks = tuple(self._balance(now, r, fed, cohort, seed) for r in range(self.restarts))
            return Round(dataclasses.replace(after, banks=banks))
        if self.shared == "frozen":
            start = now.pretrained or tree.row(now.banks[0], 0)
            one = average(start, fed, cohort, seed.fold("warm"), self.local, self.weights)
            banks = tuple(self._with_body(bank, one.state, now.layers) for bank in now.banks)
            after = dataclasses.replace(after, banks=banks, pretrained=one.state)
            return Round(after, one.assignment, one.loss, one.distances)
        # Dealt once and kept: a step of preparing has draws of its own, the groups stay.
        row = dict(now.assignment) or self._deal(sorted(cohort.available), cohort.seed.fold("warm"))
        how = dataclasses.replace(self._mean("params", "choice"), by=row)
        sent: list[dict[str, Any]] = [{"start": PerClient(bank, row), "local": self.local} for bank in now.banks]
        got = [fed.ask(cohort, fit, seed.fold("warm", r), reduce=how, **each) for r, each in enumerate(sent)]
        banks = tuple(self._share(bank, replies, now) for bank, replies in zip(now.banks, got, strict=True))
        after = dataclasses.replace(after, banks=banks, assignment=ClientMap(row))
        return Round(after, {c: row[c] for c in got[0].clients}, loss_of(got[0]))

    def _balance(self, now: State, r: int, fed: Federation, cohort: Cohort, seed: Seed) -> Bank:
        """Starts of which each is the best for enough clients; at most 100 attempts."""
        bank = now.banks[r]
        some = cohort.draw(cohort.available, 100, name="ifca balance")
        for attempt in range(1, 101):
            name = seed.fold("balance", r, attempt)
            choice = fed.ask(some, closest, name, **self._sent(now, bank))["choice"]
            # A hair less than the product: 0.28·25 is 7.000000000000001 in floating point.
            if np.bincount(choice, minlength=self.clusters).min() >= self.balanced_share * len(choice) - 1e-9:
                return bank
            bank = self._draw(fed.task, name)
        raise SpecError(
            f"ifca drew 100 starts and none gave each cluster a share of {self.balanced_share}; lower balanced_share"
        )

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Serve each client, newcomers too, the model with the lowest loss on its training examples."""
        bank = now.banks[now.best]
        got = fed.ask(clients, closest, seed, **self._sent(now, bank))
        return Placement(bank, got.by_client("choice"))


def _evidence(got: Replies) -> dict[str, Any]:
    return {"clients": list(got.clients), "losses": got["losses"]}
