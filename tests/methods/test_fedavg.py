"""FedAvg: its equation by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import tree
from coterie.clients import LocalSGD, fit
from coterie.federation import Cohort
from coterie.methods.fedavg import FedAvg
from coterie.methods.global_model import Global
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("backend", ["sequential", "vectorized"])


def w(value):
    return {"w": np.float32(value)}


@BOTH
def test_one_full_step_of_rate_one_lands_on_the_weighted_mean_of_the_minima(backend, tiny, cohort, step):
    # A step of rate 1 takes client k to c_k, the mean of its examples, wherever it starts.
    #   a: c = 0, n = 1    b: c = 10, n = 1    c: c = 13, n = 2        Σ a_k c_k = (0 + 10 + 2·13) / 4 = 9
    fed = tiny(backend=backend, a=[0], b=[10], c=[12, 14])
    out = FedAvg(step(1.0)).round(w(-5), fed, cohort(fed), Seed(0))
    assert out.state["w"] == 9
    assert out.assignment == {"a": 0, "b": 0, "c": 0}


@BOTH
def test_uniform_weights_ignore_the_number_of_samples(backend, tiny, cohort, step):
    # (0 + 10 + 14) / 3 = 8, although c has the same number of samples as a and b together.
    fed = tiny(backend=backend, a=[0], b=[10], c=[14, 14])
    assert FedAvg(step(1.0), weights="uniform").round(w(-5), fed, cohort(fed), Seed(0)).state["w"] == 8
    assert Global(step(1.0)).round(w(-5), fed, cohort(fed), Seed(0)).state["w"] == 8


def test_weights_are_normalized_over_the_cohort_and_not_over_the_federation(tiny, cohort, step):
    # Over the three samples of b and c: (10 + 2·13) / 3 = 12. Divided by all four samples it would be 9.
    fed = tiny(a=[0], b=[10], c=[12, 14])
    assert FedAvg(step(1.0)).round(w(-5), fed, cohort(fed, clients="bc"), Seed(0)).state["w"] == 12


@BOTH
def test_a_client_without_samples_has_weight_zero(backend, tiny, cohort, step):
    # (10 + 3·14) / 4 = 13; client a, at the start of -5, has weight 0.
    fed = tiny(backend=backend, a=[], b=[10], c=[14, 14, 14])
    out = FedAvg(step(1.0)).round(w(-5), fed, cohort(fed), Seed(0))
    assert out.state["w"] == 13
    # The loss before the step: (15² + 3·19²)/2 over four examples.
    assert out.loss == pytest.approx((15**2 + 3 * 19**2) / 2 / 4)


def test_a_client_without_samples_has_weight_zero_with_uniform_weights_too(tiny, cohort, step):
    # The weight of a client with n_k = 0 is 0 in both modes: (10 + 14) / 2 = 12.
    fed = tiny(a=[], b=[10], c=[14, 14])
    assert FedAvg(step(1.0), weights="uniform").round(w(-5), fed, cohort(fed), Seed(0)).state["w"] == 12


def test_the_model_is_kept_to_the_bit_if_no_client_has_samples(tiny, cohort, step):
    fed = tiny(a=[], b=[], c=[1])
    start = w(1 / 3)
    out = FedAvg(step(1.0)).round(start, fed, cohort(fed, clients="ab"), Seed(0))
    assert tree.same(out.state, start)
    assert out.loss is None


@BOTH
def test_a_cohort_of_stragglers_only_keeps_the_model_to_the_bit(backend, tiny, cohort, step):
    fed = tiny(backend=backend, a=[0], b=[10])
    start = w(1 / 3)
    out = FedAvg(step(1.0)).round(start, fed, cohort(fed, efforts={"a": 0.5, "b": 0.0}), Seed(0))
    assert tree.same(out.state, start)
    assert (dict(out.assignment), out.loss, dict(out.distances)) == ({}, None, {})
    assert fed.traffic.total() == 0


def test_averaging_models_is_averaging_updates(blobs, cohort):
    fed, _ = blobs()
    local = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1)
    method = FedAvg(local)
    start = method.start(fed.task, Seed(0))
    single = fed.ask(cohort(fed), fit, Seed(1), start=start, local=local)
    share = single.samples / single.samples.sum()
    # w + Σ a_k (w_k - w), by hand in float64
    by_updates = tree.map(
        lambda first, each: first + np.tensordot(share, each - first.astype(np.float64), 1), start, single["params"]
    )
    by_models = method.round(start, fed, cohort(fed), Seed(1)).state
    np.testing.assert_allclose(tree.flatten(by_models), tree.flatten(by_updates), atol=1e-6)


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_clients_does_not_matter(order, tiny, step):
    # Whatever the order in the data and in the cohort: the mean is the same to the bit, since it is summed by id.
    held = {"a": [1 / 3], "b": [2 / 7, 5], "c": [1e3], "d": [1e-3, 4, 9]}
    plain = tiny(**held)
    expected = FedAvg(step(0.3)).round(w(0.1), plain, Cohort(0, tuple("abcd"), Seed(0), plain.clients), Seed(0))
    mixed = tiny(**{client: held[client] for client in order})
    out = FedAvg(step(0.3)).round(w(0.1), mixed, Cohort(0, tuple(order), Seed(0), mixed.clients), Seed(0))
    assert tree.same(out.state, expected.state)
    assert out.distances == expected.distances


@BOTH
def test_stragglers_are_dropped(backend, tiny, cohort, step):
    # K = 10 with a share of 0.5: the others hold 0..4, the stragglers 1000; (0 + 1 + 2 + 3 + 4) / 5 = 2.
    fed = tiny(backend=backend, **{f"c{i}": [i if i < 5 else 1000] for i in range(10)})
    out = FedAvg(step(1.0)).round(w(7), fed, cohort(fed, efforts={f"c{i}": 0.9 for i in range(5, 10)}), Seed(0))
    assert len(out.assignment) == 5
    assert out.state["w"] == 2


def test_the_learning_rate_decays_from_round_to_round(tiny, cohort, step):
    # One step from 0 toward 8 with rate ½·½^t: 4 in round 0, 2 in round 1, ½ in round 3.
    fed = tiny(a=[8])
    method = FedAvg(step(0.5, lr_decay=0.5))
    assert [float(method.round(w(0), fed, cohort(fed, t), Seed(0)).state["w"]) for t in (0, 1, 3)] == [4, 2, 0.5]


def test_distances_are_measured_to_the_model_after_the_round(tiny, cohort, step):
    # Local models 0, 10 and 13 around their mean of 9 (see above).
    fed = tiny(a=[0], b=[10], c=[12, 14])
    out = FedAvg(step(1.0)).round(w(-5), fed, cohort(fed), Seed(0))
    assert out.distances == {"a": 9, "b": 1, "c": 4}


def test_distances_are_zero_if_no_client_trained(tiny, cohort, step):
    fed = tiny(a=[], b=[1])
    assert FedAvg(step(1.0)).round(w(3), fed, cohort(fed, clients="a"), Seed(0)).distances == {"a": 0}


def test_the_loss_of_a_round_is_weighted_by_samples(tiny, cohort, step):
    # Before the step, at w = 2: a ½·2² = 2; b, with three samples, ½·4² = 8. (2 + 3·8) / 4 = 6.5
    fed = tiny(a=[0], b=[6, 6, 6])
    assert FedAvg(step(0.5), weights="uniform").round(w(2), fed, cohort(fed), Seed(0)).loss == 6.5


def test_every_epoch_takes_a_step_for_each_batch(tiny, cohort):
    # Batches of one: each step of rate ½ halves the distance to 8, and 2 epochs of 2 steps end at 8 - 8/2⁴ = 7.5.
    fed = tiny(a=[8, 8])
    assert (
        FedAvg(LocalSGD(epochs=2, batch_size=1, learning_rate=0.5)).round(w(0), fed, cohort(fed), Seed(0)).state["w"]
        == 7.5
    )


def test_all_clients_are_served_the_same_model(tiny, step):
    fed = tiny(a=[0], b=[1])
    placement = FedAvg(step(1.0)).place(w(3), fed, ["b", "newcomer"], Seed(0))[1]
    assert placement.row == {"b": 0, "newcomer": 0}
    assert placement.bank["w"].tolist() == [3]
    assert fed.traffic.total() == 0


def test_a_round_sends_one_model_down_and_one_up_for_each_client(tiny, cohort, step):
    # A model of one float32 takes 4 bytes; three clients.
    fed = tiny(a=[0], b=[10], c=[12])
    FedAvg(step(1.0)).round(w(0), fed, cohort(fed), Seed(0))
    assert (fed.traffic.total("down", "train"), fed.traffic.total("up", "train")) == (12, 12)
