"""Client sampling."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import SpecError
from coterie.federation.cohort import Sampling
from coterie.runs.sampling import Sampler
from coterie.seeds import Seed

KINDS = ("uniform", "sweep", "availability", "round_plus_seed")


def names(count):
    return tuple(f"c{i:03}" for i in range(count))


@given(
    count=st.integers(1, 40), data=st.data(), kind=st.sampled_from(KINDS), t=st.integers(0, 60), late=st.floats(0, 1)
)
def test_a_cohort_is_never_empty_and_holds_distinct_available_clients_in_the_order_of_ids(count, data, kind, t, late):
    size = data.draw(st.integers(1, count))
    sampler = Sampler(names(count), size, Seed(data.draw(st.integers(0, 9))), kind, stragglers=late)
    cohort = sampler.cohort(t)
    assert 1 <= len(cohort) <= size
    assert list(cohort.clients) == sorted(set(cohort.clients))
    assert set(cohort) <= set(cohort.available) <= set(names(count))
    assert len(cohort) == size or len(cohort.available) < size
    assert cohort.t == t
    assert len(cohort.efforts) == round(late * len(cohort))
    assert set(cohort.efforts) <= set(cohort)
    assert all(0 <= effort < 1 for effort in cohort.efforts.values())


@pytest.mark.parametrize("kind", KINDS)
def test_cohorts_depend_on_seed_and_round_only(kind):
    def cohorts(seed, order):
        sampler = Sampler(names(30), 8, Seed(seed), kind, stragglers=0.5)
        return {t: sampler.cohort(t) for t in order}

    forth, back = cohorts(0, range(12)), cohorts(0, reversed(range(12)))
    assert all(forth[t] == back[t] for t in range(12))  # the order of calls does not matter
    others = cohorts(1, range(12))
    assert any(forth[t].clients != others[t].clients for t in range(4, 12))
    assert len({forth[t].clients for t in range(4, 12)}) > 1


def test_uniform_sampling_draws_every_client_equally_often():
    # 2,000 cohorts of 6 of 20: each client p = 0.3 of the time, 600 ± √(2000·0.3·0.7) = 20.5; five deviations are 103.
    sampler = Sampler(names(20), 6, Seed(0))
    counts = dict.fromkeys(names(20), 0)
    for t in range(2000):
        for client in sampler.cohort(t):
            counts[client] += 1
    assert all(abs(count - 600) < 103 for count in counts.values())


@given(count=st.integers(1, 30), data=st.data())
def test_a_sweep_visits_every_client_first_in_the_order_of_ids(count, data):
    size = data.draw(st.integers(1, count))
    sampler = Sampler(names(count), size, Seed(0), "sweep")
    rounds = math.ceil(count / size)
    seen = [client for t in range(rounds) for client in sampler.cohort(t)]
    assert set(seen) == set(names(count))
    # The last round of the sweep has its full size: it is filled up from the start of the list.
    assert len(seen) == rounds * size
    whole = [client for t in range(count // size) for client in sampler.cohort(t)]
    assert whole == list(names(count))[: len(whole)]
    again = Sampler(names(count), size, Seed(0), "uniform")
    assert sampler.cohort(rounds) == again.cohort(rounds)


def test_only_available_clients_are_drawn():
    sampler = Sampler(names(40), 10, Seed(0), "availability")
    cohorts = [sampler.cohort(t) for t in range(300)]
    assert all(set(cohort) <= set(cohort.available) for cohort in cohorts)
    assert all(len(cohort.available) < 40 for cohort in cohorts)
    assert len({cohort.available for cohort in cohorts}) > 290
    # A client is available with its own probability between 0.1 and 1, 0.55 on average over 40 clients and 300
    # rounds. Probabilities have a deviation of 0.9/√12 = 0.26, their mean of 0.26/√40 = 0.041; five of these are 0.21.
    there = {client: sum(client in cohort.available for cohort in cohorts) / 300 for client in names(40)}
    assert abs(sum(there.values()) / 40 - 0.55) < 0.21
    # Each client has the same probability in both halves of the rounds. Binomial, p = ½ at the
    # worst: a deviation of √(½·½/150·2) = 0.058 between the halves; five are 0.29.
    for client in names(40):
        half = [sum(client in c.available for c in part) / 150 for part in (cohorts[:150], cohorts[150:])]
        assert abs(half[0] - half[1]) < 0.29
    assert max(there.values()) - min(there.values()) > 0.5


def test_if_no_client_is_available_all_are():
    # The only client would be absent in about 45 % of the rounds.
    sampler = Sampler(("a",), 1, Seed(0), "availability")
    assert all(tuple(sampler.cohort(t)) == ("a",) for t in range(50))


def test_stragglers_are_a_fraction_of_each_cohort_with_random_efforts():
    sampler = Sampler(names(20), 10, Seed(0), stragglers=0.9)
    cohorts = [sampler.cohort(t) for t in range(400)]
    assert all(len(cohort.efforts) == 9 for cohort in cohorts)
    assert all(len(cohort.active()) == 1 for cohort in cohorts)
    efforts = [effort for cohort in cohorts for effort in cohort.efforts.values()]
    # Uniform on [0, 1): mean ½, deviation √(1/12/3600) = 0.0048; five are 0.024.
    assert abs(sum(efforts) / len(efforts) - 0.5) < 0.024
    plain = Sampler(names(20), 10, Seed(0))
    assert [c.clients for c in cohorts] == [
        plain.cohort(t).clients for t in range(400)
    ]  # stragglers do not change the cohorts


@pytest.mark.parametrize("kind", KINDS)
def test_a_newcomer_is_not_drawn_before_its_round(kind):
    late = {"c002": 3, "c005": 3, "c007": 6}
    sampler = Sampler(names(8), 5, Seed(0), kind, late=late)
    for t in range(12):
        cohort = sampler.cohort(t)
        assert not {client for client in (*cohort, *cohort.available) if late.get(client, 0) > t}
        assert sampler.joining(t) == {3: ("c002", "c005"), 6: ("c007",)}.get(t, ())
    assert tuple(sampler.all_clients(0)) == tuple(client for client in names(8) if client not in late)
    drawn = {client for t in range(40) for client in sampler.cohort(t)}
    assert drawn == set(names(8))
    with pytest.raises(
        SpecError, match="at most 5, the number of clients that have training examples and do not join later, got 6"
    ):
        Sampler(names(8), 6, Seed(0), kind, late=late)


def test_preparation_includes_all_clients_and_has_its_own_seeds():
    sampler = Sampler(names(7), 3, Seed(0), stragglers=0.5)
    first, second = sampler.all_clients(0), sampler.all_clients(1)
    assert tuple(first) == tuple(second) == names(7)
    assert (first.t, dict(first.efforts)) == (-1, {})
    assert len({first.seed, second.seed, sampler.cohort(0).seed}) == 3


def test_invalid_sizes_and_stragglers_are_rejected():
    for size in (0, -1, 6):
        text = (
            rf"run\.clients_per_round must be at most 5, the number of clients that have training examples, got {size}"
        )
        with pytest.raises(SpecError, match=text):
            Sampler(names(5), size, Seed(0))
    for fraction in (-0.1, 1.1, math.nan):
        with pytest.raises(SpecError, match=r"run\.stragglers must be between 0 and 1, got"):
            Sampler(names(5), 2, Seed(0), stragglers=fraction)


def test_with_poisson_sampling_each_client_joins_independently():
    sampler = Sampler(names(20), 6, Seed(0), "poisson")
    rounds = [set(sampler.cohort(t)) for t in range(2000)]
    # Each client joins with probability 0.3: 600 of 2,000 times, with deviation √(2000·0.3·0.7) = 20.5.
    assert all(abs(sum(client in cohort for cohort in rounds) - 600) < 103 for client in names(20))
    # The number of clients is binomial: mean 6, variance 20·0.3·0.7 = 4.2 with deviation about 4.2·√(2/2000) = 0.13.
    sizes = [len(cohort) for cohort in rounds]
    assert abs(statistics.mean(sizes) - 6) < 5 * math.sqrt(4.2 / 2000)
    assert abs(statistics.variance(sizes) - 4.2) < 5 * 0.14
    # Independent of each other: both of two clients join 180 of 2,000 times, with deviation √(2000·0.09·0.91) = 12.8.
    assert abs(sum({names(20)[0], names(20)[1]} <= cohort for cohort in rounds) - 180) < 64


def test_cohorts_say_how_they_were_drawn_only_if_they_were_drawn_uniformly():
    def sampling(t=0, **options):
        return Sampler(names(20), 6, Seed(0), **options).cohort(t).sampling

    assert sampling() == Sampling("fixed", 6, 20)
    assert sampling(kind="poisson") == Sampling("poisson", 6, 20)
    assert sampling(kind="availability") is None
    assert sampling(kind="sweep") is None
    assert sampling(kind="sweep", t=10) == Sampling("fixed", 6, 20)
    assert sampling(stragglers=0.5) is None
    # Clients that join later are not in the population before.
    late = dict.fromkeys(names(20)[:5], 3)
    assert sampling(t=2, late=late) == Sampling("fixed", 6, 15)
    assert sampling(t=3, late=late) == Sampling("fixed", 6, 20)


def test_cohorts_of_published_programs_follow_from_round_plus_seed():
    # numpy.random.seed(0) and numpy.random.permutation(10) give 2 8 4 9 1 6 7 3 0 5, of which choice takes the first 3.
    def cohort(seed, t):
        return Sampler(names(10), 3, Seed(seed), "round_plus_seed").cohort(t).clients

    assert cohort(0, 0) == ("c002", "c004", "c008")
    assert all(cohort(1, t) == cohort(0, t + 1) for t in range(20))
    assert len({cohort(0, t) for t in range(20)}) > 10
    assert Sampler(names(10), 3, Seed(0), "round_plus_seed").cohort(0).sampling is None  # not secret
