"""SR-FCA: clusters from the bottom up, refined by training them robustly and letting clients move and clusters merge.

Vardhan, Ghosh, Mazumdar, "An Improved Federated Clustering Algorithm with Model-based Clustering", TMLR 2024,
arXiv:2210.11538. Algorithms 1 to 4; the number of clusters is found, not given:

    C_0 ← ONE_SHOT(λ, t)                                               methods/one_shot.py
    REFINE, r = 1 … R:
      TrimmedMeanGD  ω_c ← w_0, then T times                           in every cluster c of C_{r-1}
                       ω_c ← TrMean_β{LocalUpdate_i(ω_c)}              mode `models`: i of at most K members
                       ω_c ← ω_c - η TrMean_β{∇f_i(ω_c)}               mode `gradients`
      RECLUSTER      C'(i) = argmin_c dist(ω_c, w_i)                   every client i; w_i stays that of ONE_SHOT
      MERGE          an edge between c and c' where dist(ω_c, ω_c') ≤ λ; components become one cluster, with the mean ω

w_i and f_i(w_j) are in `trained`, ω_c is row c of `bank`, C is `row`, λ `threshold`, t `min_size`, β `beta`, R is
`refines`, T `refine_rounds`, K `members`, η `local.learning_rate`. TrMean is `aggregation.trimmed_mean`.

ONE_SHOT, and RECLUSTER with MERGE, are steps of preparing; the training of all clusters is one round for each of T. The
record's parts: `one shot`, scored with every client's own model, which is the baseline Local; `train 1`, scored as the
published code does, before clients move and without those that have no cluster yet (its acc_pre); `refine 1`, after
MERGE, everyone with the merged models; and so on; `final`.

Departures. In RECLUSTER a cluster of fewer than t clients is dissolved and its clients join the nearest that is left
(the code leaves them out); f_c is over the members before. MERGE looks at the members after; the size that the paper
asks of its components is that of their clients, which RECLUSTER has seen to. Clusters are numbered as the rows of
`bank`, and models and members are renumbered together (in the code MERGE may compare the wrong ones). Who missed
ONE_SHOT trains alone before the next RECLUSTER; later, if it is in the cohort of a round of final training, it does so
before that round and joins the nearest cluster. The projection is left out. With `start_from="continue"`, as in a
variant of the code, training goes on from the merged models, in whose means clusters count their clients. A round of
training that nobody answered is not made up; after a REFINE without any other the clusters stay as they are. The means
of REFINE are trimmed whatever rule the federation averages by, which takes them where β = 0, and in `final`. Clients of
a round train side by side; in the code they share the arrays of their cluster's model and train it in turn, which makes
its rounds K times as long. As the paper suggests, `final` trains the clusters found without trimming. One λ serves
clients and clusters: with l2, a cluster must train about as long as a client alone, or its model stays nearer to the
others than λ and MERGE joins them all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from coterie import tree
from coterie.aggregation import trimmed_mean, weighted_mean
from coterie.client_map import ClientMap
from coterie.clients import fit, gradient, losses_of
from coterie.clustering import merge, nearest
from coterie.codec import state
from coterie.errors import SpecError, TooFewReplies
from coterie.federation.protocol import Cohort, Federation, Mean, PerClient, Replies
from coterie.methods.fedavg import distances_of, loss_of, move_groups
from coterie.methods.one_shot import Locals, OneShot, between_centres, joined, one_shot, places, to_centres
from coterie.methods.protocol import Placement, Round, Stage, from_run
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """Where a run of SR-FCA is.

    Attributes:
        w0: The common initial model.
        bank: The clusters' models.
        row: The cluster of each client that has one.
        trained: Who trained alone, and what is known of their models; None before ONE_SHOT.
        threshold: λ.
        refined: REFINE steps done.
        rounds: Rounds gone by.
        fresh: Whether nobody has trained since ONE_SHOT or the last REFINE.
    """

    w0: Params
    bank: Bank
    row: ClientMap[int] = field(default_factory=ClientMap)
    trained: Locals | None = None
    threshold: float = 0.0
    refined: int = 0
    rounds: int = 0
    fresh: bool = True


@dataclass(frozen=True)
class SRFCA(OneShot):
    """Clusters of clients that train alone, then R times: train each, move clients, merge clusters.

    Attributes:
        refines: R.
        refine_rounds: T, rounds of training in each REFINE; 0 to share out the run's among them and final training.
        members: K, so many clients of each cluster train in a round; 0 for all.
        mode: Clients train, and models are averaged; or they give gradients, of which `local` sets the rate alone.
        beta: β, the share of values trimmed at each end, instead of [aggregation]; 0 for a mean by its rule.
        start_from: Each REFINE trains from w_0, or from where the one before ended.
        final: Train the clusters found in the rounds that are left: not, by FedAvg or by FedProx.
        mu: With FedProx: the pull towards the cluster's model.
        rounds: Of the run.
    """

    refines: int = 2
    refine_rounds: int = 0
    members: int = 10
    mode: Literal["models", "gradients"] = "models"
    beta: float = 0.15
    start_from: Literal["w0", "continue"] = "w0"
    final: Literal["none", "fedavg", "fedprox"] = "none"
    mu: float = 1.0
    rounds: int = from_run("rounds")

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        super().__post_init__()
        for name, least in (("refines", 1), ("refine_rounds", 0), ("members", 0)):
            if getattr(self, name) < least:
                raise SpecError(f"method.{name} of srfca must be at least {least}, got {getattr(self, name)}")
        if not 0 <= self.beta < 0.5:
            raise SpecError(f"method.beta of srfca must be at least 0 and less than 0.5, got {self.beta}")
        if not 0 <= self.mu < float("inf"):
            raise SpecError(f"method.mu of srfca must be a finite number of at least 0, got {self.mu}")
        parts = self.refines * max(self.refine_rounds, 1) + (self.final != "none")
        if self.rounds < parts:
            raise SpecError(
                f"srfca with refines = {self.refines}, refine_rounds = {self.refine_rounds} and final = {self.final!r} "
                f"needs run.rounds of at least {parts}, got {self.rounds}"
            )

    @property
    def training(self) -> int:
        """T: rounds of training in each REFINE."""
        return self.refine_rounds or self.rounds // (self.refines + (self.final != "none"))

    @property
    def own_mean(self) -> str:
        """Which of its means the federation's rule does not take, in words; empty for none."""
        return f"those of REFINE are trimmed by method.beta = {self.beta}, unless that is 0" if self.beta else ""

    def start(self, task: Task, seed: Seed) -> State:
        """w_0, and nobody knows anything."""
        w0 = task.init(seed.fold("init"))
        return State(w0, tree.stack([w0]))

    def stage(self, now: State) -> Stage:
        """ONE_SHOT prepares, and so does what comes after the training of each REFINE."""
        if now.trained is None or self._trained(now):
            return "prepare"
        last = self.rounds if self.final != "none" else self.refines * self.training
        return "train" if now.refined < self.refines or now.rounds < last else "done"

    def _trained(self, now: State) -> bool:
        """Whether the rounds of the REFINE at hand are over."""
        return now.refined < self.refines and now.rounds >= (now.refined + 1) * self.training

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """ONE_SHOT; or a round of training in every cluster; or RECLUSTER and MERGE."""
        if now.trained is None:
            trained, row, threshold, evidence = one_shot(self, now.w0, fed, cohort, seed)
            bank = tree.stack([now.w0] * (max(row.values()) + 1))
            after = State(now.w0, bank, ClientMap(row), trained, threshold)
            return Round(after, row, evidence=evidence, label="one shot", closes=True)
        step = self._regroup if self._trained(now) else self._train
        return step(now, fed, cohort, seed)

    def _train(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        final = now.refined == self.refines
        joined = self._join(now, fed, cohort, seed.fold("join")) if final else {}
        now = dataclasses.replace(now, row=now.row.set(joined), rounds=cohort.t + 1)
        part: dict[str, Any] = {"label": "final" if final else f"train {now.refined + 1}"}
        part["closes"] = self.stage(now) != "train"
        anew = now.fresh and self.start_from == "w0" and not final
        bank = tree.stack([now.w0] * tree.rows(now.bank)) if anew else now.bank
        try:
            bank, got, distances = self._moved(bank, now, fed, self._drawn(now, cohort, final), seed, final)
        except TooFewReplies as fault:
            # It counts all the same: RECLUSTER and MERGE are due after so many rounds, be it the last of the run.
            return Round(now, joined, skipped=str(fault), **part)
        assert now.trained is not None
        kept = now.trained if self.distance == "l2" else dataclasses.replace(now.trained, models={})
        after = dataclasses.replace(now, bank=bank, trained=kept, fresh=False)
        took_part = joined | {client: now.row[client] for client in got.clients}
        return Round(after, took_part, loss_of(got), distances, **part)

    def _drawn(self, now: State, cohort: Cohort, final: bool) -> Cohort:
        """At most K members of each cluster; stragglers count in FedProx alone.

        Raises:
            TooFewReplies: If nobody is left.
        """
        members: list[list[ClientId]] = [[] for _ in range(tree.rows(now.bank))]
        for client in cohort.available:
            if client in now.row:
                members[now.row[client]].append(client)
        drawn = [cohort.draw(pool, self.members or len(pool), name=f"srfca {c}") for c, pool in enumerate(members)]
        everyone = cohort.of(client for each in drawn for client in each)
        able = everyone if final and self.final == "fedprox" else everyone.active()
        if not len(able):
            raise TooFewReplies(f"Of {len(everyone)} clients nobody has time to train")
        return able

    def _moved(
        self, bank: Bank, now: State, fed: Federation, cohort: Cohort, seed: Seed, final: bool
    ) -> tuple[Bank, Replies, dict[ClientId, float]]:
        """The clusters' models after a round, who answered, and how far each reply is from its cluster's model."""
        row = {client: now.row[client] for client in cohort}
        local = self.local.at(cohort.t)
        if self.mode == "gradients" and not final:
            got = fed.ask(cohort, gradient, seed, params=PerClient(bank, row))
            slopes, moves = self._trimmed(tree.map(np.zeros_like, bank), row, fed, got, "gradient")
            stepped = tree.map(
                lambda w, g: (w - local.learning_rate * g.astype(np.float64)).astype(w.dtype), bank, slopes
            )
            return tree.where_rows(moves, stepped, bank), got, {}
        if final and self.final == "fedprox":
            local = dataclasses.replace(local, mu=self.mu)
        sent: dict[str, Any] = {"start": PerClient(bank, row), "local": local}
        if final or self.beta == 0:
            how = Mean(groups=tree.rows(bank), by=row, weights="uniform", spread=True)
            got = fed.ask(cohort, fit, seed, reduce=how, **sent)
            return move_groups(bank, got), got, dict(distances_of(got))
        got = fed.ask(cohort, fit, seed, **sent)
        bank, _ = self._trimmed(bank, row, fed, got, "params")
        spread = tree.row_distances(got["params"], tree.take(bank, [row[client] for client in got.clients]))
        return bank, got, dict(zip(got.clients, spread.tolist(), strict=True))

    def _trimmed(
        self, bank: Bank, row: dict[ClientId, int], fed: Federation, got: Replies, name: str
    ) -> tuple[Bank, Array]:
        """TrMean_β of each cluster's replies, where there are any; who has no examples counts for nothing."""
        rows = np.array([row[client] for client in got.clients], np.int64)
        models, found = [tree.row(bank, c) for c in range(tree.rows(bank))], np.zeros(tree.rows(bank), bool)
        for c in np.unique(rows[got.samples > 0]).tolist():
            mine = np.flatnonzero((rows == c) & (got.samples > 0))
            some, found[c] = tree.take(got[name], mine), True
            models[c] = trimmed_mean(some, self.beta) if self.beta else fed.average(some, np.ones(len(mine)))
        return tree.stack(models), found

    def _regroup(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """RECLUSTER and MERGE."""
        done, label = now.refined + 1, f"refine {now.refined + 1}"
        if now.fresh:  # nobody has trained: there are no models to compare
            return Round(dataclasses.replace(now, refined=done), dict(now.row), label=label, closes=True)
        everyone = dataclasses.replace(cohort.of(cohort.available), efforts={})
        trained = self._latecomers(now, fed, everyone, seed)
        before = np.array([now.row.get(client, -1) for client in trained.clients])
        own = np.full((len(before), tree.rows(now.bank)), np.nan)
        if self.distance == "cross":
            asked = everyone.of(set(trained.clients).intersection(everyone))
            got = fed.ask(asked, losses_of, seed.fold("recluster"), centers=now.bank)
            own[places(trained.clients, got.clients)] = got["losses"]
        apart = to_centres(self, now.bank, trained.models, trained.table, before, own)
        labels = nearest(apart, self.min_size)
        between = between_centres(self, now.bank, labels, own)
        merged, parts = merge(labels, between, now.threshold)
        sizes = np.bincount(labels, minlength=len(between)) if self.start_from == "continue" else np.ones(len(between))
        bank = tree.stack(weighted_mean(tree.take(now.bank, part), sizes[part]) for part in parts)
        row = dict(zip(trained.clients, merged.tolist(), strict=True))
        after = State(now.w0, bank, ClientMap(row), trained, now.threshold, done, now.rounds)
        evidence = {"clients": list(row), "labels": merged, "distances": apart, "clusters": between, "merged": parts}
        left = sum(map(len, parts))
        counts = {
            "clients_moved": int((labels != before).sum()),
            "clusters_dissolved": len(between) - left,
            "clusters_merged": left - len(parts),
        }
        return Round(after, row, evidence=evidence, counts=counts, label=label, closes=True)

    def _latecomers(self, now: State, fed: Federation, everyone: Cohort, seed: Seed) -> Locals:
        """Who trained alone, and those who missed ONE_SHOT, who do it now."""
        assert now.trained is not None
        late = set(everyone).difference(now.trained.clients)
        if not late:
            return now.trained
        got = fed.ask(everyone.of(late), fit, seed, start=now.w0, local=self.alone, min_replies=0)
        return joined(self, now.trained, got, fed, everyone, seed) if len(got) else now.trained

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Each its cluster's model, right after ONE_SHOT its own; a newcomer trains alone to be placed."""
        everyone = list(clients)
        if now.trained is None:
            return Placement(now.bank, dict.fromkeys(everyone, 0))
        alone = now.fresh and now.refined == 0
        known = {client: i for i, client in enumerate(now.trained.clients)} if alone else now.row
        bank, row = now.trained.models if alone else now.bank, {c: known[c] for c in everyone if c in known}
        strangers = [client for client in everyone if client not in row]
        got = fed.ask(strangers, fit, seed, start=now.w0, local=self.alone, min_replies=0)
        if not len(got):
            return Placement(bank, row)
        if alone:
            new = {client: tree.rows(bank) + i for i, client in enumerate(got.clients)}
            return Placement(tree.concatenate([bank, got["params"]]), row | new)
        return Placement(bank, row | self._joining(now, fed, got, now.row, seed))

    def _join(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> dict[ClientId, int]:
        """The clusters of those of a cohort who have none yet and train alone for it; who is lost stays without."""
        cold = [client for client in cohort.active() if client not in now.row]
        got = fed.ask(cohort.of(cold), fit, seed, start=now.w0, local=self.alone, min_replies=0) if cold else None
        members = [client for client in cohort.available if client in now.row]
        return self._joining(now, fed, got, members, seed, cohort.of) if got else {}

    def _joining(
        self,
        now: State,
        fed: Federation,
        got: Replies,
        members: Iterable[ClientId],
        seed: Seed,
        of: Callable[[Iterable[ClientId]], Iterable[ClientId]] = list,
    ) -> dict[ClientId, int]:
        """The nearest cluster of each of those who have just trained alone; `members` score their models."""
        own = np.full((len(got), tree.rows(now.bank)), np.nan)
        losses, labels = np.zeros((0, len(got))), np.zeros(0, np.int64)
        if self.distance == "cross":
            heard = fed.ask(of(members), losses_of, seed.fold("others"), centers=got["params"], min_replies=0)
            losses, labels = heard["losses"].reshape(-1, len(got)), np.array([now.row[c] for c in heard.clients], int)
            mine = fed.ask(of(got.clients), losses_of, seed.fold("own"), centers=now.bank, min_replies=0)
            own[places(got.clients, mine.clients)] = mine["losses"].reshape(-1, own.shape[1])
            if not len(heard) and not len(mine):
                return {}
        apart = to_centres(self, now.bank, got["params"], losses, labels, own)
        return dict(zip(got.clients, nearest(apart).tolist(), strict=True))
