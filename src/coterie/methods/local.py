"""Local: every client trains alone, with the budget that federated clients have on average.

In T rounds with cohorts of K among N clients, a federated client trains T·K/N times E epochs; so does each client
here, at least E, spread evenly over the rounds. No model leaves a client: each keeps its own in its memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie import tree
from coterie.clients import Client, LocalSGD, Model, Settings, Values, Work, train
from coterie.clients.local import lengths, plan
from coterie.codec import state
from coterie.federation.protocol import Adapt, Cached, Cohort, Federation
from coterie.methods.fedavg import loss_of
from coterie.methods.protocol import Placement, Round, Stage, from_run
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId, Params


def blank(task: Task) -> Params:
    """The memory of a client that has not trained yet."""
    return {"known": np.zeros((), np.int32), "params": tree.map(np.zeros_like, task.init(Seed(0)))}


def own(client: Client, start: Params) -> Params:
    """The client's own model, or `start` where it has none yet."""
    import jax.numpy as jnp

    return tree.map(
        lambda mine, first: jnp.where(client.memory["known"] > 0, mine, first), client.memory["params"], start
    )


def _fit_own(task: Task, client: Client, *, start: Params, local: LocalSGD) -> dict[str, Any]:
    import jax.numpy as jnp

    done = train(task, own(client, start), client, local)
    memory = {"known": jnp.ones((), jnp.int32), "params": done["params"]}
    return {"loss": done["loss"], "steps": done["steps"], "memory": memory}


def _recall(task: Task, client: Client, *, start: Params) -> dict[str, Any]:
    return {"params": own(client, start)}


fit_own = Work(
    "local.fit_own",
    takes={"start": Model(purpose="base"), "local": Settings(LocalSGD)},
    gives={"loss": Values("float32"), "steps": Values("int32")},
    stream="batches",
    plan=plan,
    lengths=lengths,
    body=_fit_own,
    memory="local.own",
    blank=blank,
)

recall = Work(
    "local.recall",
    takes={"start": Model(purpose="base")},
    gives={"params": Model()},
    body=_recall,
    memory="local.own",
    recalls=True,
    blank=blank,
)


@state
@dataclass(frozen=True)
class State:
    """The common start, and how much of the budget is spent."""

    start: Params
    spent: int = 0


@dataclass(frozen=True)
class Local:
    """Every client alone.

    Attributes:
        local: How clients train; its epochs (or steps) are those of one round of a federated method.
        rounds: Of the run.
        clients_per_round: Clients in a round of the federated methods.
        clients: In all.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    rounds: int = from_run("rounds")
    clients_per_round: int = from_run("clients_per_round")
    clients: int = from_run("clients")

    def start(self, task: Task, seed: Seed) -> State:
        """The common initial model; nobody has trained."""
        return State(task.init(seed.fold("init")))

    def stage(self, now: State) -> Stage:
        """Rounds, nothing else."""
        return "train"

    def budget(self) -> int:
        """Epochs (or steps) of each client in all."""
        per_round = self.local.steps or self.local.epochs
        return max(per_round, round(self.rounds * self.clients_per_round * per_round / self.clients))

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """This round's share of the budget, for every client."""
        # By the round's number, so that a skipped round's share is made up in the next.
        due = min(self.budget(), -(-self.budget() * (cohort.t + 1) // self.rounds))
        share = due - now.spent
        if share <= 0:
            return Round(now)
        budget: dict[str, Any] = {"steps": share} if self.local.steps else {"epochs": share}
        local = dataclasses.replace(self.local.at(cohort.t), **budget)
        # No stragglers: who trains alone keeps nobody waiting.
        everyone = dataclasses.replace(cohort.of(cohort.available), efforts={})
        got = fed.ask(everyone, fit_own, seed, start=Cached(now.start), local=local)
        assignment = {client: place for place, client in enumerate(fed.clients)}
        return Round(State(now.start, due), {c: assignment[c] for c in got.clients}, loss_of(got))

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """Each its own model, from its memory; the common start for a newcomer."""
        adapt = Adapt(recall, {"start": Cached(now.start)})
        return Placement(tree.stack([now.start]), dict.fromkeys(clients, 0), adapt)
