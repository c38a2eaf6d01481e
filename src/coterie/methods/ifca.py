"""IFCA: each client joins the cluster whose model fits it best.

Ghosh, Chung, Yin, Ramchandran, "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020,
arXiv:2006.04088. Algorithm 1:

    (a)  ĵ_i = argmin_j F_i(θ_j)                        client: its cluster (mean loss on its training samples)
    (b)  option I:   g_i = ∇F_i(θ_ĵi)                   client: the gradient of that cluster's model
         option II:  θ̃_i = LocalUpdate(θ_ĵi)            client: train that cluster's model
    (c)  option I:   θ_j ← θ_j - (γ/|M|) Σ_i s_ij g_i   server: s_ij is 1 if ĵ_i = j, else 0; M is the cohort
         option II:  θ_j ← Σ_i s_ij θ̃_i / Σ_i s_ij

θ_j is row j of `bank`, γ is `local.learning_rate`. Weight sharing: the clusters have their lower layers φ in common,
and each has its own head.

Departures from the paper: ties in (a) go to the lowest j, and a cluster that no client chose keeps its model to the bit
(the paper leaves 0/0 open). Extensions from published experiments: a balanced start, a start by client numbers, a warm
start, a fixed number of training clients per cluster, and restarts. Restarts train several independent runs side by
side; the one with the lowest training loss is served. If one initial model is best for all clients, they all choose it
and the others never change; the round counts the empty clusters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np

from coterie import tree
from coterie.bounds import Bound, check
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD, fit
from coterie.clients.closest import closest, fit_closest, gradient_closest, split_layers, with_body
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation, Mean, PerClient, Replies
from coterie.methods.fedavg import distances_of, global_model, loss_of, moved
from coterie.methods.ifca_start import numbered_groups, prepare, random_groups
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """State of a run of IFCA.

    Attributes:
        banks: The k models of each restart.
        losses: Mean training loss of each restart in its last round.
        assignments: Client → cluster that it chose last, for each restart.
        layers: Layers of the model, from input to output.
        prepared: Number of preparation steps done.
        rounds: Number of rounds done.
        pretrained: The model of the warm start with frozen layers.
    """

    banks: tuple[Bank, ...]
    losses: tuple[float, ...]
    assignments: tuple[ClientMap[int], ...]
    layers: tuple[str, ...]
    prepared: int = 0
    rounds: int = 0
    pretrained: Params | None = None

    @property
    def best(self) -> int:
        """The restart with the lowest training loss; the first before any training."""
        return int(np.argmin(self.losses))

    @property
    def assignment(self) -> ClientMap[int]:
        """Client → cluster in the restart that is served."""
        return self.assignments[self.best]

    def with_choices(self, choices: Mapping[ClientId, int]) -> State:
        """The state after clients chose a cluster of the restart that is served."""
        best = self.best
        changed = (a.set(choices) if r == best else a for r, a in enumerate(self.assignments))
        return dataclasses.replace(self, assignments=tuple(changed))


@dataclass(frozen=True)
class IFCA:
    """k models; every client of the cohort trains the one that fits it best.

    Attributes:
        local: Settings of local training.
        clusters: Number of clusters (k).
        averaging: Option II of the paper, `models`, or option I, `gradients`, which uses the learning rate of `local`
            only.
        weights: With `models`: client weight, uniform or number of samples.
        agg: With `models`: model of a cluster: the mean over its clients, or the model of its first client only, as in
            FlexCFL's published code.
        normalizer: With `gradients`: divide by the size of the cohort, as in the paper, or of the cluster.
        first_round: Assignment in the first round: by loss; random with clusters of equal size (`balanced`); or client
            number modulo k (`modulo`), as in SR-FCA's published code.
        members: Training clients per cluster: all clients choose, and this number of each cluster trains. 0: the cohort
            chooses and trains.
        shared: Lower layers: separate for each cluster, averaged over the whole cohort, or frozen after preparation.
        head_layers: With shared layers: number of layers, counted from the output, that are not shared.
        balanced_share: Redraw the initial models until each is the best for at least this fraction of the clients;
            0: never.
        warm_rounds: Steps of FedAvg with all clients before the first round: in k random groups of equal size or, with
            frozen layers, in one group.
        restarts: Number of independent runs side by side; the one with the lowest training loss is served.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    clusters: Annotated[int, Bound(at_least=1)] = 4
    averaging: Literal["models", "gradients"] = "models"
    weights: Literal["uniform", "samples"] = "uniform"
    agg: Literal["mean", "first_only"] = "mean"
    normalizer: Literal["cohort", "cluster"] = "cohort"
    first_round: Literal["loss", "balanced", "modulo"] = "loss"
    members: Annotated[int, Bound(at_least=0)] = 0
    shared: Literal["none", "averaged", "frozen"] = "none"
    head_layers: Annotated[int, Bound(at_least=1)] = 1
    balanced_share: Annotated[float, Bound(at_least=0, at_most=1)] = 0.0
    warm_rounds: Annotated[int, Bound(at_least=0)] = 0
    restarts: Annotated[int, Bound(at_least=1)] = 1

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")
        if self.balanced_share * self.clusters > 1:
            raise SpecError(f"method.balanced_share must be at most 1/clusters, got {self.balanced_share}")
        only_models = self.shared != "none" or self.members or self.first_round != "loss" or self.agg != "mean"
        if self.averaging == "gradients" and only_models:
            raise SpecError("method.averaging='gradients' needs the defaults of shared, members, first_round and agg")

    @property
    def asks_all(self) -> str:
        """Why all clients are asked in a round; empty if only the cohort is."""
        return "all clients choose a cluster before the members of each are drawn" if self.members else ""

    @property
    def not_covered(self) -> str:
        """What is decided from individual replies to works that also return sums: [privacy] does not cover it."""
        return "the choice of the restart by training losses" if self.restarts > 1 else ""

    def start(self, task: Task, seed: Seed) -> State:
        """Independent initial models: of two equal ones the first would win every tie and the other never change."""
        seeds = [seed, *(seed.fold("restart", r) for r in range(1, self.restarts))]
        banks = tuple(self.initial(task, each) for each in seeds)
        return State(banks, (np.inf,) * self.restarts, (ClientMap(),) * self.restarts, task.layers)

    def initial(self, task: Task, seed: Seed) -> Bank:
        """The initial models of one restart."""
        # The first model is the initial model of all methods, so that one cluster is FedAvg to the bit.
        names = [("init",) if j == 0 else ("init", j) for j in range(self.clusters)]
        bank = tree.stack(task.init(seed.fold(*name)) for name in names)
        return with_body(bank, tree.row(bank, 0), self.body(bank, task.layers))

    def body(self, bank: Bank, layers: tuple[str, ...]) -> set[str]:
        """The layers that all clusters share."""
        return set() if self.shared == "none" else set(bank).difference(layers[-self.head_layers :])

    def stage(self, state: State) -> Stage:
        """Preparation: one step for a balanced start, then the warm rounds."""
        steps = self.warm_rounds + (1 if self.balanced_share else 0)
        return "prepare" if state.prepared < steps else "train"

    def round(self, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """One exchange for each restart, as in the paper: all models down, one model and one index up."""
        if self.stage(state) == "prepare":
            return prepare(self, state, fed, cohort, seed)
        seeds = [seed.fold("restart", r) if r else seed for r in range(self.restarts)]
        done = [self._restart(state, bank, fed, cohort, each) for bank, each in zip(state.banks, seeds, strict=True)]
        rounds, choices = zip(*done, strict=True)
        losses = tuple(each.loss if each.loss is not None else state.losses[r] for r, each in enumerate(rounds))
        best, banks = rounds[int(np.argmin(losses))], tuple(each.state for each in rounds)
        assignments = tuple(a.set(chosen) for a, chosen in zip(state.assignments, choices, strict=True))
        after = State(banks, losses, assignments, state.layers, state.prepared, state.rounds + 1, state.pretrained)
        return Round(after, best.assignment, best.loss, best.distances, best.evidence, best.counts)

    def _restart(
        self, state: State, bank: Bank, fed: Federation, cohort: Cohort, seed: Seed
    ) -> tuple[Round[Bank], Mapping[ClientId, int]]:
        """Algorithm 1 for one restart; also returns the clusters that clients chose, trained or not."""
        active, local = cohort.active(), self.local.at(cohort.t)
        base, heads = split_layers(bank, self.body(bank, state.layers))
        if self.averaging == "gradients":
            mean = Mean("gradient", self.clusters, "choice", "uniform")
            got = fed.ask(active, gradient_closest, seed, base=base, heads=heads, reduce=mean)
            return self._result(self._descend(bank, got, local.learning_rate), got, got.by_client("choice"), got)
        if self.shared == "frozen":
            local = dataclasses.replace(local, trainable_layers=state.layers[-self.head_layers :])
        if not self.members and (self.first_round == "loss" or state.rounds > 0):
            means = self._means(bank, "choice", state.layers)
            got = fed.ask(active, fit_closest, seed, base=base, heads=heads, local=local, reduce=means)
            return self._result(self.average(bank, got), got, got.by_client("choice"), got)
        pool, chosen = cohort.of(cohort.available) if self.members else active, None
        if self.first_round == "balanced" and state.rounds == 0:
            row = random_groups(pool, self.clusters, seed)
        elif self.first_round == "modulo" and state.rounds == 0:
            row = numbered_groups(pool, self.clusters, fed.clients)
        else:
            chosen = self.choices(state, bank, fed, pool, seed.fold("assign"))
            row = chosen.by_client("choice")
        if self.members:
            active = self._draw_members(cohort, row).active()
        got = self.train(bank, row, fed, active, seed, local)
        return self._result(self.average(bank, got), got, row, chosen)

    def choices(
        self, state: State, bank: Bank, fed: Federation, clients: Cohort | Iterable[ClientId], seed: Seed
    ) -> Replies:
        """(a): the cluster of each client."""
        base, heads = split_layers(bank, self.body(bank, state.layers))
        return fed.ask(clients, closest, seed, base=base, heads=heads)

    def _draw_members(self, cohort: Cohort, row: Mapping[ClientId, int]) -> Cohort:
        pools = [[client for client in row if row[client] == j] for j in range(self.clusters)]
        drawn = [cohort.draw(pool, self.members, name=f"ifca {j}") for j, pool in enumerate(pools)]
        return drawn[0].of(client for each in drawn for client in each)

    def train(
        self, bank: Bank, row: dict[ClientId, int], fed: Federation, cohort: Cohort, seed: Seed, local: LocalSGD
    ) -> Replies:
        """(b), option II, with a given assignment."""
        means = self._means(bank, row, fed.task.layers)
        return fed.ask(cohort, fit, seed, start=PerClient(bank, row), local=local, reduce=means)

    def _means(self, bank: Bank, by: Mapping[ClientId, int] | str, layers: tuple[str, ...]) -> list[Mean]:
        """The mean of each cluster or, with averaged layers, of its own layers; then that of the shared layers."""
        weights = "first" if self.agg == "first_only" else self.weights
        own = Mean("params", self.clusters, by, weights, spread=True)
        body = self.body(bank, layers) if self.shared == "averaged" else set()
        if not body:
            return [own]
        # One mean over the whole cohort, not one of the clusters' means: a robust rule needs the clients' own models.
        shared = Mean("params", weights=self.weights, spread=True, layers=tuple(sorted(body)))
        return [dataclasses.replace(own, layers=tuple(sorted(set(bank) - body))), shared]

    def average(self, bank: Bank, got: Replies) -> Bank:
        """(c), option II; averaged layers are the same in all clusters."""
        mean, weight = got.means()
        bank = {**bank, **moved({layer: bank[layer] for layer in mean}, mean, weight)}
        if len(got.reduced) == 1:
            return bank
        common, weight = got.means(1)
        return with_body(bank, tree.row(common, 0), set(common)) if weight[0] else bank

    def _descend(self, bank: Bank, got: Replies, rate: float) -> Bank:
        """(c), option I."""
        mean, weight = got.means()
        share = weight / max(weight.sum(), 1.0) if self.normalizer == "cohort" else np.ones(self.clusters)

        def step(theta: Array, gradient: Array) -> Array:
            factor = (rate * share).reshape(-1, *[1] * (theta.ndim - 1))
            return (theta - factor * gradient).astype(theta.dtype)

        return tree.where_rows(weight > 0, tree.map(step, bank, mean), bank)

    def _result(
        self, bank: Bank, got: Replies, row: Mapping[ClientId, int], chosen: Replies | None
    ) -> tuple[Round[Bank], Mapping[ClientId, int]]:
        """The round of a restart, and `row`.

        Args:
            bank: The new models.
            got: Replies of the clients that trained.
            row: Client → cluster.
            chosen: Replies that hold the losses behind `row`; None for a random assignment.
        """
        trained = {client: row[client] for client in got.clients}
        evidence = {} if chosen is None else {"clients": list(chosen.clients), "losses": chosen["losses"]}
        sizes = np.bincount(np.array(list(row.values()), np.int64), minlength=self.clusters)
        counts = {"empty_clusters": int((sizes == 0).sum())}
        return Round(bank, trained, loss_of(got), distances_of(got), evidence, counts), row

    def place(self, state: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """The model with the lowest loss on each client's training samples; without a reply, its last choice."""
        bank, asked = state.banks[state.best], list(clients)
        got = self.choices(state, bank, fed, asked, seed)
        state = state.with_choices(got.by_client("choice"))
        row = {client: state.assignment[client] for client in asked if client in state.assignment}
        evidence = {"clients": list(got.clients), "losses": got["losses"]} if len(got) else {}
        return state, Placement(bank, row, fallback=global_model(bank, state.assignment), evidence=evidence)
