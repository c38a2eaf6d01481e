"""A method that uses every feature of the federation protocol, to test what the published methods do not use.

It has two preparation steps (ragged replies; a second task through `on`), detects clients whose labels changed (client
memory), evaluates on `held` after training on `rest`, sends a cached value, draws its own cohort, serves models
that are adapted on the client, and is done after four rounds.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie import tree
from coterie.clients import Client, LocalSGD, Model, Ragged, Settings, Values, Work, fit, losses_of, score, train
from coterie.clients.local_training import lengths, plan
from coterie.codec import state
from coterie.federation.protocol import Adapt, Cached, Mean, PerClient
from coterie.methods.protocol import Placement, Round
from coterie.models import Normalize, mclr


def _means_per_class(task, x, y, seed):
    present = [label for label in range(task.classes) if (y == label).any()]
    means = [x[y == label].reshape(-1, int(np.prod(task.shape))).astype(np.float32)[: 1 + label] for label in present]
    return {"means": means, "classes": np.bincount(y, minlength=task.classes).astype(np.int32)}


class_means = Work(
    "probe.class_means",
    takes={},
    gives={
        "means": Ragged("float32", ("rows", "inputs"), max_items="classes", purpose="subspaces"),
        "classes": Values("int32", ("classes",), purpose="labels"),
    },
    plain=_means_per_class,
    trains=False,
)


def blank(task):
    return {"counts": np.full(task.classes, -1.0, np.float32)}


def _counts(task, x, y):
    import jax.numpy as jnp

    return {"counts": (y[:, None] == jnp.arange(task.classes)).astype(jnp.float32)}


def _notice(task, client: Client):
    import jax.numpy as jnp

    now, then = client.sums["counts"], client.memory["counts"]
    changed = (then[0] >= 0) & (jnp.abs(now - then).sum() > 0)
    return {"changed": changed.astype(jnp.int32), "memory": {"counts": now}}


#: Whether a client's labels changed since its last accepted reply.
notice = Work(
    "probe.notice",
    takes={},
    gives={"changed": Values("int32")},
    purpose="detect",
    each=_counts,
    body=_notice,
    memory="probe.labels",
    blank=blank,
    trains=False,
)


def _choose(task, client: Client, *, directions, local):
    import jax.numpy as jnp

    first = tree.row(directions, 0)
    moved = train(task, first, client, local)["params"]
    apart = tree.map(lambda a, b: jnp.square(a[None] - b).reshape(len(b), -1).sum(axis=1), moved, directions)
    away = sum(tree.leaves(apart))
    return {"choice": jnp.argmin(away).astype(jnp.int32)}


choose = Work(
    "probe.choose",
    takes={"directions": Model(("k",), purpose="directions"), "local": Settings(LocalSGD)},
    gives={"choice": Values("int32")},
    plan=plan,
    lengths=lengths,
    body=_choose,
    trains=True,
)


@state
@dataclass(frozen=True)
class State:
    bank: dict
    step: int = 0
    classes: dict | None = None
    light: dict | None = None
    changed: tuple = ()
    goodness: float = 0.0


@dataclass(frozen=True)
class Probe:
    asks_all: ClassVar[str] = "all clients check for changed labels"
    local: LocalSGD

    def start(self, task, seed):
        return State(tree.stack(task.init(seed.fold("init", j)) for j in range(2)))

    def stage(self, now):
        return "prepare" if now.step < 2 else "train" if now.step < 6 else "done"

    def round(self, now, fed, cohort, seed):
        after = dataclasses.replace(now, step=now.step + 1)
        if now.step == 0:
            got = fed.ask(cohort, class_means, seed)
            sizes = {client: len(means) for client, means in got.by_client("means").items()}
            evidence = {"sizes": sizes, "rows": [len(rows) for means in got["means"] for rows in means]}
            return Round(dataclasses.replace(after, classes=sizes), evidence=evidence)
        if now.step == 1:
            task = mclr(fed.task.shape, fed.task.classes, normalize=Normalize(0.0, 64.0))
            light = fed.on(task)
            w = task.init(seed.fold("light"))
            got = light.ask(cohort, fit, seed.fold("light"), part="rest", start=w, local=self.local, reduce=Mean())
            w = tree.row(got.means()[0], 0)
            held = light.ask(cohort, score, seed, part="held", params=w)
            goodness = float(held["correct"].sum() / held.samples.sum())
            return Round(dataclasses.replace(after, light=w, goodness=goodness))
        noticed = fed.ask(cohort.of(cohort.available), notice, seed).by_client("changed")
        some = cohort.draw(cohort.available, 4, weights=dict.fromkeys(cohort.available, 1.0), name="probe")
        chosen = fed.ask(some, choose, seed.fold("choose"), directions=Cached(now.bank), local=self.local).by_client(
            "choice"
        )
        how = Mean(groups=2, by=chosen, weights="uniform", spread=True)
        got = fed.ask(
            cohort.of(chosen), fit, seed, start=PerClient(now.bank, chosen), local=self.local, reduce=how, deadline=60.0
        )
        mean, weight = got.means()
        shifted = tuple(sorted(client for client, changed in noticed.items() if changed))
        after = dataclasses.replace(after, bank=tree.where_rows(weight > 0, mean, now.bank), changed=shifted)
        distances = dict(zip(got.clients, got.spread.tolist(), strict=True))
        return Round(after, {c: chosen[c] for c in got.clients}, distances=distances, counts={"shifts": len(shifted)})

    def place(self, now, fed, clients, seed):
        got = fed.ask(clients, losses_of, seed, centers=now.bank)
        row = {client: int(np.argmin(losses)) for client, losses in got.by_client("losses").items()}
        adapt = Adapt(fit, {"start": PerClient(now.bank, row), "local": self.local})
        return now, Placement(now.bank, row, adapt, fallback=tree.row(now.bank, 0))
