"""Local: every client trains its own model, without communication.

In each of T rounds all clients train E epochs (or steps): T·E in all, as long as a client that takes part in every
round of a federated method, and as long as Local in SR-FCA (arXiv:2210.11538), whose clients train T·E batches alone
in one go. With `budget="average"` each client trains as long as a federated client does on average: with K of N clients
per round T·K·E/N epochs, at least E, divided evenly among the rounds.

No model leaves its client: each client keeps its model and the state of its optimizer (momentum, moments of Adam) in
its memory. The learning rate decays by `local.lr_decay` per round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from coterie import tree
from coterie.bounds import check
from coterie.client_map import ClientMap
from coterie.clients import Client, LocalSGD, Model, Settings, Values, Work
from coterie.clients.local_training import OptimizerState, continue_training, lengths, optimizer, plan
from coterie.codec import state
from coterie.federation.protocol import Adapt, Cached, Cohort, Federation
from coterie.methods.fedavg import loss_of, one_model
from coterie.methods.protocol import Placement, Round, Stage, from_run
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, ClientId, Params


def empty_memory(task: Task, **_: object) -> Params:
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


def _numbered(optimizer_state: OptimizerState) -> dict[str, Array]:
    """The arrays of an optimizer's state by number: memories are plain dicts."""
    import jax

    return {str(i): leaf for i, leaf in enumerate(jax.tree_util.tree_leaves(optimizer_state))}


def _empty_training_memory(task: Task, *, local: LocalSGD) -> Params:
    memory = empty_memory(task)
    return {**memory, "optimizer": _numbered(optimizer(memory["params"], local)[1])}


def _fit_own(task: Task, client: Client, *, start: Params, local: LocalSGD) -> dict[str, object]:
    import jax
    import jax.numpy as jnp

    model, known = own_model(client, start), client.memory["known"] > 0
    new_state = optimizer(model, local)[1]
    kept = [jnp.where(known, client.memory["optimizer"][i], leaf) for i, leaf in _numbered(new_state).items()]
    first_state = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(new_state), kept)
    trained, last_state = continue_training(task, model, client, local, first_state)
    memory = {**memory_of(trained["params"]), "optimizer": _numbered(last_state)}
    return {"loss": trained["loss"], "steps": trained["steps"], "memory": memory}


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
    blank=_empty_training_memory,
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
    """The common initial model, the epochs (or steps) done so far, and the number of each client: its cluster."""

    start: Params
    spent: int = 0
    numbers: ClientMap[int] = field(default_factory=ClientMap)


@dataclass(frozen=True)
class Local:
    """One model per client, without communication.

    Attributes:
        local: Settings of local training; its epochs (or steps) are those of one round.
        budget: Training of a client in all: `full`: as if it took part in every round; `average`: as long as an average
            client of a federated method.
        rounds: Number of rounds of the run.
        clients_per_round: Number of clients in a round of a federated method.
        clients: Number of clients.
    """

    asks_all: ClassVar[str] = "every client trains alone"
    averages: ClassVar[bool] = False
    local: LocalSGD = field(default_factory=LocalSGD)
    budget: Literal["full", "average"] = "full"
    rounds: int = from_run("rounds")
    clients_per_round: int = from_run("clients_per_round")
    clients: int = from_run("clients")

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")

    def start(self, task: Task, seed: Seed) -> State:
        """The common initial model."""
        return State(task.init(seed.fold("init")))

    def stage(self, state: State) -> Stage:
        """Always a round: there is no preparation."""
        return "train"

    @property
    def total(self) -> int:
        """Epochs (or steps) of each client over the whole run."""
        per_round = self.local.steps or self.local.epochs
        if self.budget == "full":
            return self.rounds * per_round
        return max(per_round, round(self.rounds * self.clients_per_round * per_round / self.clients))

    def round(self, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """All clients train for this round's share of the budget."""
        # Computed from the round number, so that the next round makes up for a skipped one.
        due = min(self.total, -(-self.total * (cohort.t + 1) // self.rounds))
        share = due - state.spent
        if share <= 0:
            return Round(state)
        local = self.local.at(cohort.t)
        local = dataclasses.replace(local, steps=share) if local.steps else dataclasses.replace(local, epochs=share)
        # No stragglers: the server does not wait for clients that train alone.
        all_clients = dataclasses.replace(cohort.of(cohort.available), efforts={})
        got = fed.ask(all_clients, fit_own, seed, start=Cached(state.start), local=local)
        new = [client for client in all_clients if client not in state.numbers]
        first = len(state.numbers)
        numbers = state.numbers.set({client: first + place for place, client in enumerate(new)})
        return Round(
            State(state.start, due, numbers), {client: numbers[client] for client in got.clients}, loss_of(got)
        )

    def place(self, state: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> tuple[State, Placement]:
        """Each client's own model, from its memory; the initial model for newcomers."""
        adapt = Adapt(recall, {"start": Cached(state.start)})
        return state, dataclasses.replace(one_model(state.start, clients), adapt=adapt)
