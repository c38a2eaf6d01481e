# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Write a method
#
# A method is one object with four functions. In this tutorial you write a simple one, see that it performs poorly,
# improve it by changing one function, and check that it follows the rules that let it run in the simulator and between
# machines.

# %%
import logging
from dataclasses import dataclass, field

import coterie
from coterie import tree
from coterie.clients import LocalSGD, fit, losses_of
from coterie.federation.protocol import Mean, PerClient
from coterie.methods.fedavg import global_model, move_groups
from coterie.methods.protocol import Placement, Round
from coterie.testing import CHECKS, Harness

# %% [markdown]
# ## A method with arbitrary clusters
#
# The fields of the class are its settings. What the method knows is its *state*: here the models of all clusters,
# stacked (a *bank*). The state goes into every function and comes out of `round`; the object itself never changes.
#
# - `start` makes the first state.
# - `stage` says what the next step is: every step is a training round here.
# - `round` does one round. The only way to the clients is `fed.ask`: a named computation (a *work*), here `fit`, goes
#   to a cohort with what each client needs, and replies come back. `Mean` asks the federation to average them per
#   cluster.
# - `place` says which model each client is served, and the fallback model for clients without a cluster.


# %%
@dataclass(frozen=True)
class RandomClusters:
    """Clusters by the name of the client."""

    clusters: int = 4
    local: LocalSGD = field(default_factory=LocalSGD)

    def start(self, task, seed):
        return tree.stack(task.init(seed.fold("center", j)) for j in range(self.clusters))

    def stage(self, bank):
        return "train"

    def round(self, bank, fed, cohort, seed):
        row = self.choose(bank, fed, cohort, seed)
        mean = Mean(groups=self.clusters, by=row)
        start = PerClient(bank, row)  # to each client the model of its cluster
        got = fed.ask(cohort.of(row), fit, seed, start=start, local=self.local.at(cohort.t), reduce=mean)
        return Round(move_groups(bank, got), {client: row[client] for client in got.clients})

    def place(self, bank, fed, clients, seed):
        row = self.choose(bank, fed, clients, seed)
        return bank, Placement(bank, row, fallback=global_model(bank, row))

    def choose(self, bank, fed, clients, seed):
        """Client → cluster."""
        return {client: sum(client.encode()) % self.clusters for client in clients}


def accuracy(method):
    record = coterie.run({"data": "digits", "run": {"rounds": 30}}, method=method)
    print(f"accuracy {record.summary['accuracy']['weighted']:.1%}, {record.summary['clusters']['count']} clusters")
    return record


random = accuracy(RandomClusters())

# %% [markdown]
# The method has no round loop, no sampling, no evaluation and no counting of bytes: the run does that for every
# method. These clusters are unrelated to the data, so each model has to fit all four rotations, with a quarter of the
# clients to learn from.
#
# ## Let the clients choose
#
# Only `choose` has to change. It asks a second work, `losses_of`: each client replies with the loss of every model on
# its own examples.


# %%
@dataclass(frozen=True)
class LowestLoss(RandomClusters):
    """Each client joins the cluster whose model fits it best."""

    def choose(self, bank, fed, clients, seed):
        got = fed.ask(clients, losses_of, seed, centers=bank)
        return dict(zip(got.clients, got["losses"].argmin(axis=1).tolist(), strict=True))


better = accuracy(LowestLoss())

# %% [markdown]
# `got.clients` are the clients that replied. Replies get lost, so a method never assumes that the whole cohort is
# there. This is the core of [IFCA](../methods/ifca.md), which adds restarts, because a bad start may leave clusters
# unused.
#
# ## What it costs
#
# Bytes are counted by the federation, by purpose.

# %%
for name, record in {"random": random, "lowest loss": better}.items():
    print(name, {purpose: sum(way.values()) for purpose, way in record.summary["traffic"]["by_purpose"].items()})

# %% [markdown]
# ## Check the method
#
# The contract suite runs the method on small clients: on another backend, with lost and damaged replies, stopped and
# resumed after every step, with newcomers. A check that fails says what the method did.

# %%
logging.disable(logging.WARNING)  # the suite loses replies on purpose
for check in CHECKS:
    check(Harness(lambda context: LowestLoss(clusters=2)))
    print(f"passed: {check.__name__}")

# %% [markdown]
# ## Where next
#
# - Settings with bounds, tests by hand, registration: [add a method](../how-to/add-a-method.md)
# - A computation that clients do not know yet: [add a work](../how-to/add-a-work.md)
# - Why there is this interface: [one interface to clients](../explanation/the-seam.md)
