"""How a cohort is cut into shares for workers."""

from __future__ import annotations

import numpy as np

from coterie.aggregation.means import BLOCK
from coterie.types import Array

#: No share is smaller than this fraction of an equal part of the work of one worker.
_SMALLEST = 1 / 16


def cut(costs: Array, workers: int, max_clients: int, min_cost: float = 0.0) -> list[tuple[int, int]]:
    """Cut a cohort into shares of consecutive clients, (first, last + 1).

    Workers take the next share when they are free. The first shares are large and the last ones small: half of an equal
    part of the remaining work each. So few shares are needed, and the end of a request does not wait long for a slow
    worker. Shares of half a block of clients and more end with a block, which can then be summed by the worker.

    Args:
        costs: Planned work of each client.
        workers: Number of workers.
        max_clients: Maximum number of clients in a share.
        min_cost: Work for which a share of its own is worthwhile.
    """
    ends = np.cumsum(np.maximum(costs, 1))
    total, shares, first = int(ends[-1]) if len(ends) else 0, list[tuple[int, int]](), 0
    while first < len(ends):
        done = int(ends[first - 1]) if first else 0
        wanted: float = total - done
        if workers > 1:
            wanted = max(wanted / (2 * workers), _SMALLEST * total / workers, min_cost)
        last = _rounded(first, int(np.searchsorted(ends, done + wanted)) + 1, len(ends))
        last = min(last, first + max_clients)
        shares.append((first, last))
        first = last
    return shares


def _rounded(first: int, last: int, count: int) -> int:
    """The end of a share, moved to the nearest end of a block if the share has at least half a block of clients."""
    if last - first < BLOCK // 2 or last >= count:
        return min(last, count)
    return min(max(round(last / BLOCK), first // BLOCK + 1) * BLOCK, count)


def whole_blocks(first: int, last: int, count: int) -> tuple[int, int]:
    """The clients of a share that form whole blocks, as (first, last + 1); the same number twice if there are none.

    Args:
        first: First client of the share.
        last: Last client of the share + 1.
        count: Number of clients of the request, whose last block may be smaller.
    """
    start = -(-first // BLOCK) * BLOCK
    end = last if last == count else last // BLOCK * BLOCK
    return (start, end) if start < end else (first, first)


def worth_summing(groups: int) -> bool:
    """Whether the sums of a block need fewer bytes than its models, if clients choose among this many groups.

    A block has k (1 - (1 - 1/k)^BLOCK) of k groups on average. Sums have 8 bytes per parameter, models 4.
    """
    return 2 * groups * (1 - (1 - 1 / groups) ** BLOCK) < BLOCK
