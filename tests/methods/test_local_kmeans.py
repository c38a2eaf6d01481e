"""Local-KMeans: centroids by hand, identities, newcomers, and planted clusters."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from coterie import data, models, tree
from coterie.clients import LocalSGD, fit
from coterie.errors import SpecError
from coterie.federation import vectorised
from coterie.methods.local_kmeans import LocalKMeans
from coterie.methods.oracle import Oracle
from coterie.metrics import adjusted_rand
from coterie.models import Normalise
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("kind", ["sequential", "vectorised"])
LOCAL = LocalSGD(epochs=2, batch=8, rate=0.1)


def clustered(method, fed, cohort, clients=None):
    """What clustering from w_0 = 0 gives."""
    zero = {"w": np.zeros((), np.float32)}
    start = dataclasses.replace(method.start(fed.task, Seed(0)), w0=zero)
    return method.round(start, fed, cohort(fed, -1, clients=clients), Seed(0))


@BOTH
def test_a_centroid_is_the_mean_of_the_models_in_its_cluster(kind, tiny, cohort, step):
    # One step of rate ½ from 0: w = 0, 1, 10, 12; everyone counts 1, whatever its examples.
    fed, method = tiny(kind=kind, a=[0], b=[2, 2, 2], c=[20], d=[24]), LocalKMeans(step(0.5), clusters=2, init_steps=1)
    out = clustered(method, fed, cohort)
    assert out.assignment == {"a": 0, "b": 0, "c": 1, "d": 1}
    assert out.state.bank["w"].tolist() == [0.5, 11]
    assert (out.label, out.closes, method.stage(out.state)) == ("k-means", True, "done")
    assert method.place(out.state, fed, fed.clients, Seed(0)).row == out.assignment


def test_a_newcomer_trains_alone_and_joins_the_nearest_centroid_but_not_to_be_scored(tiny, cohort, step):
    fed = tiny(a=[0], b=[2], c=[20], d=[24], y=[5], z=[30])
    method = LocalKMeans(step(0.5), clusters=2, init_steps=1)
    state = clustered(method, fed, cohort, clients="abcd").state
    assert method.place(state, fed, "ayz", Seed(0)).row == {"a": 0, "y": 0, "z": 1}  # w = 2.5 and 15
    assert method.place(state, fed.evaluating(), "ayz", Seed(0)).row == {"a": 0}
    assert method.place(method.start(fed.task, Seed(0)), fed, "az", Seed(0)).row == {"a": 0, "z": 0}


def test_as_many_clusters_as_clients_give_back_the_local_models_to_the_bit(blobs, play):
    fed, _ = blobs()
    method = LocalKMeans(LOCAL, clusters=12, init_steps=20)
    state, _ = play(method, fed, 0)
    local = dataclasses.replace(LOCAL, steps=20)
    alone = fed.ask(fed.clients, fit, Seed(0).fold("prepare", 0), start=state.w0, local=local)
    assert tree.same(tree.take(state.bank, [state.row[client] for client in alone.clients]), alone["params"])


def test_own_starts_differ_and_are_the_clients_own(blobs, play):
    # With a rate of 0 nobody moves: each model is its start.
    fed, _ = blobs()
    still = LocalSGD(rate=0.0)
    common, _ = play(LocalKMeans(still, clusters=12, init_steps=1), fed, 0)
    own, _ = play(LocalKMeans(still, clusters=12, init_steps=1, init="own"), fed, 0)
    assert tree.rows(common.bank) == 1
    assert tree.rows(own.bank) == 12
    for client in fed.clients:
        first = fed.task.init(Seed(0).fold("init", client))
        assert tree.same(tree.row(own.bank, own.row[client]), first)
    assert not tree.same(tree.row(common.bank, 0), tree.row(own.bank, 0))


def test_fine_tuning_is_oracle_in_the_clusters_found(blobs, play):
    fed, truth = blobs()
    method = LocalKMeans(LOCAL, clusters=2, init_steps=50, finetune_rounds=3)
    state, _ = play(method, fed, 0)
    assert dict(state.row) == truth
    mine, _ = play(method, fed, 3, size=5, state=state)
    theirs, _ = play(Oracle(LOCAL, truth=truth), fed, 3, size=5, state=state.bank)
    assert tree.same(mine.bank, theirs)
    assert method.stage(mine) == "done"
    # Newcomers are compared with what the clusters were made of, not with where they have gone.
    assert np.array_equal(mine.centroids, state.centroids)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"clusters": 0}, "clusters of localkmeans must be at least 1, got 0"),
        ({"init_steps": 0}, "init_steps of localkmeans must be at least 1"),
        ({"finetune_rounds": -1}, "finetune_rounds of localkmeans must be at least 0"),
        ({"init": "random"}, "init must be one of 'common', 'own', got 'random'"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings, text):
    with pytest.raises(SpecError, match=text):
        LocalKMeans(**settings)


@pytest.mark.slow
def test_rotated_digits_are_recovered_from_a_common_start(play):
    task = models.build("mclr", (8, 8), 10, normalise=Normalise(0.0, 16.0))
    scores = []
    for seed in range(10):
        images = data.load("digits", clients=40, clusters=4, seed=seed)
        truth = {client: int(cluster) for client, cluster in zip(images.clients, images.truth, strict=True)}
        state, _ = play(LocalKMeans(), vectorised(images, task), 0, seed=seed)
        scores.append(adjusted_rand(dict(state.row), truth))
    assert scores.count(1.0) >= 9, scores
