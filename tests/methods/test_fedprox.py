"""FedProx: the proximal term, and stragglers with partial work."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import tree
from coterie.clients import LocalSGD
from coterie.errors import SpecError
from coterie.methods.fedavg import FedAvg
from coterie.methods.fedprox import FedProx
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("backend", ["sequential", pytest.param("vectorized", marks=pytest.mark.exhaustive)])


def w(value):
    return {"w": np.float32(value)}


@BOTH
def test_without_proximal_term_and_stragglers_it_is_fedavg_to_the_bit(backend, blobs, run_rounds):
    local = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1, lr_decay=0.9)
    fed, _ = blobs(backend=backend)
    state, rounds = run_rounds(FedProx(local, mu=0.0), fed, 3, 5)
    plain, plain_rounds = run_rounds(FedAvg(local), fed, 3, 5)
    assert tree.same(state, plain)
    assert [(r.loss, r.assignment) for r in rounds] == [(r.loss, r.assignment) for r in plain_rounds]


@BOTH
def test_the_first_step_does_not_depend_on_mu(backend, blobs, run_rounds):
    # At w = w_t the proximal gradient μ (w - w_t) is 0.
    fed, _ = blobs(backend=backend)
    local = LocalSGD(steps=1, batch_size=8, learning_rate=0.1)
    weak, strong = (run_rounds(FedProx(local, mu=mu), fed, 1, 5)[0] for mu in (0.001, 50.0))
    assert tree.same(weak, strong)


def test_the_second_step_depends_on_mu(tiny, cohort, step):
    # From 0 toward 8 with rate ½: 4 after a step; then 4 - ½((4 - 8) + μ·4) = 6 - 2μ.
    fed = tiny(a=[8])
    for mu in (0.0, 0.5, 1.0):
        out = FedProx(step(0.5, steps=2), mu=mu).round(w(0), fed, cohort(fed), Seed(0))
        assert out.state["w"] == 6 - 2 * mu


def test_a_large_mu_keeps_the_model(tiny, cohort, step):
    # The rate must stay below 2/(1 + μ) for the steps to converge. Then the fixed point (c + μ w_t)/(1 + μ) is
    # within |c - w_t|/(1 + μ) = 10/1001 of w_t.
    fed = tiny(a=[10])
    out = FedProx(step(1e-4, steps=200), mu=1000.0).round(w(0), fed, cohort(fed), Seed(0))
    assert 0 < out.state["w"] <= 10 / 1001 + 1e-5


@BOTH
@pytest.mark.parametrize("mu", [0.5, 1.0, 3.0])
def test_many_steps_converge_to_the_fixed_point(backend, mu, tiny, cohort, step):
    # 0 = (w - c) + μ (w - w_t)  ⟺  w = (c + μ w_t)/(1 + μ); each step shrinks the distance by 1 - 0.2 (1 + μ) ≤ 0.7.
    fed = tiny(backend=backend, a=[9, 11])
    out = FedProx(step(0.2, steps=64), mu=mu).round(w(-2), fed, cohort(fed), Seed(0))
    assert out.state["w"] == pytest.approx((10 + mu * -2) / (1 + mu), abs=1e-5)


def test_proximal_term_is_squared(tiny, cohort, step):
    # The gradient of (μ/2)||w - w_t||² is μ (w - w_t), linear in the distance; that of (μ/2)||w - w_t|| would be
    # constant. With rate ½ from 0 toward c: c/2 after a step, so the proximal gradient in the second step is μ c/2,
    # and the second step falls short of FedAvg's 3c/4 by ½·μ·c/2 = c/4 for μ = 1: twice the distance, twice the
    # gradient.
    shortfalls = []
    for c in (8, 16):
        fed = tiny(a=[c])
        free = FedAvg(step(0.5, steps=2)).round(w(0), fed, cohort(fed), Seed(0)).state["w"]
        proximal = FedProx(step(0.5, steps=2), mu=1.0).round(w(0), fed, cohort(fed), Seed(0)).state["w"]
        shortfalls.append(float(free - proximal))
    assert shortfalls == [2, 4]


def test_the_proximal_term_is_centered_at_the_model_of_this_round(tiny, cohort, step):
    # Two rounds of two steps, μ = 1, rate ½, toward 8. Round 0 from 0: 4, then 6 - 2 = 4. Round 1 from 4: 6, then
    # 6 - ½((6 - 8) + (6 - 4)) = 6.
    fed = tiny(a=[8])
    method = FedProx(step(0.5, steps=2), mu=1.0)
    first = method.round(w(0), fed, cohort(fed, 0), Seed(0)).state
    assert first["w"] == 4
    assert method.round(first, fed, cohort(fed, 1), Seed(1)).state["w"] == 6


@BOTH
def test_stragglers_contribute_partial_work(backend, tiny, cohort):
    # K = 10 with a share of 0.5; E = 3 epochs of one step of rate ½ from 0 toward 8: 4, 6, 7.
    # A straggler with share u does 1 + floor(2u) epochs: 1 for u = 0 and 0.4, 2 for u = 0.5 and 0.9, never all 3.
    # Five at 7, three at 4 (u = 0, 0.4, 0.4), two at 6: (35 + 12 + 12) / 10 = 5.9
    fed = tiny(backend=backend, **{f"c{i}": [8] for i in range(10)})
    efforts = dict(zip(["c5", "c6", "c7", "c8", "c9"], [0.0, 0.4, 0.4, 0.5, 0.9], strict=True))
    method = FedProx(LocalSGD(epochs=3, batch_size=0, learning_rate=0.5), mu=0.0)
    out = method.round(w(0), fed, cohort(fed, efforts=efforts), Seed(0))
    assert len(out.assignment) == 10
    assert out.state["w"] == pytest.approx(5.9)


def test_stragglers_are_weighted_by_samples_whatever_they_completed(tiny, cohort):
    # With one epoch a straggler does all of it: (2·0 + 6·8) / 8 = 6.
    fed = tiny(a=[0, 0], b=[8] * 6)
    method = FedProx(LocalSGD(epochs=1, batch_size=0, learning_rate=1.0))
    assert method.round(w(3), fed, cohort(fed, efforts={"b": 0.99}), Seed(0)).state["w"] == 6


def test_mu_of_the_method_replaces_mu_of_the_local_settings(tiny, cohort, step):
    # As above, 6 - 2μ with the method's μ = 1, and not with the 3 of the local settings.
    fed = tiny(a=[8])
    assert FedProx(step(0.5, steps=2, mu=3.0), mu=1.0).round(w(0), fed, cohort(fed), Seed(0)).state["w"] == 4


def test_the_learning_rate_decays_from_round_to_round(tiny, cohort, step):
    # One step from 0 toward 8 with rate ½·½^t.
    fed = tiny(a=[8])
    method = FedProx(step(0.5, lr_decay=0.5))
    assert [float(method.round(w(0), fed, cohort(fed, t), Seed(0)).state["w"]) for t in (0, 2)] == [4, 1]


@pytest.mark.parametrize("mu", [-0.1, float("inf"), float("nan")])
def test_mu_must_be_finite_and_at_least_zero(mu):
    with pytest.raises(SpecError, match=r"method\.mu must be .*at least 0, got"):
        FedProx(mu=mu)
