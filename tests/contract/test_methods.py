"""Every method of the table keeps the contract."""

from __future__ import annotations

import pytest

from coterie.clients import LocalSGD
from coterie.methods import METHODS, build
from coterie.testing import CHECKS, Stand

LOCAL = LocalSGD(epochs=2, batch=8, rate=0.1)
VARIANTS = {
    "fedavg": [{}, {"weights": "uniform"}],
    "fedgroup": [
        {"groups": 2, "alpha": 3},
        {"groups": 2, "alpha": 2, "measure": "madc", "assign": "lazy", "eta_g": 0.1},
        {"groups": "auto", "most": 3, "alpha": 3, "rule": "silhouette"},
        {"groups": 2, "centres": "random", "pretrain_steps": 0},
        {"groups": 2, "alpha": 2, "assignment": "random", "redraw": True},
    ],
    "fedgrouprox": [{"groups": 2, "alpha": 2, "mu": 0.1}],
    "fesem": [
        {"groups": 2},
        {"groups": 2, "members": "all", "warm_start": True, "weights": "samples"},
        {"groups": 2, "layers": "last", "warm_start": True},
    ],
    "fesem-mig": [{"groups": 2, "warm_start": True}],
    "flexcfl": [
        {"groups": 2, "alpha": 2},
        {"groups": 2, "alpha": 2, "tau": 0.0, "detector": "sorted_counts", "eta_g": 0.1},
    ],
    "ifca-mig": [{"clusters": 2, "tau": 0.0}],
    "ifca": [
        {"clusters": 2},
        {"clusters": 2, "averaging": "gradients"},
        {"clusters": 2, "first": "balanced", "members": 2},
        {"clusters": 2, "warm_rounds": 2, "restarts": 2},
        {"clusters": 2, "balanced_share": 0.2, "weights": "samples"},
    ],
}


def label(name, options):
    return "-".join([name, *(f"{key}={value}" for key, value in options.items())])


CASES = [
    pytest.param(name, options, id=label(name, options)) for name in METHODS for options in VARIANTS.get(name, [{}])
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_method_keeps_the_contract(check, name, options):
    check(Stand(lambda given: build(name, LOCAL, given, **options)))
