"""FedSim's non-IID index of a federation: how unlike its clients' examples are, seen through random models.

    RMSE_i = √(mean (ŷ - y)²)                    client i: on its training examples, with one random model for all
    PNI    = mean_i √(Σ_{j≠i} (RMSE_i - RMSE_j)²)

Palihawadana et al., doi:10.1016/j.neucom.2021.08.141, equations 15 to 18; averaged over many random models, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coterie import metrics, tree
from coterie.clients import label_errors
from coterie.errors import SpecError
from coterie.federation import vectorized
from coterie.runs.build import build
from coterie.runs.spec import Spec
from coterie.seeds import Seed
from coterie.types import Array

#: So many go through the examples together, where their numbers of parameters add up to no more than this.
AT_ONCE, SMALL = 10, 2**17


def pni(spec: Spec, *, draws: int, on_draw: Callable[[int], None] | None = None) -> dict[str, Any]:
    """The index of a spec's data with a spec's model; only one number a client and random model is looked at.

    Args:
        spec: Of which data, model and seed count; clients without training examples are left out.
        draws: Random models to average over.
        on_draw: Called with how many are done.

    Returns:
        `pni` and `scaled` (divided by √(clients - 1)), each with mean and deviation over the random models; `rmse`:
        the clients' errors, averaged over those models, with the clients that have the lowest and the highest.
    """
    if draws < 1:
        raise SpecError(f"PNI needs at least 1 random model, got {draws}")
    built = build(spec)
    clients = sorted(set(built.data.clients).difference(built.idle))
    if len(clients) < 2:
        raise SpecError(
            f"PNI compares clients: {built.data.name} has {len(clients)} with training examples, 2 are needed"
        )
    fed, root = vectorized(built.data, built.task, threads=built.spec.run.threads or None), Seed(built.spec.run.seed)
    at_once = max(1, min(AT_ONCE, SMALL // built.session.parameters))
    errors: list[Array] = []
    while len(errors) < draws:
        numbers = range(len(errors), min(draws, len(errors) + at_once))
        models = tree.stack(built.task.init(root.fold("pni", draw)) for draw in numbers)
        got = fed.ask(clients, label_errors, root, models=models)
        errors.extend(np.sqrt(np.asarray(got["squares"], np.float64).T / got.samples))  # (models, clients)
        if on_draw is not None:
            on_draw(len(errors))
    found = [metrics.pni(each) for each in errors]
    mean = np.mean(errors, axis=0)
    low, high = int(mean.argmin()), int(mean.argmax())
    return {
        "data": built.spec.data.name,
        "model": built.spec.model.name,
        "seed": built.spec.run.seed,
        "clients": len(clients),
        "draws": draws,
        "pni": _spread([each.value for each in found]),
        "scaled": _spread([each.scaled for each in found]),
        "rmse": {
            "mean": float(mean.mean()),
            "lowest": {"client": got.clients[low], "rmse": float(mean[low])},
            "highest": {"client": got.clients[high], "rmse": float(mean[high])},
        },
    }


def _spread(values: list[float]) -> dict[str, float | None]:
    """Mean and deviation over random models; None for the deviation of one."""
    return {"mean": float(np.mean(values)), "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else None}
