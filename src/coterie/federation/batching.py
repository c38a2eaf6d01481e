"""How a cohort is dealt into compiled calls, and how their results are put together again."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie import tree
from coterie.types import Array, ClientId


@dataclass(frozen=True)
class Member:
    """A client of the cohort at hand: its id, its place in the order, its examples, how many, and its transform."""

    id: ClientId
    place: int
    rows: Array
    n: int
    transform: int


@dataclass(frozen=True)
class Capacity:
    """How many clients one call holds, and how many rows of each plan."""

    clients: int
    steps: dict[str, int]


def power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def filled(value: Any, count: int) -> Any:
    """A stack with rows of zeros up to `count`."""

    def fill(leaf: Array) -> Array:
        out = np.zeros((count, *leaf.shape[1:]), leaf.dtype)
        out[: len(leaf)] = leaf
        return out

    return tree.map(fill, value)


def padded_rows(bank: Any) -> Any:
    """A bank with rows of zeros up to a power of two."""
    rows = tree.rows(bank)
    return bank if rows == power(rows) else filled(bank, power(rows))


def globally(local: Array, rows: Array, out: Array) -> None:
    """Positions among a client's own examples → numbers in the flat array.

    Filling is an example of the same client, marked by the sign: ~number. Another client's could spoil a gradient.
    """
    np.take(rows, local, out=out, mode="wrap")  # -1 wraps to the last example
    np.invert(out, out=out, where=local < 0)


def add_up(total: Array, values: Array, starts: Array, members: list[Member]) -> None:
    """The sums of consecutive runs of rows, one run a client."""
    filled = [place for place, member in enumerate(members) if member.n]
    if filled:
        runs = np.add.reduceat(values[: starts[-1]].astype(np.float64), starts[filled], axis=0)
        total[[members[place].place for place in filled]] = runs


def deal(clients: list[Member], costs: list[dict[str, int]], caps: Capacity, threads: int) -> list[list[Member]]:
    """Clients into calls: as many as there are threads, or as many as it takes; longest work first."""
    work = [max(cost.values(), default=1) for cost in costs]
    order = sorted(range(len(clients)), key=lambda i: -work[i])
    bins: list[list[int]] = [[] for _ in range(min(threads, max(len(clients), 1)))]
    loads = [dict.fromkeys(caps.steps, 0) for _ in bins]
    least = [(0, b) for b in range(len(bins))]  # a heap of those that take more clients, by load
    for i in order:
        passed = []
        while least:
            load, b = heapq.heappop(least)
            if all(loads[b][name] + costs[i][name] <= room for name, room in caps.steps.items()):
                break
            passed.append((load, b))
        else:
            b = len(bins)
            bins.append([])
            loads.append(dict.fromkeys(caps.steps, 0))
        bins[b].append(i)
        for name in caps.steps:
            loads[b][name] += costs[i][name]
        for entry in passed:
            heapq.heappush(least, entry)
        if len(bins[b]) < caps.clients:
            heapq.heappush(least, (max(loads[b].values(), default=len(bins[b])), b))
    return [[clients[i] for i in sorted(each)] for each in bins if each] or [[]]


def in_order(results: list[Any], calls: list[list[Member]], count: int) -> dict[str, Any]:
    """The answers of all calls, in the order of the clients."""
    if len(calls) == 1:
        return tree.map(lambda leaf: leaf[:count], results[0])

    def merge(*leaves: Array) -> Array:
        out = np.empty((count, *leaves[0].shape[1:]), leaves[0].dtype)
        for leaf, members in zip(leaves, calls, strict=True):
            out[[member.place for member in members]] = leaf[: len(members)]
        return out

    return tree.map(merge, *results)
