"""How a cohort is cut into shares."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.federation.ray.shares import cut, whole_blocks, worth_summing


@given(
    costs=st.lists(st.integers(0, 10_000), min_size=1, max_size=400),
    workers=st.integers(1, 40),
    most=st.integers(1, 400),
)
def test_shares_have_every_client_once_and_in_order(costs, workers, most):
    shares = cut(np.array(costs), workers, most)
    assert [place for first, last in shares for place in range(first, last)] == list(range(len(costs)))
    assert all(0 < last - first <= most for first, last in shares)


def test_one_worker_gets_everything_at_once():
    assert cut(np.ones(1000, int), 1, 1000) == [(0, 1000)]


def test_shares_are_balanced_by_planned_steps_and_shrink():
    # 1,000 clients of equal cost on two workers: a quarter first (250, moved to the end of block 8, 256), then a
    # quarter of the rest (186, moved to 192), and so on down to 1/32 of the whole.
    shares = cut(np.full(1000, 7), 2, 1000)
    assert shares[:3] == [(0, 256), (256, 448), (448, 576)]
    assert [last - first for first, last in shares[-3:]] == [32, 32, 8]
    # The first client alone has as much to do as all others.
    assert cut(np.array([99, *[1] * 99]), 2, 100)[0] == (0, 1)


@pytest.mark.parametrize(
    ("share", "whole"),
    [
        ((0, 64), (0, 64)),
        ((5, 64), (32, 64)),
        ((0, 70), (0, 64)),
        ((64, 100), (64, 100)),  # the last block of the request has four clients
        ((40, 60), (40, 40)),
        ((97, 100), (97, 97)),
    ],
)
def test_whole_blocks_of_a_share_of_a_hundred_clients(share, whole):
    assert whole_blocks(*share, 100) == whole


def test_shares_that_are_not_worthwhile_are_not_made():
    # 100 units of work on four workers, at least 60 per share: two shares instead of many.
    assert cut(np.ones(100, int), 4, 100, min_cost=60.0) == [(0, 64), (64, 100)]


def test_sums_are_worth_it_for_few_groups():
    # One group: one sum of 8 bytes instead of 32 models of 4. A block of 32 clients has 16 of 25 groups on average at
    # most: 25 (1 - (24/25)^32) = 18.2.
    assert worth_summing(1)
    assert worth_summing(8)
    assert not worth_summing(25)
