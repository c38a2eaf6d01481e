"""The panel: which methods `recommend` runs, how often, and on how many clients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coterie.errors import SpecError, shown, unknown
from coterie.methods import names
from coterie.runs.record import JsonObject
from coterie.runs.spec import Spec

#: The method that trains one model for all clients; the others are compared with it.
REFERENCE = "fedavg"

#: Fraction of the training examples that is held out for validation.
VALIDATION_SHARE = 0.2

#: Methods of a small budget, and of others, in the order in which they are run.
_FEW = (REFERENCE, "local", "fedgroup", "flhc", "ifca", "srfca")
_MANY = (*_FEW, "pacfl", "cfl", "flag", "oneshotifca", "fesem", "fedsoft", "perfedavg")

#: Method → settings that differ from its defaults, as in the demonstration of `coterie compare`.
_SETTINGS: dict[str, JsonObject] = {"ifca": {"restarts": 5}}


@dataclass(frozen=True)
class Budget:
    """How much is run.

    Attributes:
        methods: Names of the methods.
        seeds: Number of runs per method, each with other validation examples.
        clients: Maximum number of clients; of more, some are drawn at random.
        seconds: Time limit; None for no limit.
    """

    methods: tuple[str, ...]
    seeds: int
    clients: int
    seconds: float | None = None


#: Budgets by name.
BUDGETS = {"small": Budget(_FEW, seeds=3, clients=100), "medium": Budget(_MANY, seeds=5, clients=200)}


def budget_of(given: str | float) -> Budget:
    """The budget of a name, or that of `medium` with a time limit in seconds."""
    if isinstance(given, str) and given in BUDGETS:
        return BUDGETS[given]
    try:
        seconds = math.nan if isinstance(given, bool) else float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise SpecError(f"budget must be {', '.join(BUDGETS)} or a number of seconds above 0, got {shown(given)}")
    medium = BUDGETS["medium"]
    return Budget(medium.methods, medium.seeds, medium.clients, seconds)


def panel(
    spec: Spec, budget: Budget, methods: Iterable[str] | Mapping[str, Mapping[str, object]] | None = None
) -> dict[str, Spec]:
    """Method → what is run, the reference first.

    Args:
        spec: Data, model, local training and rounds of all runs.
        budget: Its methods are run if no others are given.
        methods: Names of methods, or name → settings; the reference is added.
    """
    if isinstance(methods, str):
        raise SpecError(f"methods must be a list of names, got {shown(methods)}")
    wanted = list(budget.methods if methods is None else methods)
    if not set(wanted) - {REFERENCE}:
        raise SpecError(f"recommend needs at least one method to compare with one model for all clients ({REFERENCE})")
    if twice := [name for name in wanted if wanted.count(name) > 1]:
        raise SpecError(f"Method {twice[0]} is given twice; give each method once")
    for name in wanted:
        if name not in names():
            raise SpecError(unknown("method", name, names()))
    own = methods if isinstance(methods, Mapping) else {}
    specs: dict[str, Spec] = {}
    for name in dict.fromkeys([REFERENCE, *wanted]):
        settings = {**_SETTINGS.get(name, {}), **own.get(name, {})}
        changed = {"method.name": name, **{f"method.{key}": value for key, value in settings.items()}}
        specs[name] = spec.with_values(changed)
    return specs
