"""Local: every client trains its own model, with the average training budget of a federated client.

In T rounds with K of N clients per round, a federated client trains T·K/N times E epochs on average. Here each client
trains the same number of epochs, at least E, spread evenly over the rounds. No model leaves its client: each client
keeps its model in its memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from coterie import tree
from coterie.clients import Client, LocalSGD, Model, Settings, Values, Work, train
from coterie.clients.local_training import lengths, plan
from coterie.codec import state
from coterie.federation.protocol import Adapt, Cached, Cohort, Federation
from coterie.methods.fedavg import loss_of, one_model
from coterie.methods.protocol import Placement, Round, Stage, from_run
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId, Params


def empty_memory(task: Task) -> Params:
    """The memory of a client that has not trained."""
    return {"known": np.zeros((), np.int32), "params": tree.map(np.zeros_like, task.init(Seed(0)))}


def own_model(client: Client, start: Params) -> Params:
    """The client's own model; `start` if it has not trained."""
    import jax.numpy as jnp

    trained = client.memory["known"] > 0
    return tree.map(lambda own, initial: jnp.where(trained, own, initial), client.memory["params"], start)


def memory_of(params: Params) -> dict[str, object]:
    """The memory of a client after training."""
    import jax.numpy as jnp

    return {"known": jnp.ones((), jnp.int32), "params": params}


def _fit_own(task: Task, client: Client, *, start: Params, local: LocalSGD) -> dict[str, object]:
    trained = train(task, own_model(client, start), client, local)
    return {"loss": trained["loss"], "steps": trained["steps"], "memory": memory_of(trained["params"])}


def _recall(task: Task, client: Client, *, start: Params) -> dict[str, object]:
    return {"params": own_model(client, start)}


#: Train the client's own model.
fit_own = Work(
    "local.fit_own",
    takes={"start": Model(purpose="base"), "local": Settings(LocalSGD)},
    gives={"loss": Values("float32"), "steps": Values("int32")},
    stream="batches",
    plan=plan,
    lengths=lengths,
    body=_fit_own,
    memory="local.own",
    blank=empty_memory,
    trains=True,
)

#: The client's own model, for scoring.
recall = Work(
    "local.recall",
    takes={"start": Model(purpose="base")},
    gives={"params": Model()},
    body=_recall,
    memory="local.own",
    recalls=True,
    blank=empty_memory,
    trains=False,
)


@state
@dataclass(frozen=True)
class State:
    """The common initial model, and the epochs (or steps) done so far."""

    start: Params
    spent: int = 0


@dataclass(frozen=True)
class Local:
    """One model per client, without communication.

    Attributes:
        local: Settings of local training; its epochs (or steps) are those of one round of a federated method.
        rounds: Number of rounds of the run.
        clients_per_round: Number of clients in a round of a federated method.
        clients: Number of clients.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    rounds: int = from_run("rounds")
    clients_per_round: int = from_run("clients_per_round")
    clients: int = from_run("clients")

    def start(self, task: Task, seed: Seed) -> State:
        """The common initial model."""
        return State(task.init(seed.fold("init")))

    def stage(self, state: State) -> Stage:
        """Always a round: there is no preparation."""
        return "train"

    def budget(self) -> int:
        """Epochs (or steps) of each client over the whole run."""
        per_round = self.local.steps or self.local.epochs
        return max(per_round, round(self.rounds * self.clients_per_round * per_round / self.clients))

    def round(self, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """All clients train for this round's share of the budget."""
        # Computed from the round number, so that the next round makes up for a skipped one.
        due = min(self.budget(), -(-self.budget() * (cohort.t + 1) // self.rounds))
        share = due - state.spent
        if share <= 0:
            return Round(state)
        local = self.local.at(cohort.t)
        local = dataclasses.replace(local, steps=share) if local.steps else dataclasses.replace(local, epochs=share)
        # No stragglers: the server does not wait for clients that train alone.
        all_clients = dataclasses.replace(cohort.of(cohort.available), efforts={})
        got = fed.ask(all_clients, fit_own, seed, start=Cached(state.start), local=local)
        position = {client: i for i, client in enumerate(fed.clients)}  # each client is a cluster of its own
        return Round(State(state.start, due), {client: position[client] for client in got.clients}, loss_of(got))

    def place(self, state: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """Each client's own model, from its memory; the initial model for newcomers."""
        adapt = Adapt(recall, {"start": Cached(state.start)})
        return state, dataclasses.replace(one_model(state.start, clients), adapt=adapt)
