"""Oracle: FedAvg within the true clusters."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import tree
from coterie.clients import LocalSGD
from coterie.errors import SpecError
from coterie.federation import Cohort
from coterie.methods import build
from coterie.methods.fedavg import FedAvg
from coterie.methods.oracle import Oracle
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("backend", ["sequential", pytest.param("vectorized", marks=pytest.mark.exhaustive)])
LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1, lr_decay=0.9)


@BOTH
def test_each_true_cluster_moves_to_the_mean_of_its_own_clients(backend, tiny, cohort, bank, step):
    # Steps of rate ½ from 1 and 8: a 1 → 0.5 (x = 0); b 8 → 9 (x = 10); c 8 → 10 (x = 12, two samples).
    # By samples (9 + 2·10) / 3, uniform (9 + 10) / 2.
    fed = tiny(backend=backend, a=[0], b=[10], c=[12, 12])
    truth = {"a": 0, "b": 1, "c": 1}
    out = Oracle(step(0.5), truth=truth).round(bank(1, 8), fed, cohort(fed), Seed(0))
    np.testing.assert_allclose(out.state["w"], [0.5, 29 / 3], rtol=1e-6)
    assert out.assignment == truth
    uniform = Oracle(step(0.5), weights="uniform", truth=truth).round(bank(1, 8), fed, cohort(fed), Seed(0))
    assert uniform.state["w"].tolist() == [0.5, 9.5]
    assert uniform.distances == {"a": 0, "b": 0.5, "c": 0.5}


@BOTH
def test_it_is_fedavg_in_each_true_cluster_to_the_bit(backend, blobs):
    fed, truth = blobs(backend=backend)
    oracle, plain, root = Oracle(LOCAL, truth=truth), FedAvg(LOCAL), Seed(0)
    models = oracle.start(fed.task, root)
    separate = [plain.start(fed.task, root) for _ in range(2)]
    empty = 0
    for t in range(4):
        # Cohorts of two of twelve: sometimes a cluster has no client and keeps its model.
        drawn = sorted(fed.clients[i] for i in root.fold("cohort", t).sample(12, 2))
        asked = Cohort(t, tuple(drawn), root.fold("cohort", t), fed.clients)
        models = oracle.round(models, fed, asked, root.fold("round", t)).state
        for j in range(2):
            members = asked.of(client for client in asked if truth[client] == j)
            empty += len(members) == 0
            separate[j] = plain.round(separate[j], fed, members, root.fold("round", t)).state
    assert empty > 0
    assert tree.same(models, tree.stack(separate))


@BOTH
@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_with_one_true_cluster_it_is_fedavg_to_the_bit(backend, weights, blobs, run_rounds):
    fed, truth = blobs(backend=backend)
    one, rounds = run_rounds(Oracle(LOCAL, weights=weights, truth=dict.fromkeys(truth, 0)), fed, 3, 5, stragglers=2)
    plain, plain_rounds = run_rounds(FedAvg(LOCAL, weights=weights), fed, 3, 5, stragglers=2)
    assert tree.same(tree.row(one, 0), plain)
    assert [(r.loss, r.distances) for r in rounds] == [(r.loss, r.distances) for r in plain_rounds]


def test_stragglers_are_dropped(tiny, cohort, bank, step):
    # b is late: a alone moves its cluster, and cluster 1 stays to the bit.
    fed = tiny(a=[0], b=[10])
    out = Oracle(step(1.0), truth={"a": 0, "b": 1}).round(bank(1, 8), fed, cohort(fed, efforts={"b": 0.5}), Seed(0))
    assert out.state["w"].tolist() == [0, 8]
    assert out.assignment == {"a": 0}


def test_all_clusters_start_from_one_model(quadratic, step):
    start = Oracle(step(1.0), truth={"a": 2, "b": 0}).start(quadratic, Seed(0))
    assert start["w"].tolist() == [float(FedAvg(step(1.0)).start(quadratic, Seed(0))["w"])] * 3


def test_clients_are_served_the_model_of_their_true_cluster(tiny, bank, step):
    fed = tiny(a=[0], b=[10], c=[12])
    placement = Oracle(step(1.0), truth={"a": 0, "b": 1, "c": 1}).place(bank(1, 8), fed, ["a", "c"], Seed(0))[1]
    assert placement.row == {"a": 0, "c": 1}
    assert fed.traffic.total() == 0


@pytest.mark.parametrize("truth", [None, {}])
def test_data_without_known_clusters_are_refused(truth):
    with pytest.raises(SpecError, match="oracle needs data with known true clusters"):
        build("oracle", LOCAL, {"truth": truth, "rounds": 1, "clients_per_round": 1, "clients": 1})


@pytest.mark.parametrize("seed", range(3))
def test_it_is_better_than_one_model_for_all_on_rotated_images(seed, blobs, run_rounds, accuracy):
    fed, truth = blobs(seed)
    oracle, plain = Oracle(LOCAL, truth=truth), FedAvg(LOCAL)
    best, one = (accuracy(method, run_rounds(method, fed, 10, 6)[0], fed) for method in (oracle, plain))
    assert best >= one
    assert best > 0.9
