"""Preparation of IFCA, beyond the paper: balanced initial models, and a warm start by FedAvg."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from coterie import tree
from coterie.client_map import ClientMap
from coterie.clients.closest import with_body
from coterie.errors import SpecError
from coterie.federation.protocol import Cohort, Federation
from coterie.methods.fedavg import average, loss_of
from coterie.methods.protocol import Round
from coterie.seeds import Seed
from coterie.types import Bank, ClientId

if TYPE_CHECKING:
    from coterie.methods.ifca import IFCA, State

ATTEMPTS = 100


def prepare(method: IFCA, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
    """One step of preparation: balanced initial models first, then the warm rounds."""
    after = dataclasses.replace(state, prepared=state.prepared + 1)
    if method.balanced_share and state.prepared == 0:
        banks = [balanced(method, state, r, fed, cohort, seed) for r in range(method.restarts)]
        return Round(dataclasses.replace(after, banks=tuple(banks)))
    if method.shared == "frozen":
        return warm_body(method, after, fed, cohort, seed.fold("warm"))
    return warm_groups(method, after, fed, cohort, seed)


def balanced(method: IFCA, state: State, r: int, fed: Federation, cohort: Cohort, seed: Seed) -> Bank:
    """Initial models of restart r, redrawn until each fits enough clients of a sample best."""
    bank = state.banks[r]
    sample = cohort.draw(cohort.available, 100, name="ifca balance")
    for attempt in range(1, ATTEMPTS + 1):
        attempt_seed = seed.fold("balance", r, attempt)
        choice = method.choices(state, bank, fed, sample, attempt_seed)["choice"]
        # With a tolerance: 0.28·25 is 7.000000000000001 in floating point.
        if np.bincount(choice, minlength=method.clusters).min() >= method.balanced_share * len(choice) - 1e-9:
            return bank
        bank = method.initial(fed.task, attempt_seed)
    raise SpecError(
        f"ifca drew {ATTEMPTS} sets of initial models, but none gave each cluster a share of "
        f"{method.balanced_share} of the clients; lower method.balanced_share"
    )


def warm_body(method: IFCA, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
    """A step of FedAvg for one model, whose lower layers all clusters share afterwards."""
    model = state.pretrained or tree.row(state.banks[0], 0)
    out = average(model, fed, cohort, seed, method.local, method.weights)
    banks = tuple(with_body(bank, out.state, method.body(bank, state.layers)) for bank in state.banks)
    after = dataclasses.replace(state, banks=banks, pretrained=out.state)
    return Round(after, out.assignment, out.loss, out.distances)


def warm_groups(method: IFCA, state: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
    """A step of FedAvg in each of k random groups, which stay the same in all steps."""
    groups = dict(state.assignment) or random_groups(cohort.available, method.clusters, cohort.seed.fold("warm"))
    banks, replies = [], []
    for r, bank in enumerate(state.banks):
        got = method.train(bank, groups, fed, cohort, seed.fold("warm", r), method.local)
        banks.append(method.average(bank, got))
        replies.append(got)
    assignments = (ClientMap(groups),) * method.restarts
    after = dataclasses.replace(state, banks=tuple(banks), assignments=assignments)
    first = replies[0]
    return Round(after, {client: groups[client] for client in first.clients}, loss_of(first))


def random_groups(clients: Iterable[ClientId], groups: int, seed: Seed) -> dict[ClientId, int]:
    """A random assignment to groups of equal size: clients are shuffled, then assigned in turn."""
    known = sorted(clients)
    order = seed.fold("deal").permutation(len(known))
    return {known[client]: int(position % groups) for position, client in enumerate(order)}


def numbered_groups(clients: Iterable[ClientId], groups: int, everyone: Iterable[ClientId]) -> dict[ClientId, int]:
    """The number of each client modulo the number of groups; clients are numbered in the order of their ids.

    Simulated data often have client i in true cluster i mod k: there, these are the true clusters.
    """
    number = {client: i for i, client in enumerate(sorted(everyone))}
    return {client: number[client] % groups for client in clients}
