"""The clients of a round, and the sampler that methods use."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.federation import Cohort
from coterie.seeds import Seed

CLIENTS = tuple(f"c{i:02}" for i in range(20))


def cohort(t=0, clients=CLIENTS, **options):
    return Cohort(t, clients, Seed(5).fold("cohort", t), CLIENTS, **options)


def test_a_cohort_is_sorted_without_duplicates():
    assert tuple(cohort(clients=("c03", "c01", "c03"))) == ("c01", "c03")
    assert len(cohort(clients=("c03", "c01", "c03"))) == 2
    assert tuple(cohort().of(["c09", "c02", "c09"])) == ("c02", "c09")


def test_a_selection_keeps_the_round_and_its_stragglers():
    whole = cohort(7, efforts={"c01": 0.5})
    some = whole.of(["c01", "c02"])
    assert (some.t, some.seed, some.available, some.efforts) == (7, whole.seed, CLIENTS, {"c01": 0.5})


def test_active_clients_are_those_that_are_not_stragglers():
    assert tuple(cohort(clients=CLIENTS[:4], efforts={"c01": 0.0, "c03": 0.9}).active()) == ("c00", "c02")


def test_draws_depend_on_name_and_round():
    first = cohort().draw(CLIENTS, 8, name="a")
    assert tuple(cohort().draw(CLIENTS, 8, name="a")) == tuple(first)
    # Two independent draws are equal with probability 1 / C(20, 8) = 1 / 125,970.
    assert math.comb(20, 8) == 125_970
    assert tuple(cohort().draw(CLIENTS, 8, name="b")) != tuple(first)
    assert tuple(cohort(1).draw(CLIENTS, 8, name="a")) != tuple(first)


@given(
    pool=st.sets(st.sampled_from(CLIENTS)),
    size=st.integers(0, 25),
    weighted=st.booleans(),
    order=st.randoms(use_true_random=False),
)
def test_a_draw_has_distinct_clients_and_does_not_depend_on_the_order_of_the_pool(pool, size, weighted, order):
    weights = {client: 1.0 + place for place, client in enumerate(CLIENTS)} if weighted else None
    shuffled = sorted(pool)
    order.shuffle(shuffled)
    drawn = cohort().draw(shuffled, size, weights=weights, name="a")
    assert set(drawn) <= pool
    assert len(drawn) == min(size, len(pool))
    assert tuple(drawn) == tuple(cohort().draw(sorted(pool), size, weights=weights, name="a"))


def test_a_draw_from_available_equals_a_draw_from_a_list_of_the_same_clients():
    whole = cohort()
    assert tuple(whole.draw(whole.available, 5, name="a")) == tuple(whole.draw(list(CLIENTS), 5, name="a"))


def test_every_client_is_drawn_equally_often():
    # 2,000 draws of 5 of 20: each client p = ¼ of the time, 500 ± √(2000·¼·¾) = 19.4; five deviations are 97.
    counts = dict.fromkeys(CLIENTS, 0)
    for t in range(2000):
        for client in cohort(t).draw(CLIENTS, 5, name="a"):
            counts[client] += 1
    assert all(abs(count - 500) < 97 for count in counts.values())


def test_a_draw_of_one_follows_the_weights():
    # Weights 1, 2, 5 and 0: probabilities ⅛, ¼, ⅝ and 0 of 4,000 draws; five deviations of the widest are
    # 5·√(4000·⅝·⅜) = 153.
    weights = {"c00": 1.0, "c01": 2.0, "c02": 5.0, "c03": 0.0}
    counts = dict.fromkeys(weights, 0)
    for t in range(4000):
        (client,) = cohort(t).draw(weights, 1, weights=weights, name="a")
        counts[client] += 1
    assert abs(counts["c00"] - 500) < 153
    assert abs(counts["c01"] - 1000) < 153
    assert abs(counts["c02"] - 2500) < 153
    assert counts["c03"] == 0


def test_a_client_without_a_weight_is_never_drawn():
    drawn = cohort().draw(CLIENTS, 10, weights={"c04": 1.0, "c05": 2.0, "c06": 0.0}, name="a")
    assert tuple(drawn) == ("c04", "c05")


def test_invalid_weights_raise():
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="must be finite and at least 0"):
            cohort().draw(CLIENTS, 2, weights={"c04": bad}, name="a")
