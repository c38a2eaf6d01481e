"""How the vectorized backend splits a cohort into compiled calls, and merges the results of the calls."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from coterie import tree
from coterie.federation.kernels import Plans
from coterie.federation.messages import Request
from coterie.types import Array, Bank, ClientId

T = TypeVar("T")


class Member(NamedTuple):
    """A client of the current request.

    Attributes:
        id: Client id.
        place: Position in the request.
        rows: Row numbers of its examples in the flat array.
        n: Number of examples.
        transform: Index of its transform.
        position: Position among all clients of the data.
    """

    id: ClientId
    place: int
    rows: Array
    n: int
    transform: int
    position: int = -1


@dataclass(frozen=True)
class Capacity:
    """Size of one compiled call: number of clients, and number of rows of each plan."""

    clients: int
    steps: dict[str, int]


class ExampleBlock(NamedTuple):
    """Examples of clients with the same transform and the same sent values.

    Attributes:
        key: Index of the transform, and the row of each value that is sent per client.
        rows: Example numbers.
    """

    key: tuple[int, ...]
    rows: Array


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def pad_rows(value: T, count: int) -> T:
    """Pad a stack with rows of zeros to `count` rows."""

    def pad(leaf: Array) -> Array:
        if len(leaf) == count:
            return leaf
        out = np.zeros((count, *leaf.shape[1:]), leaf.dtype)
        out[: len(leaf)] = leaf
        return out

    return tree.map(pad, value)


def flat_numbers(local: Array, rows: Array, out: Array) -> None:
    """Convert positions among a client's own examples to row numbers in the flat array.

    Padding becomes an example of the same client, marked by the sign: ~number. With an example of another client as
    padding, NaN in that example could get into the gradient.
    """
    np.take(rows, local, out=out, mode="wrap")  # -1 wraps to the last example
    np.invert(out, out=out, where=local < 0)


def split_calls(
    clients: list[Member], costs: list[dict[str, int]], capacity: Capacity, threads: int
) -> list[list[Member]]:
    """Split clients into compiled calls: one per thread, or more if they do not fit; clients with most work first.

    Args:
        clients: The clients.
        costs: Number of rows of each plan, per client.
        capacity: Size of one call.
        threads: Number of calls that run at a time.
    """
    if not capacity.steps:  # no plans: all clients have the same work
        calls = max(-(-len(clients) // capacity.clients), min(threads, len(clients)))
        return [clients[call::calls] for call in range(calls)] or [[]]
    work = [max(cost.values()) for cost in costs]
    bins: list[list[int]] = [[] for _ in range(min(threads, max(len(clients), 1)))]
    loads = [dict.fromkeys(capacity.steps, 0) for _ in bins]
    open_bins = [(0, b) for b in range(len(bins))]  # a heap by load, of the calls that have room for more clients
    for i in sorted(range(len(clients)), key=lambda i: -work[i]):
        full = []
        while open_bins:
            load, b = heapq.heappop(open_bins)
            if all(loads[b][name] + costs[i][name] <= rows for name, rows in capacity.steps.items()):
                break
            full.append((load, b))
        else:
            b = len(bins)
            bins.append([])
            loads.append(dict.fromkeys(capacity.steps, 0))
        bins[b].append(i)
        for name in capacity.steps:
            loads[b][name] += costs[i][name]
        for entry in full:
            heapq.heappush(open_bins, entry)
        if len(bins[b]) < capacity.clients:
            heapq.heappush(open_bins, (max(loads[b].values()), b))
    return [[clients[i] for i in sorted(each)] for each in bins if each] or [[]]


def merge_calls(results: list[T], calls: list[list[Member]], count: int) -> T:
    """Merge the results of all calls, in the order of the clients."""
    if len(calls) == 1:
        return tree.map(lambda leaf: leaf[:count], results[0])

    def merge(*leaves: Array) -> Array:
        out = np.empty((count, *leaves[0].shape[1:]), leaves[0].dtype)
        for leaf, members in zip(leaves, calls, strict=True):
            out[[member.place for member in members]] = leaf[: len(members)]
        return out

    return tree.map(merge, *results)


def plan_costs(request: Request, clients: list[Member]) -> list[dict[str, int]]:
    """Maximum number of rows of each plan, per client."""
    lengths = request.work.lengths
    if lengths is None:
        return [{}] * len(clients)
    by_size = {n: lengths(n, **request.settings) for n in {member.n for member in clients}}
    return [by_size[member.n] for member in clients]


def plan_pages(request: Request, members: list[Member], capacity: Capacity) -> Plans:
    """The planned batches of the clients of one call, as rows of example numbers in the flat array."""
    plan = request.work.plan
    if plan is None:
        return Plans({}, {}, {}, {})
    plans = [
        plan(member.n, request.client_seed(member.id), request.efforts.get(member.id, 1.0), **request.settings)
        for member in members
    ]
    pages, starts, counts, lasts = {}, {}, {}, {}
    for name, rows in capacity.steps.items():
        steps = [each[name] for each in plans]
        lengths = np.array([len(each.index) for each in steps], np.int32)
        firsts = np.cumsum(lengths, dtype=np.int32) - lengths
        starts[name], counts[name] = pad_rows(firsts, capacity.clients), pad_rows(lengths, capacity.clients)
        pages[name] = np.full((rows, steps[0].index.shape[1]), -1, np.int32)
        last = np.zeros(rows, bool)
        for member, each, first, length in zip(members, steps, firsts.tolist(), lengths.tolist(), strict=True):
            if length:
                flat_numbers(each.index, member.rows, pages[name][first : first + length])
            if each.last is not None:
                last[first : first + length] = each.last
        if any(each.last is not None for each in steps):
            lasts[name] = last
    return Plans(pages, starts, counts, lasts)


def small_banks(request: Request, capacity: Capacity) -> dict[str, Bank | Array]:
    """The banks that are passed whole to every call, padded to a power of two."""
    return {
        name: pad_rows(bank, power_of_two(tree.rows(bank)))
        for name, (bank, _) in request.per_client.items()
        if tree.rows(bank) <= capacity.clients
    }


def call_values(
    request: Request, places: list[int], small: dict[str, Bank | Array], count: int
) -> tuple[dict[str, Bank | Array], dict[str, Array]]:
    """The values that differ between clients, for the clients of one call: banks, and the row of each client.

    Args:
        request: The request.
        places: Positions of the clients in the request.
        small: Banks that are passed whole; from other banks only the rows of these clients are passed.
        count: Number of clients to pad to.
    """
    banks, rows = dict(small), {}
    for name, (bank, row) in request.per_client.items():
        own = row[places]
        if name not in small:
            banks[name] = pad_rows(tree.take(bank, own), count)
            own = np.arange(len(places))
        rows[name] = pad_rows(own.astype(np.int32), count)
    return banks, rows


class BlockGroup(NamedTuple):
    """Clients with the same transform and the same sent values, whose examples follow each other in blocks.

    Attributes:
        blocks: Number of blocks.
        rows: Example numbers, client by client.
        places: Positions in the request of the clients that have examples.
        starts: Where the examples of each of these clients begin in `rows`.
    """

    blocks: int
    rows: Array
    places: Array
    starts: Array


class Layout(NamedTuple):
    """How the examples of the clients of a request are split into blocks.

    Attributes:
        blocks: The blocks, group by group.
        groups: The groups of clients.
    """

    blocks: list[ExampleBlock]
    groups: list[BlockGroup]


def split_blocks(request: Request, clients: list[Member], width: int) -> Layout:
    """Split the examples of the clients of a request into blocks of at most `width`."""
    alike: dict[tuple[int, ...], list[Member]] = {}
    places = [member.place for member in clients]
    rows = [row[places].tolist() for _, row in request.per_client.values()]
    for key, member in zip(zip([member.transform for member in clients], *rows, strict=True), clients, strict=True):
        alike.setdefault(key, []).append(member)
    blocks, groups = [], []
    for key, members in alike.items():
        numbers = np.concatenate([member.rows for member in members])
        own = [ExampleBlock(key, numbers[first : first + width]) for first in range(0, len(numbers), width)]
        sizes = np.array([member.n for member in members])
        where = np.array([member.place for member in members])
        starts = np.cumsum(sizes) - sizes
        groups.append(BlockGroup(len(own), numbers, where[sizes > 0], starts[sizes > 0]))
        blocks += own
    return Layout(blocks, groups)


def block_values(
    request: Request, blocks: list[ExampleBlock], count: int, max_rows: int
) -> tuple[dict[str, Bank | Array], dict[str, Array]]:
    """The values that differ between clients, for some blocks: the rows in use, and the row of each block.

    Args:
        request: The request.
        blocks: The blocks of one call.
        count: Number of blocks to pad to.
        max_rows: Maximum number of rows in use.
    """
    banks, rows = {}, {}
    for i, (name, (bank, _)) in enumerate(request.per_client.items(), start=1):
        used = sorted({block.key[i] for block in blocks})
        # Always the same number of rows, so that no cohort needs a new compilation.
        banks[name] = pad_rows(tree.take(bank, used), power_of_two(min(tree.rows(bank), max_rows)))
        rows[name] = pad_rows(np.array([used.index(block.key[i]) for block in blocks], np.int32), count)
    return banks, rows


def weigh(values: Array, weights: Array) -> Array:
    """Values per example, multiplied by the weight of the example; 0 for weight 0, even if a value is not finite."""
    factor = weights.reshape(-1, *[1] * (values.ndim - 1))
    return np.where(factor > 0, values * factor, 0.0)


def add_blocks(total: Array, values: list[Array], groups: list[BlockGroup], weights: Array | None = None) -> None:
    """Set the row of each client in `total` to the sum of its values over all blocks.

    Args:
        total: One row per client.
        values: The values of each block.
        groups: The clients whose examples share blocks.
        weights: Weights of all examples in the flat array, by which values are multiplied; None: 1.
    """
    first = 0
    for group in groups:
        if len(group.places):
            rows = np.concatenate(values[first : first + group.blocks])[: len(group.rows)].astype(np.float64)
            if weights is not None:
                rows = weigh(rows, weights[group.rows])
            total[group.places] = np.add.reduceat(rows, group.starts, axis=0)
        first += group.blocks
