"""How a cohort is dealt into calls: against the same rule written the slow way."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coterie.federation.batching import Capacity, Member, deal

COHORTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30)


def slowly(costs, caps, threads):
    """Longest work first, each into the call with the least work that has room for it, or into a new one."""
    bins = [[] for _ in range(min(threads, max(len(costs), 1)))]

    def load(b, name):
        return sum(costs[i][name] for i in bins[b])

    for i in sorted(range(len(costs)), key=lambda i: -max(costs[i].values())):
        room = [
            b
            for b in range(len(bins))
            if len(bins[b]) < caps.clients
            and all(load(b, name) + costs[i][name] <= most for name, most in caps.steps.items())
        ]
        if not room:
            bins.append([])
            room = [len(bins) - 1]
        bins[min(room, key=lambda b: (max(load(b, name) for name in caps.steps), b))].append(i)
    return [sorted(each) for each in bins if each] or [[]]


@given(COHORTS, st.integers(1, 5), st.integers(9, 25), st.integers(1, 4))
def test_clients_are_dealt_by_their_work_within_capacities(cohort, most, rows, threads):
    costs = [{"local": a, "held": b} for a, b in cohort]
    members = [Member(str(place), place, np.arange(1), 1, 0) for place in range(len(costs))]
    caps = Capacity(most, {"local": rows, "held": rows})
    dealt = [[member.place for member in call] for call in deal(members, costs, caps, threads)]
    assert dealt == slowly(costs, caps, threads)
    assert sorted(place for call in dealt for place in call) == list(range(len(costs)))


def test_without_plans_clients_are_dealt_by_their_number():
    members = [Member(str(place), place, np.arange(1), 1, 0) for place in range(5)]
    dealt = [[member.place for member in call] for call in deal(members, [{}] * 5, Capacity(2, {}), 2)]
    assert dealt == [[0, 2], [1, 3], [4]]
