"""The demonstration: digits of clients that hold their sheets in four ways, and what each method makes of it.

Every setting of `coterie compare` without data of your own stands here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coterie.runs.spec import Spec

#: What is compared where nobody says otherwise.
METHODS = ("fedavg", "fedprox", "local", "ifca", "fedgroup", "flexcfl", "oracle")

_SHARED: dict[str, Any] = {
    "data": {"name": "digits"},  # as its loader deals them: 40 clients, four rotations
    "run": {"rounds": 60, "clients_per_round": 10},
}

#: One random start in a few collapses into fewer clusters; restarts keep the one with the lowest training loss.
_OWN: dict[str, dict[str, Any]] = {
    "ifca": {"clusters": 4, "restarts": 5},
    "fedgroup": {"clusters": 4},
    "flexcfl": {"clusters": 4},
}


def demonstration(methods: Sequence[str] = METHODS) -> dict[str, Spec]:
    """Label → spec, for `compare`.

    Args:
        methods: Names of methods, the one that the others are tested against first.
    """
    return {name: Spec.from_dict({**_SHARED, "method": {"name": name, **_OWN.get(name, {})}}) for name in methods}
