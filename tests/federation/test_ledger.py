"""(ε, δ) of counted releases: against formulas by hand, and exact divergences of small mechanisms."""

from __future__ import annotations

import itertools
import logging
import math
import sys

import numpy as np
import pytest
from scipy.stats import norm

from coterie.errors import SpecError
from coterie.federation import ledger as ledgers
from coterie.federation.cohort import Sampling
from coterie.federation.ledger import Ledger, default_delta

FIXED = Sampling("fixed", 10, 1000)
POISSON = Sampling("poisson", 10, 1000)


def exact_delta(epsilon, count, multiplier):
    """δ of `count` Gaussian mechanisms at ε, one with multiplier z/√count (Balle and Wang, 2018, theorem 8)."""
    sigma = multiplier / math.sqrt(count)
    a, b = 1 / (2 * sigma), epsilon * sigma
    return norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b)


def hockey_stick(epsilon, one, other):
    """δ at ε of two densities on a grid."""
    x = np.linspace(-20, 20, 20_001)
    p, q = one(x), other(x)
    step = x[1] - x[0]
    return max(np.maximum(p - math.exp(epsilon) * q, 0).sum(), np.maximum(q - math.exp(epsilon) * p, 0).sum()) * step


def after(releases, sampling=None, clients=("a",)):
    made = Ledger()
    for _ in range(releases):
        made.release(clients, sampling)
        made.end_round()
    return made


@pytest.mark.parametrize(("count", "multiplier"), [(1, 1.0), (1, 5.0), (20, 2.0), (100, 8.0)])
def test_epsilon_of_gaussian_mechanisms_is_a_tight_upper_bound(count, multiplier):
    found = after(count).guarantee(multiplier, 1e-5)
    assert found.by == "participation"
    # Valid: at this ε the exact δ is below the stated one. Tight: at 3/4 of this ε it is not.
    assert exact_delta(found.epsilon, count, multiplier) <= 1e-5
    assert exact_delta(0.75 * found.epsilon, count, multiplier) > 1e-5


def test_epsilon_of_gaussian_mechanisms_is_the_conversion_of_their_renyi_divergence():
    # RDP(α) = T α / (2 z²); ε = min_α RDP + ln(1 - 1/α) - ln(δ α) / (α - 1). Here the best α is near 5.
    count, z, delta = 10, 4.0, 1e-3
    alphas = np.linspace(1.01, 60, 100_000)
    by_hand = count * alphas / (2 * z**2) + np.log1p(-1 / alphas) - np.log(delta * alphas) / (alphas - 1)
    assert after(count).guarantee(z, delta).epsilon == pytest.approx(by_hand.min(), rel=1e-3)


def test_the_client_with_most_releases_decides():
    made = after(3, clients=("a", "b"))
    made.release(("b",), None, times=2)
    assert made.guarantee(1.0, 1e-5) == after(5).guarantee(1.0, 1e-5)


def test_without_releases_epsilon_is_zero():
    assert Ledger().guarantee(1.0, 1e-5).epsilon == 0


def test_poisson_sampling_amplifies():
    made = after(100, POISSON, clients=())
    made.participations = {"a": 5}
    found = made.guarantee(1.0, 1e-5)
    assert found.by == "sampling"
    # At α = 2 the divergence of a round is ln(1 + q² (e^(1/z²) - 1)); the minimum over all α is below.
    at_two = 100 * math.log1p(0.01**2 * (math.e - 1)) + math.log(1 / 2) - math.log(2e-5)
    assert found.epsilon < at_two
    assert found.epsilon < after(5).guarantee(1.0, 1e-5).epsilon


def test_a_poisson_sampled_round_is_covered_by_its_epsilon():
    q, z, delta = 0.3, 0.8, 1e-4
    made = after(1, Sampling("poisson", 3, 10))
    epsilon = ledgers._subsampled((ledgers.SampledRounds("poisson", 3, 10, 1, 1),), 0, z, delta)
    exact = hockey_stick(
        epsilon, lambda x: (1 - q) * norm.pdf(x, 0, z) + q * norm.pdf(x, 1, z), lambda x: norm.pdf(x, 0, z)
    )
    assert 0 < exact <= delta
    assert made.guarantee(z, delta).epsilon <= epsilon


@pytest.mark.parametrize("others", [(-1, -1, -1), (1, 1, 1), (-1, 1, 1), (0, 0, 0)])
@pytest.mark.parametrize("update", [1, -1])
def test_a_round_with_a_fixed_number_of_clients_is_covered_by_its_epsilon(others, update):
    """The sum over 2 of 4 clients with updates of norm 1, against the same with the update of one client zeroed."""
    z, delta = 1.5, 1e-3
    epsilon = ledgers._subsampled((ledgers.SampledRounds("fixed", 2, 4, 1, 1),), 0, z, delta)

    def density(first):
        sums = [sum(pair) for pair in itertools.combinations((first, *others), 2)]
        return lambda x: np.mean([norm.pdf(x, total, z) for total in sums], axis=0)

    assert hockey_stick(epsilon, density(update), density(0)) <= delta


def test_with_a_fixed_number_of_clients_the_sensitivity_is_that_of_replacing_a_client():
    # All of 10 clients in every round: no amplification; replacing one changes a sum by 2C, so z = 4 instead of 8.
    everyone = ledgers._subsampled((ledgers.SampledRounds("fixed", 10, 10, 1, 20),), 0, 8.0, 1e-5)
    assert everyone == pytest.approx(after(20).guarantee(4.0, 1e-5).epsilon, rel=0.02)
    # Zeroing its updates changes it by C, so the bound by participation is the smaller one.
    assert after(20, Sampling("fixed", 10, 10)).guarantee(8.0, 1e-5).by == "participation"


def test_sums_over_the_same_sample_share_their_noise_budget():
    # Two sums of one round are one with multiplier z/√2.
    twice = Ledger()
    for _ in range(50):
        twice.release((), POISSON)
        twice.release((), POISSON)
        twice.end_round()
    assert twice.rounds == {("poisson", 10, 1000, 2): 50}
    twice.participations = {"a": 10**6}
    once = after(50, POISSON, clients=())
    once.participations = {"a": 10**6}
    assert twice.guarantee(math.sqrt(2), 1e-5).epsilon == pytest.approx(once.guarantee(1.0, 1e-5).epsilon, rel=1e-9)


def test_sums_over_clients_that_were_not_sampled_are_not_amplified():
    made = after(50, POISSON)
    made.release(("a",), None)
    alone = after(1).guarantee(1.0, 1e-5).epsilon
    assert made.guarantee(1.0, 1e-5).epsilon > alone


def test_a_method_that_sees_individual_replies_gets_no_amplification():
    made = after(5, POISSON)
    assert made.guarantee(1.0, 1e-5).by == "sampling"
    made.individual.add("update")
    assert made.guarantee(1.0, 1e-5) == after(5).guarantee(1.0, 1e-5)


@pytest.mark.parametrize("sampling", [None, FIXED, POISSON])
def test_a_ledger_continues_from_its_saved_counts(sampling):
    whole, part, rest = after(7, sampling), after(3, sampling), Ledger()
    part.draw()
    part.individual.add("fit")
    rest.load(part.save())
    assert rest.draw() == 2
    assert rest.individual == {"fit"}
    rest.individual.clear()
    for _ in range(4):
        rest.release(("a",), sampling)
        rest.end_round()
    assert rest.guarantee(1.0, 1e-5) == whole.guarantee(1.0, 1e-5)


def test_the_accountant_logs_no_warnings(caplog):
    with caplog.at_level(logging.WARNING):
        for sampling in (None, FIXED, POISSON):
            after(3, sampling).guarantee(0.7321, 1e-5)
    assert not caplog.records


def test_the_default_delta_is_below_one_over_the_number_of_clients():
    assert default_delta(100) == pytest.approx(0.0063096, rel=1e-4)  # 10^-2.2
    assert default_delta(1) == 0.1


def test_a_missing_accountant_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(SpecError, match=r"pip install 'coterie\[privacy\]'"):
        ledgers.check_accountant()
