"""FedSoft: clients are mixtures of clusters; each trains its own model with a proximal term to the centers that fit it.

Ruan, Joe-Wong, "FedSoft: Soft Clustered Federated Learning with Proximal Local Updating", AAAI 2022,
arXiv:2112.06053. Algorithm 1, with S centers c_s and a model w_k of each client:

    every τ rounds, all clients:
    n_ks = #{samples whose smallest loss over the centers is at s},  σ n_k where that is 0
    u_ks = n_ks / n_k                                             client: n_ks; server: u_ks
    v_sk = u_ks n_k / Σ_j u_js n_j                                server: for each center, sums to 1
    in every round:
    Sel_s = K clients without replacement, drawn by v_s           server
    w_k ≈ argmin_w f_k(w) + (λ/2) Σ_s u_ks ||w - c_s||²           client k of any Sel_s: from its own w_k
    c_s ← (1/K) Σ_{k∈Sel_s} w_k                                   server; if all clients train: Σ_k v_sk w_k

S is `clusters`, c_s row s of `bank`, u_k is `weights[k]`, σ `sigma`, τ `estimate_every`, λ `mu`, K `members`. The
client half is in `fedsoft_client.py`. Σ_s u_ks is slightly above 1 where σ replaces zeros; `renormalize` makes it 1.

A client is served its own model w_k; with `serve="center"` the center with its largest weight. Traffic: a client that
counts receives S models and sends S numbers; a client that trains receives S models, the first time also w_0 (`base`),
and sends 1 model.

Departures from the paper. A client that has never trained is served the center with its largest weight, not w_0. Ties
between losses go to the lowest s. A center without replies keeps its model to the bit, and a client whose counts are
lost keeps its weights. If an estimating round is skipped, the next one estimates. Stragglers are dropped. A robust
aggregation rule gives all models the same weight, and every client has a weight on every center, so with
`selection="all"` all centers would become equal; in this case, the model of a client enters only the center with its
largest weight. The paper has two sources; the default is S = 4, because on digits in one, two or four rotations four
centers give better models than two. The baseline called FedSoft in SR-FCA's paper is a different algorithm, without
proximal terms or client models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np

from coterie import tree
from coterie.bounds import Bound, check
from coterie.client_map import ClientMap
from coterie.clients import LocalSGD
from coterie.codec import state
from coterie.federation.protocol import Adapt, Cached, Cohort, Federation, PerClient, Replies
from coterie.methods.fedavg import global_model, loss_of
from coterie.methods.fedsoft_client import count_nearest, fit_mixture, recall
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """State of a run of FedSoft.

    Attributes:
        start: w_0, the initial model of all clients.
        bank: The centers.
        weights: Client → u_k, from its last counts.
        samples: Client → n_k, from its last counts.
        estimated: Number of periods of τ rounds whose estimate is done.
    """

    start: Params
    bank: Bank
    weights: ClientMap[Array] = field(default_factory=ClientMap)
    samples: ClientMap[int] = field(default_factory=ClientMap)
    estimated: int = 0

    def table(self, clients: Iterable[ClientId]) -> Array:
        """The weights u of these clients: (clients, S)."""
        return np.array([self.weights[client] for client in clients], np.float64).reshape(-1, tree.rows(self.bank))

    def importance(self, clients: Iterable[ClientId]) -> Array:
        """The shares v of these clients: (S, clients), rows sum to 1; zeros for a center without clients."""
        listed = list(clients)
        parts = self.table(listed).T * np.array([self.samples[client] for client in listed])
        total = parts.sum(axis=1, keepdims=True)
        shares: Array = np.divide(parts, total, out=np.zeros_like(parts), where=total > 0)
        return shares

    def largest(self, clients: Iterable[ClientId]) -> dict[ClientId, int]:
        """Client → the center with its largest weight, for clients that have weights; ties go to the lowest index."""
        return {client: int(self.weights[client].argmax()) for client in clients if client in self.weights}


@dataclass(frozen=True)
class FedSoft:
    """S centers; every client trains its own model, with a proximal term to all of them.

    Attributes:
        local: Settings of local training; its `mu` is not used.
        clusters: Number of centers (S).
        mu: Weight of the proximal terms (λ).
        sigma: A client's weight for a center that fits none of its samples best (σ).
        estimate_every: Number of rounds between estimates of the weights by all clients (τ).
        selection: Training clients: drawn for each center by their weights, or all.
        members: Clients drawn for each center (K); 0: an equal share of the cohort, rounded up.
        renormalize: Whether the weights of a client are normalized to sum to 1.
        serve: Model served: the client's own, or the center with its largest weight.
    """

    asks_all: ClassVar[str] = "all clients estimate their weights"
    local: LocalSGD = field(default_factory=LocalSGD)
    clusters: Annotated[int, Bound(at_least=1)] = 4
    mu: Annotated[float, Bound(at_least=0)] = 0.1
    sigma: Annotated[float, Bound(at_least=0, at_most=1)] = 1e-4
    estimate_every: Annotated[int, Bound(at_least=1)] = 1
    selection: Literal["drawn", "all"] = "drawn"
    members: Annotated[int, Bound(at_least=0)] = 0
    renormalize: bool = False
    serve: Literal["own", "center"] = "own"

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")

    def start(self, task: Task, seed: Seed) -> State:
        """Independent centers; the first is the initial model of all methods, and of the client models."""
        names = [("init",) if s == 0 else ("init", s) for s in range(self.clusters)]
        bank = tree.stack(task.init(seed.fold(*name)) for name in names)
        return State(tree.row(bank, 0), bank)

    def stage(self, state: State) -> Stage:
        """Always a round: there is no preparation."""
        return "train"

    def round(self, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Estimate the weights if due, draw clients, train them, average the centers."""
        evidence: dict[str, object] = {}
        period = cohort.t // self.estimate_every
        if state.estimated <= period:
            counted = fed.ask(cohort.of(cohort.available), count_nearest, seed, centers=state.bank)
            state = dataclasses.replace(self._weighted(state, counted), estimated=period + 1)
            known = [client for client in counted.clients if client in state.weights]
            evidence = {"clients": known, "weights": state.table(known)}
        chosen = self._choose(state, cohort)
        drawn = dataclasses.replace(cohort, sampling=None)  # by weight or all, not the sampled cohort
        training = drawn.of(client for clients in chosen for client in clients).active()
        empty = self.clusters - len(set(state.largest(state.weights).values()))
        if not len(training):
            return Round(state, evidence=evidence, counts={"empty_clusters": empty})
        start, local = Cached(state.start), dataclasses.replace(self.local.at(cohort.t), mu=self.mu)
        table = state.table(training).astype(np.float32)
        weights = PerClient(table, {client: i for i, client in enumerate(training)})
        got = fed.ask(training, fit_mixture, seed, start=start, centers=state.bank, weights=weights, local=local)
        after = dataclasses.replace(state, bank=self._centers(state, fed, chosen, got))
        assignment = state.largest(got.clients)
        apart = tree.row_distances(got["params"], after.bank, list(assignment.values()))
        distances = dict(zip(got.clients, apart.tolist(), strict=True))
        return Round(after, assignment, loss_of(got), distances, evidence, {"empty_clusters": empty})

    def place(self, state: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """Each client's own model, or the center with its largest weight; newcomers count their samples first."""
        asked = list(clients)
        new = [client for client in asked if client not in state.weights]
        got = fed.ask(new, count_nearest, seed, centers=state.bank)
        state = self._weighted(state, got)
        row = dict.fromkeys(got.clients, 0) | state.largest(asked)  # a client without samples has no weights
        fallback = global_model(state.bank, state.largest(state.weights))
        adapt = None if self.serve == "center" else Adapt(recall, {"otherwise": PerClient(state.bank, row)})
        known = [client for client in got.clients if client in state.weights]
        evidence = {"clients": known, "weights": state.table(known)} if known else {}
        return state, Placement(state.bank, row, adapt, fallback=fallback, evidence=evidence)

    def _weighted(self, state: State, got: Replies) -> State:
        """The state with the new u_k and n_k; clients without samples have no weights."""
        samples = dict(zip(got.clients, got.samples.tolist(), strict=True))
        weights = {}
        for client, counts in got.by_client("counts").items():
            if samples[client]:
                u = np.where(counts > 0, counts.astype(np.float64) / samples[client], self.sigma)
                weights[client] = u / u.sum() if self.renormalize else u
        return dataclasses.replace(state, weights=state.weights.set(weights), samples=state.samples.set(samples))

    def _choose(self, state: State, cohort: Cohort) -> list[tuple[ClientId, ...]]:
        """Sel_s for each center."""
        pool = [client for client in cohort.available if client in state.weights and state.samples[client]]
        if self.selection == "all":
            return [tuple(pool)] * self.clusters
        size = self.members or -(-len(cohort) // self.clusters)
        return [
            cohort.draw(pool, size, weights=dict(zip(pool, v.tolist(), strict=True)), name=f"fedsoft {s}").clients
            for s, v in enumerate(state.importance(pool))
        ]

    def _centers(self, state: State, fed: Federation, chosen: list[tuple[ClientId, ...]], got: Replies) -> Bank:
        """The mean of the replies for each center; a center without replies keeps its model to the bit."""
        if self.selection == "all":
            shares = state.importance(got.clients)
            if fed.robust:
                largest = np.array([state.weights[client].argmax() for client in got.clients], np.int64)
                shares = shares * (largest == np.arange(self.clusters)[:, None])
        else:
            shares = np.array([[client in set(clients) for client in got.clients] for clients in chosen], np.float64)
        return tree.stack(
            fed.average(got["params"], share, clients=got.clients, start=tree.row(state.bank, s))
            if share.any()
            else tree.row(state.bank, s)
            for s, share in enumerate(shares)
        )
