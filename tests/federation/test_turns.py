"""`local.in_turn`: clients that get the same model train one after another."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie import data, models, tree
from coterie.clients import LocalSGD, fit
from coterie.clients.closest import fit_closest
from coterie.errors import SpecError
from coterie.federation import Mean, PerClient, sequential, vectorized
from coterie.methods.ifca import IFCA
from coterie.seeds import Seed
from coterie.testing import CHEAP_CHECKS, Harness, tiny_data, tiny_task

BOTH = pytest.mark.parametrize("federation", [sequential, vectorized], ids=lambda make: make.__name__)

# F_i(w) = ½(w - x_i)², so one step of rate ½ halves the distance to x_i.
TASK = models.from_functions(
    lambda key: {"w": jax.random.normal(key)},
    lambda params, x: jnp.broadcast_to(params["w"], (x.shape[0],)),
    (1,),
    None,
    name="quadratic",
)
STEP = LocalSGD(steps=1, batch_size=0, learning_rate=0.5, in_turn=True)
ADAM = LocalSGD(steps=3, batch_size=4, learning_rate=0.1, optimizer="adam", in_turn=True)


def numbers(**clients):
    """Data of clients with these samples."""
    arrays = {name: (np.zeros((len(xs), 1), np.float32), np.array(xs, np.float32)) for name, xs in clients.items()}
    return data.from_arrays(arrays, test={}, classes=None)


def zero(*values):
    return {"w": np.array(values[0] if len(values) == 1 else values, np.float32)}


@BOTH
def test_each_client_starts_from_the_result_of_the_one_before_and_the_mean_is_over_these_models(federation):
    # a: x = 4, b: x = 10, from 0. First a: w_a = 2, w_b = 2 + 8/2 = 6, mean 4. First b: w_b = 5, w_a = 5 - 1/2 = 4.5,
    # mean 4.75. Side by side it would be 2 and 5, mean 3.5.
    fed = federation(numbers(a=[4], b=[10]), TASK)
    orders = {(2.0, 6.0): 4.0, (4.5, 5.0): 4.75}
    seen = set()
    for seed in range(8):
        got = fed.ask(fed.clients, fit, Seed(seed), start=zero(0), local=STEP)
        models_ = tuple(got["params"]["w"].tolist())
        mean = fed.ask(fed.clients, fit, Seed(seed), start=zero(0), local=STEP, reduce=Mean(weights="uniform"))
        assert mean.means()[0]["w"].tolist() == [orders[models_]]
        seen.add(models_)
    assert seen == set(orders)  # the order is random


@BOTH
def test_clusters_train_in_turn_independently_of_each_other(federation):
    # Cluster 0 has a alone: from 0 to 4/2 = 2. Cluster 1 has b (x = 10) and c (x = 18), from 2: b first gives 6 and 12,
    # c first gives 10 and 10. Cluster 2 has no clients.
    fed = federation(numbers(a=[4], b=[10], c=[18]), TASK)
    row = {"a": 0, "b": 1, "c": 1}
    got = fed.ask(fed.clients, fit, Seed(0), start=PerClient(zero(0, 2, 7), row), local=STEP)
    assert got.clients == ("a", "b", "c")
    assert tuple(got["params"]["w"].tolist()) in {(2.0, 6.0, 12.0), (2.0, 10.0, 10.0)}


@BOTH
@pytest.mark.parametrize(
    "local", [pytest.param(STEP, id="sgd"), pytest.param(ADAM, id="adam", marks=pytest.mark.exhaustive)]
)
def test_one_client_per_cluster_in_turn_equals_side_by_side_to_the_bit(federation, local):
    fed = federation(tiny_data(), tiny_task())
    bank = tree.stack(tiny_task().init(Seed(i)) for i in range(len(fed.clients)))
    start = PerClient(bank, {client: i for i, client in enumerate(fed.clients)})
    beside = LocalSGD(**{**vars(local), "in_turn": False})
    alone, turns = (fed.ask(fed.clients, fit, Seed(1), start=start, local=each) for each in (beside, local))
    for name in fit.gives:
        tree.map(np.testing.assert_array_equal, turns[name], alone[name])


def test_in_turn_is_training_one_client_at_a_time_with_a_new_optimizer_each():
    # The same chain by hand, one request per client: Adam's moments do not pass from client to client.
    fed, start = sequential(tiny_data(), tiny_task()), tiny_task().init(Seed(1))
    got = fed.ask(fed.clients, fit, Seed(1), start=start, local=ADAM).by_client("params")
    beside = LocalSGD(**{**vars(ADAM), "in_turn": False})
    order = sorted(fed.clients, key=lambda client: Seed(1).fold("turn", client).uniform(1)[0])
    for client in order:
        start = fed.ask([client], fit, Seed(1), start=start, local=beside).by_client("params")[client]
        tree.map(np.testing.assert_array_equal, got[client], start)


def test_the_backends_agree():
    results = []
    for federation in (sequential, vectorized):
        fed = federation(tiny_data(), tiny_task())
        row = {client: i % 3 for i, client in enumerate(fed.clients)}
        bank = tree.stack(tiny_task().init(Seed(i)) for i in range(3))
        got = fed.ask(fed.clients, fit, Seed(2), start=PerClient(bank, row), local=ADAM)
        results.append(tree.flatten_rows(got["params"]))
        assert fed.traffic.total("down", "train") == len(fed.clients) * tree.nbytes(tree.row(bank, 0))
    np.testing.assert_allclose(results[0], results[1], atol=1e-5)


@pytest.mark.parametrize("check", CHEAP_CHECKS, ids=lambda check: check.__name__)
def test_a_method_that_trains_in_turn_keeps_the_contract(check):
    check(Harness(lambda given: IFCA(ADAM, clusters=2, first_round="balanced", members=3)))


def test_a_work_that_does_more_than_training_is_refused():
    fed = sequential(tiny_data(), tiny_task())
    heads = tree.stack([tiny_task().init(Seed(0))])
    with pytest.raises(SpecError, match=r"local\.in_turn = true needs .* 'fit_closest' does more"):
        fed.ask(fed.clients, fit_closest, Seed(0), base={}, heads=heads, local=ADAM)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"run": {"backend": "ray"}}, "run.backend = 'ray'"),
        ({"attack": {"name": "scale"}}, "attack"),
        ({"privacy": {"max_update_norm": 1.0}}, "privacy.max_update_norm"),
        ({"compression": {"updates": "int8"}}, "compression"),
        ({"method": "cfl"}, "cfl compares updates"),
    ],
)
def test_settings_that_need_independent_updates_are_refused(settings, text):
    spec = {"data": "blobs", "local": {"in_turn": True}, **settings}
    with pytest.raises(SpecError, match=text):
        coterie.run(spec)


def test_clients_on_other_machines_do_not_train_in_turn():
    from coterie.runs.build import server_spec
    from coterie.runs.spec import Spec

    with pytest.raises(SpecError, match=r"local\.in_turn needs simulated clients"):
        server_spec(Spec.of({"local": {"in_turn": True}}))


def test_the_default_is_side_by_side_and_the_record_says_which():
    spec = {"data": "blobs", "run": {"rounds": 1, "clients_per_round": 4}}
    plain, in_turn = (coterie.run({**spec, **more}) for more in ({}, {"local": {"in_turn": True}}))
    assert (plain.served["spec"]["local"]["in_turn"], in_turn.served["spec"]["local"]["in_turn"]) == (False, True)
