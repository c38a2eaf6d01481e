"""FedSoft: clients are mixtures of kinds; each trains a model of its own, pulled to the centers that fit its examples.

Ruan, Joe-Wong, "FedSoft: Soft Clustered Federated Learning with Proximal Local Updating", AAAI 2022,
arXiv:2112.06053. Algorithm 1, with S centers c_s and a model w_k of each client:

    every τ rounds, all clients:
    n_ks = #{examples whose smallest loss over the centers is at s},  σ n_k where that is 0
    u_ks = n_ks / n_k                                             client: n_ks; server: the rest
    v_sk = u_ks n_k / Σ_j u_js n_j                                server: of each center, sums to 1
    in every round:
    Sel_s = K clients without replacement, drawn by v_s           server
    w_k ≈ argmin_w f_k(w) + (λ/2) Σ_s u_ks ||w - c_s||²           client k of any Sel_s: from its own w_k
    c_s ← (1/K) Σ_{k∈Sel_s} w_k                                   server; where all train: Σ_k v_sk w_k

S is `clusters`, c_s row s of `bank`, u_k is `weights[k]`, σ `sigma`, τ `estimate_every`, λ `mu`, K `members`. The pulls
add up to λ U (w - m) with U = Σ_s u_ks and m = Σ_s u_ks c_s / U: one pull to the mean center. w_k stays in the client's
memory and goes to the server after each training. U is a little above 1 where σ fills in; `renormalize` makes it 1.

A client is served its own model w_k, with `serve="center"` the center of its largest weight. Down: S models for whoever
counts, S for whoever trains, w_0 once (`base`); up: S counts, 1 model.

Departures. Who has never trained is served the center of its largest weight, not w_0. Ties between losses go to the
lowest s. A center none of whose clients replied keeps its model to the bit, and a client whose counts are lost keeps
its weights. Where an estimating round is skipped, the next one estimates. Stragglers are dropped. A robust rule counts
all models alike that it is given, and since everyone has a weight on every center, all centers would be the same where
all train: there, each client's model goes to the center of its largest weight alone. SR-FCA's baseline of this name is
another algorithm, without pull and without models of the clients' own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from coterie import tree
from coterie.client_map import ClientMap
from coterie.clients import TRAINED, Client, LocalSGD, Model, Settings, Values, Work, train
from coterie.clients.local import lengths, plan
from coterie.clients.scores import losses_per_example
from coterie.codec import state
from coterie.errors import SpecError
from coterie.federation.protocol import Adapt, Cached, Cohort, Federation, PerClient, Replies
from coterie.methods.fedavg import loss_of
from coterie.methods.local import blank, own
from coterie.methods.protocol import Placement, Round, Stage, check_choices
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


def _nearest(task: Task, x: Any, y: Any, *, centers: Bank) -> dict[str, Any]:
    import jax.numpy as jnp

    losses = losses_per_example(task, x, y, centers=centers)["losses"]  # (rows, S)
    nearest = jnp.argmin(losses, axis=1)  # over the centers; ties go to the lowest
    return {"counts": (nearest[:, None] == jnp.arange(losses.shape[1])).astype(jnp.float32)}


def _fit(task: Task, client: Client, *, start: Params, centers: Bank, weights: Any, local: LocalSGD) -> dict[str, Any]:
    import jax.numpy as jnp

    total = jnp.sum(weights)  # U
    share = weights / total

    def mean(leaf: Any) -> Any:
        return jnp.sum(share.reshape(-1, *[1] * (leaf.ndim - 1)) * leaf, axis=0)

    done = train(task, own(client, start), client, local, anchor=tree.map(mean, centers), pull=total)
    return {**done, "memory": {"known": jnp.ones((), jnp.int32), "params": done["params"]}}


def _recall(task: Task, client: Client, *, otherwise: Params) -> dict[str, Any]:
    return {"params": own(client, otherwise)}


_CENTRES = Model(("s",))

#: n_ks: how many examples fit each center best.
count_nearest = Work(
    "fedsoft.count",
    takes={"centers": _CENTRES},
    gives={"counts": Values("float32", ("s",), purpose="control")},
    purpose="estimate",
    each=_nearest,
)

#: Train the client's own model, `start` where it has none, pulled to the mean of the centers by its weights.
fit_mixture = Work(
    "fedsoft.fit",
    takes={
        "start": Model(purpose="base"),
        "centers": _CENTRES,
        "weights": Values("float32", ("s",), purpose="control"),
        "local": Settings(LocalSGD),
    },
    gives=TRAINED,
    stream="batches",
    plan=plan,
    lengths=lengths,
    body=_fit,
    memory="fedsoft.own",
    blank=blank,
)

#: The client's own model; `otherwise` where it has none.
recall = Work(
    "fedsoft.recall",
    takes={"otherwise": Model()},
    gives={"params": Model()},
    body=_recall,
    memory="fedsoft.own",
    recalls=True,
    blank=blank,
)


@state
@dataclass(frozen=True)
class State:
    """Where a run of FedSoft is.

    Attributes:
        start: w_0, where a client's own model begins.
        bank: The centers.
        weights: Client → u_k, as of its last counting.
        samples: Client → n_k, as of then.
        estimated: How many spans of τ rounds have had their estimate.
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
        """The shares v of these clients: (S, clients), of each center with the sum 1; zeros where it is nobody's."""
        asked = list(clients)
        parts = self.table(asked).T * np.array([self.samples[client] for client in asked])
        total = parts.sum(axis=1, keepdims=True)
        shares: Array = np.divide(parts, total, out=np.zeros_like(parts), where=total > 0)
        return shares

    def largest(self, clients: Iterable[ClientId]) -> dict[ClientId, int]:
        """Client → the center of its largest weight, of those that have weights; ties go to the lowest."""
        return {client: int(self.weights[client].argmax()) for client in clients if client in self.weights}


@dataclass(frozen=True)
class FedSoft:
    """S centers; every client trains one model between them.

    Attributes:
        local: How clients train; its own `mu` is not used.
        clusters: S.
        mu: λ, the pull of the centers.
        sigma: σ, the weight of a center that no example fits best.
        estimate_every: τ, rounds between estimates of the weights by all clients.
        selection: Who trains: clients drawn for each center by their weights, or all.
        members: K, clients drawn for each center; 0 for an equal share of the cohort, rounded up.
        renormalize: Make the weights of a client add up to 1 where σ has filled in.
        serve: A client's own model, or the center of its largest weight.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    clusters: int = 2
    mu: float = 0.1
    sigma: float = 1e-4
    estimate_every: int = 1
    selection: Literal["drawn", "all"] = "drawn"
    members: int = 0
    renormalize: bool = False
    serve: Literal["own", "center"] = "own"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)
        for name, least in (("clusters", 1), ("estimate_every", 1), ("members", 0)):
            if getattr(self, name) < least:
                raise SpecError(f"method.{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 <= self.mu < float("inf"):
            raise SpecError(f"method.mu must be a finite number of at least 0, got {self.mu}")
        if not 0 <= self.sigma <= 1:
            raise SpecError(f"method.sigma must lie between 0 and 1, got {self.sigma}")

    def start(self, task: Task, seed: Seed) -> State:
        """Independent centers, of which the first is every method's, and the client models' start."""
        names = [("init",) if s == 0 else ("init", s) for s in range(self.clusters)]
        bank = tree.stack(task.init(seed.fold(*name)) for name in names)
        return State(tree.row(bank, 0), bank)

    def stage(self, now: State) -> Stage:
        """Rounds, nothing else."""
        return "train"

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """Count where it is due, draw, train, move the centers."""
        evidence: dict[str, Any] = {}
        span = cohort.t // self.estimate_every
        if now.estimated <= span:
            counted = fed.ask(cohort.of(cohort.available), count_nearest, seed, centers=now.bank)
            now = dataclasses.replace(self._weighted(now, counted), estimated=span + 1)
            known = [client for client in counted.clients if client in now.weights]
            evidence = {"clients": known, "weights": now.table(known)}
        chosen = self._choose(now, cohort)
        everyone = cohort.of(client for clients in chosen for client in clients).active()
        empty = self.clusters - len(set(now.largest(now.weights).values()))
        if not len(everyone):
            return Round(now, evidence=evidence, counts={"empty_clusters": empty})
        got = fed.ask(
            everyone,
            fit_mixture,
            seed,
            start=Cached(now.start),
            centers=now.bank,
            weights=PerClient(now.table(everyone).astype(np.float32), {client: i for i, client in enumerate(everyone)}),
            local=dataclasses.replace(self.local.at(cohort.t), mu=self.mu),
        )
        after = dataclasses.replace(now, bank=self._centres(now, fed, chosen, got))
        assignment = now.largest(got.clients)
        near = tree.take(after.bank, list(assignment.values()))
        distances = dict(zip(got.clients, tree.row_distances(got["params"], near).tolist(), strict=True))
        return Round(after, assignment, loss_of(got), distances, evidence, {"empty_clusters": empty})

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Each its own model, or the center of its largest weight; newcomers count, and are served that center."""
        asked = list(clients)
        row = now.largest(asked)
        got = fed.ask([client for client in asked if client not in row], count_nearest, seed, centers=now.bank)
        row |= {client: int(counts.argmax()) for client, counts in got.by_client("counts").items()}
        if self.serve == "center":
            return Placement(now.bank, row)
        return Placement(now.bank, row, Adapt(recall, {"otherwise": PerClient(now.bank, row)}))

    def _weighted(self, now: State, got: Replies) -> State:
        """The state with u_k and n_k of those who counted; without examples there is nothing to weigh."""
        samples = dict(zip(got.clients, got.samples.tolist(), strict=True))
        weights = {}
        for client, counts in got.by_client("counts").items():
            if samples[client]:
                u = np.where(counts > 0, counts.astype(np.float64) / samples[client], self.sigma)
                weights[client] = u / u.sum() if self.renormalize else u
        return dataclasses.replace(now, weights=now.weights.set(weights), samples=now.samples.set(samples))

    def _choose(self, now: State, cohort: Cohort) -> list[tuple[ClientId, ...]]:
        """Sel_s of each center."""
        pool = [client for client in cohort.available if client in now.weights and now.samples[client]]
        if self.selection == "all":
            return [tuple(pool)] * self.clusters
        size = self.members or -(-len(cohort) // self.clusters)
        return [
            cohort.draw(pool, size, weights=dict(zip(pool, v.tolist(), strict=True)), name=f"fedsoft {s}").clients
            for s, v in enumerate(now.importance(pool))
        ]

    def _centres(self, now: State, fed: Federation, chosen: list[tuple[ClientId, ...]], got: Replies) -> Bank:
        """Each center at the mean of those of its clients who replied; one without any keeps its model to the bit."""
        if self.selection == "all":
            shares = now.importance(got.clients)
            if fed.robust:
                largest = np.array([now.weights[client].argmax() for client in got.clients], np.int64)
                shares = shares * (largest == np.arange(self.clusters)[:, None])
        else:
            shares = np.array([[client in set(clients) for client in got.clients] for clients in chosen], np.float64)
        return tree.stack(
            fed.average(got["params"], share) if share.any() else tree.row(now.bank, s)
            for s, share in enumerate(shares)
        )
