"""Which runs can have noise, and the privacy entries of a record."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from coterie import tree
from coterie.aggregation import uniform_mean
from coterie.errors import SpecError
from coterie.federation import Averaging
from coterie.federation.ledger import check_accountant
from coterie.methods.protocol import Method, Placement
from coterie.models import Task, trainable
from coterie.runs.spec import Spec
from coterie.seeds import Seed
from coterie.types import ClientId

_NOISE = "privacy.noise_multiplier"


def check_privacy(spec: Spec, method: Method[Any], task: Task, clients: int) -> None:
    """Raise SpecError if noise would give no guarantee in this run, or if no cluster could be large enough."""
    if spec.privacy.min_cluster_size > clients:
        raise SpecError(
            f"privacy.min_cluster_size must be at most {clients}, the number of clients, got "
            f"{spec.privacy.min_cluster_size}"
        )
    if spec.privacy.min_cluster_size and spec.run.eval_model == "last_received":
        raise SpecError(
            "privacy.min_cluster_size needs run.eval_model = 'group': models that clients received for training may "
            "belong to small clusters"
        )
    if spec.privacy.delta and not spec.privacy.noise_multiplier:
        raise SpecError(f"privacy.delta needs {_NOISE} above 0: without noise there is no guarantee")
    if not spec.privacy.noise_multiplier:
        return
    name = spec.method.name
    if not getattr(method, "averages", True):
        raise SpecError(f"{_NOISE} adds noise to sums of updates, but {name} averages nothing; set it to 0")
    if spec.aggregation.rule != "mean":
        raise SpecError(
            f"{_NOISE} needs the plain mean, whose sensitivity is known; set aggregation.rule = 'mean', got "
            f"{spec.aggregation.rule!r}"
        )
    if getattr(method, "weights", "uniform") == "samples":
        raise SpecError(
            f"{_NOISE} needs uniform client weights: with method.weights = 'samples' the influence of a client is not "
            "limited; set method.weights = 'uniform'"
        )
    if own_mean := getattr(method, "own_mean", ""):
        raise SpecError(f"{_NOISE} does not cover all means of {name}: {own_mean}")
    model = task.init(Seed(0))
    if tree.size(trainable(model)) != tree.size(model):
        raise SpecError(
            f"{_NOISE} cannot be used with model {task.name}: noise can make its running variances negative; choose a "
            "model without running statistics"
        )
    check_accountant()


def serve_large_clusters(placement: Placement, rows: Mapping[ClientId, int], minimum: int) -> Placement:
    """The placement without the models of clusters that have fewer clients: their clients get the fallback model.

    The new fallback model is the mean of the clusters that are left: with that of all clusters, one could compute the
    model that is not to be served. If no cluster is left, the method's fallback model is served to all.

    Args:
        placement: Client → model.
        rows: Client → row of the bank, for all clients, to count them.
        minimum: The smallest cluster whose model is served.
    """
    sizes = np.bincount(np.array(list(rows.values()), np.int64), minlength=tree.rows(placement.bank))
    large = sizes >= minimum
    if large.all():
        return placement
    fallback = uniform_mean(tree.take(placement.bank, np.flatnonzero(large))) if large.any() else placement.fallback
    bank = tree.where_rows(large, placement.bank, tree.stack([fallback] * len(large)))
    row = {client: row for client, row in placement.row.items() if large[row]}
    return dataclasses.replace(placement, bank=bank, row=row, fallback=fallback)


def round_entry(averaging: Averaging) -> dict[str, Any] | None:
    """The entry `privacy` of a line in `rounds.jsonl`; None without noise."""
    found = averaging.guarantee()
    return None if found is None else {"epsilon": found.epsilon, "delta": found.delta}


def summary_entry(averaging: Averaging) -> dict[str, Any] | None:
    """The entry `privacy` of a summary; None without clipping."""
    privacy, ledger, found = averaging.privacy, averaging.ledger, averaging.guarantee()
    if not privacy.max_update_norm and not privacy.min_cluster_size:
        return None
    entry: dict[str, Any] = {
        "max_update_norm": privacy.max_update_norm,
        "noise_multiplier": privacy.noise_multiplier,
        "min_cluster_size": privacy.min_cluster_size,
    }
    if found is not None:
        entry |= {
            "epsilon": found.epsilon,
            "delta": found.delta,
            "bound": found.by,
            "max_participations": max(ledger.participations.values(), default=0),
            "not_covered": sorted(ledger.individual),
        }
    return entry


def in_words(entry: dict[str, Any]) -> str:
    """The privacy of a run in one sentence, for the terminal."""
    norm = f"updates clipped to norm {entry['max_update_norm']:g}"
    if "epsilon" not in entry:
        return f"{norm}; no noise, so no guarantee" if entry["max_update_norm"] else "no noise, so no guarantee"
    covered = (
        f"for the sums of updates; what the method decides from individual replies ({', '.join(entry['not_covered'])}) "
        "is not covered"
        if entry["not_covered"]
        else "for the models, if the server is trusted"
    )
    epsilon = entry["epsilon"]
    shown = "∞" if epsilon is None or math.isinf(epsilon) else f"{epsilon:.3g}"  # JSON has no infinity
    return f"ε = {shown} at δ = {entry['delta']:.2g} {covered}"
