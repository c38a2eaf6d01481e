"""PNI, the non-IID index of FedSim: how much the errors of random models differ between clients.

    RMSE_i = √(mean (ŷ - y)²)   error of client i on its training examples; all clients use the same random model
    PNI    = mean_i √(Σ_{j≠i} (RMSE_i - RMSE_j)²)

Palihawadana et al., doi:10.1016/j.neucom.2021.08.141, equations 15 to 18; averaged over many random models, as there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coterie import metrics, tree
from coterie.clients import label_errors
from coterie.errors import SpecError
from coterie.federation import vectorized
from coterie.runs.build import build
from coterie.runs.record import JsonObject
from coterie.runs.spec import Spec
from coterie.seeds import Seed
from coterie.types import Array

#: Maximum number of models per pass over the examples, and maximum number of parameters of these models together.
MODELS_PER_PASS, PARAMETERS_PER_PASS = 10, 2**17


def pni(spec: Spec, *, draws: int, on_draw: Callable[[int], None] | None = None) -> JsonObject:
    """Compute the PNI for the data and model of a spec. The server sees one number per client and random model.

    Args:
        spec: Data, model and seed; clients without training examples are left out.
        draws: Number of random models to average over.
        on_draw: Called with the number of models done.

    Returns:
        `pni` and `scaled` (divided by √(clients - 1)), each with mean and standard deviation over the random models;
        `rmse`: mean, lowest and highest of the clients' errors, averaged over the models.
    """
    if draws < 1:
        raise SpecError(f"PNI needs at least 1 random model, got {draws}")
    built = build(spec)
    clients, data = built.about.trainable, built.data
    assert data is not None
    if len(clients) < 2:
        raise SpecError(f"PNI needs at least 2 clients with training examples; {data.name} has {len(clients)}")
    fed, root = vectorized(data, built.task, threads=built.spec.run.threads or None), Seed(built.spec.run.seed)
    per_pass = max(1, min(MODELS_PER_PASS, PARAMETERS_PER_PASS // built.session.parameters))
    errors: list[Array] = []
    while len(errors) < draws:
        numbers = range(len(errors), min(draws, len(errors) + per_pass))
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
    """Mean and standard deviation; None for the deviation of a single value."""
    return {"mean": float(np.mean(values)), "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else None}
