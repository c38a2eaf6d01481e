"""Checks that a method object follows the `Method` protocol. A violation is a MethodError, raised where it happens.

They are cheap enough for every step of every run. `coterie.testing` checks what needs more than one look at a result.
"""

from __future__ import annotations

import inspect
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

import numpy as np

from coterie import codec
from coterie.errors import MethodError, did_you_mean
from coterie.methods.protocol import Method, Placement, Round, Stage
from coterie.types import ClientId

State = TypeVar("State")

#: Functions of a method → names of their arguments.
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "start": ("task", "seed"),
    "stage": ("state",),
    "round": ("state", "fed", "cohort", "seed"),
    "place": ("state", "fed", "clients", "seed"),
}


#: From this number of names on, a set of all clients costs less than a search for each name. Rounds of few clients must
#: not depend on the number of all clients.
MANY = 1000


def check_method(method: object) -> None:
    """Check that an object has the functions of a method, with the right number of arguments."""
    if isinstance(method, type):
        name = method.__name__
        raise MethodError(f"The method must be an object, got the class {name}; create one: {name}(...)")
    for function, arguments in FUNCTIONS.items():
        call = f"{function}({', '.join(arguments)})"
        found = getattr(method, function, None)
        if not callable(found):
            raise MethodError(f"Method {name_of(method)} has no function {call}; a method has {', '.join(FUNCTIONS)}")
        try:
            inspect.signature(found).bind(*arguments)
        except TypeError as fault:
            raise MethodError(f"Method {name_of(method)} must take the arguments {call}: {fault}") from fault
        except ValueError:  # a builtin without a signature
            continue


def checked_state(method: Method[State], function: str, state: State) -> State:
    """The state, which must be plain data: it is saved and restored."""
    try:
        codec.encode(state)
    except TypeError as fault:
        raise MethodError(
            f"`{function}` of method {name_of(method)} must return a state of plain data (coterie.codec): {fault}"
        ) from fault
    return state


def checked_stage(method: Method[Any], stage: object) -> Stage:
    """The stage, which must be one of the three."""
    allowed = get_args(Stage)
    if stage not in allowed:
        hint = did_you_mean(stage, allowed) if isinstance(stage, str) else ""
        words = ", ".join(map(repr, allowed))
        raise MethodError(f"`stage` of method {name_of(method)} must return one of {words}, got {_short(stage)}.{hint}")
    return stage  # type: ignore[return-value]


def checked_round(method: Method[State], result: object, clients: Sequence[ClientId]) -> Round[State]:
    """The result of `round`.

    Args:
        method: The method.
        result: What its function `round` returned.
        clients: All clients, sorted.
    """
    name = name_of(method)
    if not isinstance(result, Round):
        raise MethodError(f"`round` of method {name} must return a Round, such as Round(state), got {_short(result)}")
    _check_numbers(f"Round.assignment of method {name}", "cluster", result.assignment, clients)
    _check_clients(f"Round.distances of method {name}", result.distances, clients)
    _check_clients(f"Round.flagged of method {name}", result.flagged or (), clients)
    return result


def checked_placement(method: Method[State], result: object, clients: Sequence[ClientId]) -> tuple[State, Placement]:
    """The result of `place`.

    Args:
        method: The method.
        result: What its function `place` returned.
        clients: All clients, sorted.
    """
    name = name_of(method)
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Placement)):
        raise MethodError(
            f"`place` of method {name} must return the pair (state, Placement(bank, row)), got {_short(result)}"
        )
    state, placement = result
    _check_numbers(f"Placement.row of method {name}", "row", placement.row, clients)
    lengths = {len(leaf) if leaf.ndim else 0 for leaf in codec.arrays(placement.bank)}
    if len(lengths) != 1:
        raise MethodError(
            f"Placement.bank of method {name} must be models stacked along a leading axis (tree.stack); its arrays "
            f"have {_first(lengths) or 'no'} rows"
        )
    rows = lengths.pop()
    outside = {client: row for client, row in placement.row.items() if row >= rows}
    if outside:
        client = min(outside)
        raise MethodError(
            f"Placement.row of method {name} serves client {client!r} row {outside[client]}; the bank has rows 0 to "
            f"{rows - 1}"
        )
    model = [leaf.shape for leaf in codec.arrays(placement.fallback)]
    if model != [leaf.shape[1:] for leaf in codec.arrays(placement.bank)]:
        raise MethodError(
            f"Placement.fallback of method {name} must be one model, of the same shape as a row of the bank, got "
            f"{'none' if placement.fallback is None else f'arrays of shapes {_first(model)}'}"
        )
    return state, placement


def name_of(method: object) -> str:
    """The name of the method's class, for messages."""
    return type(method).__name__


def _check_numbers(what: str, noun: str, numbers: object, clients: Sequence[ClientId]) -> None:
    """Check a mapping from clients to clusters or rows."""
    if not isinstance(numbers, Mapping):
        raise MethodError(f"{what} must be a dict, client → {noun}, got {_short(numbers)}")
    _check_clients(what, numbers, clients)
    # All types, then the minimum: a million clients take a fraction of a second.
    types = set(map(type, numbers.values()))
    whole = {kind for kind in types if issubclass(kind, int | np.integer) and kind is not bool}
    if types > whole or min(numbers.values(), default=0) < 0:
        client = next(client for client, number in numbers.items() if type(number) not in whole or number < 0)
        raise MethodError(
            f"{what} must have whole numbers from 0, client → {noun}, got {_short(numbers[client])} for {client!r}"
        )


def _check_clients(what: str, named: Iterable[object], clients: Sequence[ClientId]) -> None:
    names = list(named)
    if len(names) > MANY or (isinstance(named, Mapping) and 8 * len(names) > len(clients)):
        unknown = set(names).difference(clients)
    else:
        unknown = {name for name in names if not (isinstance(name, str) and _contains(clients, ClientId(name)))}
    if unknown:
        raise MethodError(f"{what} has clients that do not exist: {_first(unknown)}")


def _contains(clients: Sequence[ClientId], client: ClientId) -> bool:
    place = bisect_left(clients, client)
    return place < len(clients) and clients[place] == client


def _short(value: object) -> str:
    """The value in at most 60 characters, or its type."""
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"


def _first(names: Collection[object]) -> str:
    shown = sorted(map(str, names))
    return ", ".join(shown[:5]) + (", ..." if len(shown) > 5 else "")
