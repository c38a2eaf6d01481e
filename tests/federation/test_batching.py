"""How a cohort is split into calls, against a slow and simple version of the same rule."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coterie.federation.batching import Capacity, Member, split_calls

COHORTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30)


def split_slowly(costs, capacity, threads):
    """Longest work first, each into the call with the least work that has room for it, or into a new call."""
    bins = [[] for _ in range(min(threads, max(len(costs), 1)))]

    def load(b, name):
        return sum(costs[i][name] for i in bins[b])

    for i in sorted(range(len(costs)), key=lambda i: -max(costs[i].values())):
        room = [
            b
            for b in range(len(bins))
            if len(bins[b]) < capacity.clients
            and all(load(b, name) + costs[i][name] <= limit for name, limit in capacity.steps.items())
        ]
        if not room:
            bins.append([])
            room = [len(bins) - 1]
        bins[min(room, key=lambda b: (max(load(b, name) for name in capacity.steps), b))].append(i)
    return [sorted(each) for each in bins if each] or [[]]


@given(COHORTS, st.integers(1, 5), st.integers(9, 25), st.integers(1, 4))
def test_clients_are_balanced_by_their_work_within_the_capacity(cohort, max_clients, rows, threads):
    costs = [{"local": a, "held": b} for a, b in cohort]
    members = [Member(str(place), place, np.arange(1), 1, 0) for place in range(len(costs))]
    capacity = Capacity(max_clients, {"local": rows, "held": rows})
    calls = [[member.place for member in call] for call in split_calls(members, costs, capacity, threads)]
    assert calls == split_slowly(costs, capacity, threads)
    assert sorted(place for call in calls for place in call) == list(range(len(costs)))


def test_without_plans_calls_are_balanced_by_the_number_of_clients():
    members = [Member(str(place), place, np.arange(1), 1, 0) for place in range(5)]
    calls = [[member.place for member in call] for call in split_calls(members, [{}] * 5, Capacity(2, {}), 2)]
    assert calls == [[0, 3], [1, 4], [2]]
