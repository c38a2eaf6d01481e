"""Every method passes the contract suite.

The first variant of each method gets all checks. Those of the other variants are marked `exhaustive` and run in
`make test-all`.
"""

from __future__ import annotations

import pytest

from coterie.clients import LocalSGD
from coterie.methods import METHODS, build
from coterie.testing import CHECKS, Harness

LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1)
VARIANTS = {
    "cfl": [
        {"warmup": 1, "eps1": 9.0, "eps2": 0.0, "separation": 0.0},
        {
            "participation": "cohort",
            "max_age": 3,
            "warmup": 0,
            "eps1": 9.0,
            "eps2": 0.0,
            "units": "absolute",
            "separation": 0.0,
            "min_size": 1,
            "linkage": "complete",
            "weights": "uniform",
        },
    ],
    "fedavg": [{}, {"weights": "uniform"}],
    "fedgroup": [
        {"clusters": 2, "alpha": 3},
        {"clusters": 2, "alpha": 2, "measure": "madc", "assign": "lazy", "eta_g": 0.1},
        {"clusters": "auto", "max_clusters": 3, "alpha": 3, "rule": "silhouette"},
        {"clusters": 2, "centers": "random", "pretrain_steps": 0},
        {"clusters": 2, "alpha": 2, "assignment": "random", "redraw": True},
    ],
    "fedgrouprox": [{"clusters": 2, "alpha": 2, "mu": 0.1}],
    "fedsim": [
        {"clusters": 2},
        {"clusters": 3, "variance": 1.0, "first_round": "round_robin"},
        {"clusters": 2, "clustering": "round_robin"},
    ],
    "fedsoft": [
        {"clusters": 2},
        {"clusters": 2, "selection": "all", "estimate_every": 2, "renormalize": True, "serve": "center"},
        {"clusters": 3, "members": 1, "sigma": 0.0},
    ],
    "fesem": [
        {"clusters": 2},
        {"clusters": 2, "average_over": "all", "warm_start": True, "weights": "samples"},
        {"clusters": 2, "layers": "last", "warm_start": True, "recluster_every": 2},
    ],
    "fesem-mig": [{"clusters": 2, "warm_start": True, "recluster_every": 2, "agg": "first_only"}],
    "flag": [
        {"threshold_step": 0.25, "validation_clients": 6, "trial_rounds": 2, "trial_epochs": 2, "update_epochs": 2},
        {"threshold_step": 0.5, "beta": 1.0, "privacy": True, "vectors": 2, "trial_rounds": 1, "trial_epochs": 1},
        {"threshold_step": 0.5, "beta": 0.0, "update_epochs": 1, "trial_rounds": 1, "trial_epochs": 1, "rule": "best"},
    ],
    "flexcfl": [
        {"clusters": 2, "alpha": 2},
        {"clusters": 2, "alpha": 2, "tau": 0.0, "detector": "sorted_counts", "eta_g": 0.1},
    ],
    "flhc": [
        {"warm_rounds": 1},
        {"warm_rounds": 0, "metric": "l2", "linkage": "ward", "clusters": 2, "weights": "uniform"},
        {"warm_rounds": 1, "metric": "l1", "linkage": "complete", "threshold_quantile": 0.5},
    ],
    "ifca-mig": [{"clusters": 2, "tau": 0.0, "agg": "first_only"}],
    "ifca": [
        {"clusters": 2},
        {"clusters": 2, "averaging": "gradients"},
        {"clusters": 2, "first_round": "balanced", "members": 2},
        {"clusters": 2, "first_round": "modulo"},
        {"clusters": 2, "warm_rounds": 2, "restarts": 2},
        {"clusters": 2, "balanced_share": 0.2, "weights": "samples"},
    ],
    "pacfl": [{"vectors": 1}, {"angle": "sum", "threshold": 40.0}, {"budget": 4, "threshold": 0.0, "finetuned": True}],
    "perfedavg": [{"beta": 0.05}, {"variant": "hf", "beta": 0.05, "weights": "samples", "adapt_steps": 2}],
    "localkmeans": [
        {"clusters": 2, "init_steps": 20},
        {"clusters": 2, "init_steps": 20, "init": "own", "finetune_rounds": 2},
    ],
    "oneshotifca": [{"init_steps": 20}, {"init_steps": 20, "distance": "l2", "first_models": "random", "members": 2}],
    "srfca": [
        {"init_steps": 20},
        {"init_steps": 20, "distance": "l2", "beta": 0.0, "refines": 1, "final": "fedprox"},
        {"init_steps": 20, "mode": "gradients", "refines": 1, "grouping": "pivot", "min_size": 1},
        {"init_steps": 20, "threshold": "quantile", "members": 2, "start_from": "continue", "final": "fedavg"},
    ],
}


def label(name, options):
    return "-".join([name, *(f"{key}={value}" for key, value in options.items())])


def cases():
    for name in METHODS:
        for number, options in enumerate(VARIANTS.get(name, [{}])):
            for check in CHECKS:
                marks = [pytest.mark.exhaustive] if number > 0 else []
                yield pytest.param(check, name, options, id=f"{check.__name__}-{label(name, options)}", marks=marks)


@pytest.mark.parametrize(("check", "name", "options"), list(cases()))
def test_every_method_keeps_the_contract(check, name, options):
    # With gradients a round is a single step: three of them are too few to learn anything.
    rounds = 6 if options.get("mode") == "gradients" and check.__name__ == "learns" else 3
    check(Harness(lambda given: build(name, LOCAL, given, **options), rounds=rounds))
