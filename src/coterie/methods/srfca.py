"""SR-FCA: cluster clients by their own models, then refine: train clusters robustly, move clients, merge clusters.

Vardhan, Ghosh, Mazumdar, "An Improved Federated Clustering Algorithm with Model-based Clustering", TMLR 2024,
arXiv:2210.11538. Algorithms 1 to 4; the number of clusters is found, not given:

    C_0 ← ONE_SHOT(λ, t)                                               methods/one_shot.py
    REFINE, r = 1 … R:
      TrimmedMeanGD  ω_c ← w_0, then T times                           in every cluster c of C_{r-1}
                       ω_c ← TrMean_β{LocalUpdate_i(ω_c)}              i of at most K members
      RECLUSTER      C'(i) = argmin_c dist(ω_c, w_i)                   every client i; w_i stays that of ONE_SHOT
      MERGE          an edge between c and c' where dist(ω_c, ω_c') ≤ λ; components become one cluster, with the mean ω

w_i and f_i(w_j) are in `trained`, ω_c is row c of `bank`, C is `assignment`, λ `threshold`, t `min_size`, β `beta`, R
`refines`, T `refine_rounds`, K `members`. dist is in methods/model_distances.py, TrimmedMeanGD in
methods/trimmed_mean_gd.py, RECLUSTER and MERGE in methods/refine.py.

ONE_SHOT is a preparation step, and so is RECLUSTER with MERGE; each of the T trainings of all clusters is one round.
The record has these parts: `one shot`, evaluated with each client's own model, which is the baseline Local; `train 1`,
evaluated as in the published code, before clients move and without clients that have no cluster yet (its acc_pre);
`refine 1`, after MERGE, all clients with the merged models; and so on; `final`. Where MERGE joined clusters, which the
step counts as `clusters_merged`, `refine` evaluates the mean of their models as it is: the joined clusters are trained
in the next REFINE or, after the last one, in the rounds that remain, if there are any.

Departures from the paper. In RECLUSTER a cluster of fewer than t clients is dissolved and its clients join the nearest
remaining one (the code leaves them out); f_c is the mean over the members before RECLUSTER; in MERGE it is over those
after it. The paper's minimum size of a component counts clients here, and RECLUSTER already ensures it. Clusters are
numbered as the rows of `bank`, and models and members are renumbered together (in the code MERGE may compare the wrong
ones). A client that missed ONE_SHOT trains alone before the next RECLUSTER, or before a round of final training if it
is in that cohort, and joins the nearest cluster. The projection of models onto a feasible set is left out. With
`start_from="continue"`, as in a variant of the code, training continues from the merged models, weighted by cluster
sizes. A round without replies is not repeated; after a REFINE without any reply the clusters stay as they are. The
means of REFINE are trimmed regardless of the run's aggregation rule, which applies only if β = 0 and in `final`.
Clients of a round train independently; in the code they share the arrays of their cluster's model and train it in turn,
which makes its rounds K times as long: `local.in_turn`. Of ten values it trims one low and two high ones, and each
REFINE trains from new random models: `trimming="as_coded"`, `start_from="new"`. As the paper suggests, `final` trains
the clusters without trimming. With `local.lr_decay`, each REFINE and `final` start again at the initial learning rate;
the paper has a constant one. One λ serves clients and clusters: with l2, a cluster must train about as long as a single
client, or its model stays nearer to the others than λ and MERGE joins them all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from coterie import tree
from coterie.aggregation import Trimming
from coterie.bounds import Bound
from coterie.client_map import ClientMap
from coterie.clients import fit
from coterie.codec import state
from coterie.errors import SpecError, TooFewReplies
from coterie.federation.protocol import Cohort, Federation
from coterie.methods.cluster_training import draw_members, placed
from coterie.methods.fedavg import loss_of, one_model
from coterie.methods.model_distances import LocalModels
from coterie.methods.one_shot import OneShot, one_shot, train_missing
from coterie.methods.protocol import Placement, Round, Stage, from_run
from coterie.methods.refine import join, losses_of_clusters, recluster_and_merge
from coterie.methods.trimmed_mean_gd import Trained, train_by_gradients, train_by_models
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Bank, ClientId, Params


@state
@dataclass(frozen=True)
class State:
    """State of an SR-FCA run.

    Attributes:
        w0: The common initial model.
        bank: The clusters' models.
        assignment: Client → cluster.
        trained: The clients' own models and what is known of them; None before ONE_SHOT.
        threshold: λ.
        refined: Number of REFINE steps done.
        rounds: Number of rounds done.
        untrained: Whether no cluster has been trained since ONE_SHOT or the last REFINE.
        merged: Whether the last MERGE joined clusters.
    """

    w0: Params
    bank: Bank
    assignment: ClientMap[int] = field(default_factory=ClientMap)
    trained: LocalModels | None = None
    threshold: float = 0.0
    refined: int = 0
    rounds: int = 0
    untrained: bool = True
    merged: bool = False


@dataclass(frozen=True)
class SRFCA(OneShot):
    """Clusters of clients by their own models, then R times: train each cluster, move clients, merge clusters.

    Attributes:
        refines: R, number of REFINE steps.
        refine_rounds: T, rounds of training in each REFINE; 0: divide the run's rounds evenly, final training included.
        members: K, number of clients per cluster that train in a round; 0: all.
        mode: Average the models that clients train, or their gradients; `gradients` uses only the learning rate of
            `local`.
        beta: β, the share of values trimmed at each end in REFINE, instead of the rule of [aggregation]; 0: that rule
            applies.
        trimming: Values that a trimmed mean drops: the same number at each end, or as_coded: of ten values with β =
            0.15, one low and two high ones, as in the published program.
        start_from: Each REFINE trains from w_0, continues from the merged models, or trains each cluster from a new
            random model, as in the published program.
        final: Training of the clusters in the rounds that remain after the last REFINE: none, FedAvg or FedProx;
            `auto`: FedAvg if the last MERGE joined clusters (with refine_rounds = 0, no or few rounds remain for it).
        mu: With FedProx: weight of the proximal term (μ).
        rounds: Number of rounds of the run.
    """

    refines: Annotated[int, Bound(at_least=1)] = 2
    refine_rounds: Annotated[int, Bound(at_least=0)] = 0
    members: Annotated[int, Bound(at_least=0)] = 10
    mode: Literal["models", "gradients"] = "models"
    beta: Annotated[float, Bound(at_least=0, below=0.5)] = 0.15
    trimming: Trimming = "symmetric"
    start_from: Literal["w0", "continue", "new"] = "w0"
    final: Literal["auto", "none", "fedavg", "fedprox"] = "auto"
    mu: Annotated[float, Bound(at_least=0)] = 1.0
    rounds: int = from_run("rounds")

    def __post_init__(self) -> None:
        """Validate the settings."""
        super().__post_init__()
        needed = self.refines * max(self.refine_rounds, 1) + self._always_final
        if self.rounds < needed:
            raise SpecError(
                f"srfca with refines = {self.refines}, refine_rounds = {self.refine_rounds} and final = {self.final!r} "
                f"needs run.rounds of at least {needed}, got {self.rounds}"
            )

    @property
    def _always_final(self) -> bool:
        """Whether there is final training, whatever MERGE does."""
        return self.final in ("fedavg", "fedprox")

    @property
    def training(self) -> int:
        """T: rounds of training in each REFINE."""
        return self.refine_rounds or self.rounds // (self.refines + self._always_final)

    @property
    def rounds_note(self) -> str:
        """Why the run may end before its last round; empty if it does not."""
        left = self.rounds - self.refines * self.training
        if not left or self._always_final:
            return ""
        rest = "1 round remains" if left == 1 else f"{left} rounds remain"
        use = (
            "used only if the last MERGE joins clusters" if self.final == "auto" else "not used (method.final = 'none')"
        )
        return (
            f"srfca has {self.refines} REFINE steps of {self.training} rounds each (method.refines, "
            f"method.refine_rounds): of run.rounds = {self.rounds}, {rest}, {use}"
        )

    @property
    def own_mean(self) -> str:
        """A text about the means that do not use the run's aggregation rule; empty if all of them do."""
        return f"those of REFINE are trimmed by method.beta = {self.beta} (0: use the rule)" if self.beta else ""

    @property
    def asks_all(self) -> str:
        """Why all clients are asked in a round; empty if only the cohort is."""
        return "all members of clusters evaluate the models of newcomers" if self.distance == "cross" else ""

    def start(self, task: Task, seed: Seed) -> State:
        """w_0, before ONE_SHOT."""
        w0 = task.init(seed.fold("init"))
        return State(w0, tree.stack([w0]))

    def stage(self, now: State) -> Stage:
        """ONE_SHOT and RECLUSTER with MERGE are preparation steps."""
        if now.trained is None or self._is_refine_trained(now):
            return "prepare"
        final = self._always_final or (self.final == "auto" and now.merged)
        last = self.rounds if final else self.refines * self.training
        return "train" if now.refined < self.refines or now.rounds < last else "done"

    def _is_refine_trained(self, now: State) -> bool:
        """Whether the T rounds of the current REFINE are over."""
        return now.refined < self.refines and now.rounds >= (now.refined + 1) * self.training

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """ONE_SHOT; then R times T rounds of TrimmedMeanGD, RECLUSTER and MERGE; then final training."""
        if now.trained is None:
            return self._one_shot(now, fed, cohort, seed)
        if self._is_refine_trained(now):
            return self._recluster_and_merge(now, now.trained, fed, cohort, seed)
        return self._train(now, now.trained, fed, cohort, seed)

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """Serve each client its cluster's model, or its own model right after ONE_SHOT; newcomers train alone first."""
        asked = list(clients)
        if now.trained is None:
            return now, one_model(now.w0, asked)
        if now.untrained and now.refined == 0:
            return self._place_own_models(now, now.trained, fed, asked, seed)
        newcomers = [client for client in asked if client not in now.assignment]
        joined, trained, evidence = join(self, now.w0, now.bank, now.assignment, now.trained, fed, newcomers, seed)
        now = dataclasses.replace(now, assignment=now.assignment.set(joined), trained=trained)
        return now, dataclasses.replace(placed(now, asked), evidence=evidence)

    def _place_own_models(
        self, now: State, trained: LocalModels, fed: Federation, clients: list[ClientId], seed: Seed
    ) -> tuple[State, Placement]:
        """Serve each client the model that it trained alone."""
        newcomers = [client for client in clients if client not in set(trained.clients)]
        got = fed.ask(newcomers, fit, seed, start=now.w0, local=self.init_training, min_replies=0)
        if len(got):
            trained = trained.added(self.distance, got.clients, got["params"])
        known = {client: i for i, client in enumerate(trained.clients)}
        row = {client: known[client] for client in clients if client in known}
        return dataclasses.replace(now, trained=trained), Placement(trained.models, row, fallback=now.w0)

    def _one_shot(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """C_0 and λ."""
        trained, row, threshold, evidence = one_shot(self, now.w0, fed, cohort, seed)
        bank = tree.stack([now.w0] * (max(row.values()) + 1))
        after = State(now.w0, bank, ClientMap(row), trained, threshold)
        return Round(after, row, evidence=evidence, label="one shot", closes=True)

    def _train(self, now: State, trained: LocalModels, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """A round of TrimmedMeanGD, or of final training, which newcomers in the cohort join first."""
        final = now.refined == self.refines
        joined: dict[ClientId, int] = {}
        newcomers = cohort.of(client for client in cohort.active() if client not in now.assignment)
        if final and len(newcomers):
            seed_of_joining = seed.fold("join")
            joined, trained, _ = join(self, now.w0, now.bank, now.assignment, trained, fed, newcomers, seed_of_joining)
        assignment = now.assignment.set(joined)
        now = dataclasses.replace(now, assignment=assignment, trained=trained, rounds=cohort.t + 1)
        label, closes = "final" if final else f"train {now.refined + 1}", self.stage(now) != "train"
        bank = self._first_models(now, fed.task, seed) if now.untrained and not final else now.bank
        try:
            done = self._train_clusters(bank, now, fed, cohort, seed, final)
        except TooFewReplies as fault:
            # The round counts: RECLUSTER and MERGE follow after T rounds, even if this is the last one of the run.
            return Round(now, joined, label=label, closes=closes, skipped=str(fault))
        kept = trained if self.distance == "l2" else dataclasses.replace(trained, models={})
        after = dataclasses.replace(now, bank=done.bank, trained=kept, untrained=False)
        took_part = joined | {client: now.assignment[client] for client in done.replies.clients}
        return Round(after, took_part, loss_of(done.replies), done.distances, label=label, closes=closes)

    def _first_models(self, now: State, task: Task, seed: Seed) -> Bank:
        """The models from which a REFINE trains the clusters."""
        if self.start_from == "continue":
            return now.bank
        clusters = range(tree.rows(now.bank))
        return tree.stack(task.init(seed.fold("new", c)) if self.start_from == "new" else now.w0 for c in clusters)

    def _train_clusters(
        self, bank: Bank, now: State, fed: Federation, cohort: Cohort, seed: Seed, final: bool
    ) -> Trained:
        """At most K members of each cluster train; stragglers take part in FedProx only."""
        drawn = draw_members(cohort, now.assignment, tree.rows(bank), self.members, name="srfca")
        active = drawn if final and self.final == "fedprox" else drawn.active()
        if not len(active):
            raise TooFewReplies(f"All {len(drawn)} clients that were drawn are stragglers")
        row = {client: now.assignment[client] for client in active}
        local = self.local.at(cohort.t - now.refined * self.training)  # each REFINE starts at the initial learning rate
        if final:
            local = dataclasses.replace(local, mu=self.mu) if self.final == "fedprox" else local
            return train_by_models(bank, row, fed, active, seed, local, beta=0.0)
        if self.mode == "gradients":
            return train_by_gradients(bank, row, fed, active, seed, local.learning_rate, self.beta, self.trimming)
        return train_by_models(bank, row, fed, active, seed, local, self.beta, self.trimming)

    def _recluster_and_merge(
        self, now: State, trained: LocalModels, fed: Federation, cohort: Cohort, seed: Seed
    ) -> Round[State]:
        """RECLUSTER and MERGE, after clients that missed ONE_SHOT have trained alone."""
        done, label = now.refined + 1, f"refine {now.refined + 1}"
        if now.untrained:  # there are no trained models to compare
            return Round(dataclasses.replace(now, refined=done), dict(now.assignment), label=label, closes=True)
        all_clients = dataclasses.replace(cohort.of(cohort.available), efforts={})
        trained = train_missing(self, now.w0, trained, fed, all_clients, seed)
        losses = losses_of_clusters(self, now.bank, trained, fed, all_clients, seed.fold("recluster"))
        weighted = self.start_from == "continue"
        bank, row, evidence, counts = recluster_and_merge(
            self, now.bank, now.assignment, trained, losses, now.threshold, weighted=weighted
        )
        merged = counts["clusters_merged"] > 0
        after = State(now.w0, bank, ClientMap(row), trained, now.threshold, done, now.rounds, merged=merged)
        return Round(after, row, evidence=evidence, counts=counts, label=label, closes=True)
