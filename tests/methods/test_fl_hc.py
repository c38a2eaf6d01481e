"""FL+HC: the clustering by hand, newcomers, identities with FedAvg, and planted clusters."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import coterie
from coterie import codec, data, models, tree
from coterie.clients import LocalSGD
from coterie.errors import SpecError, TooFewReplies
from coterie.federation import Faults, FaultTransport, Server, Vectorized, vectorized
from coterie.methods.fedavg import FedAvg
from coterie.methods.fl_hc import FLHC, update_distances
from coterie.metrics import adjusted_rand
from coterie.models import Normalize
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("backend", ["sequential", pytest.param("vectorized", marks=pytest.mark.exhaustive)])
LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1, lr_decay=0.9)


@pytest.fixture
def clustered(step):
    """`clustered(...)`: by L2, without rounds before; one step goes half of the way."""

    def make(**settings):
        return FLHC(**{"local": step(0.5), "warm_rounds": 0, "metric": "l2", "threshold": 2.0, "rounds": 9, **settings})

    return make


def from_zero(method, fed):
    """The initial state with the model 0."""
    zero = {"w": np.zeros((), np.float32)}
    return dataclasses.replace(method.start(fed.task, Seed(0)), w=zero, bank=tree.stack([zero]))


def once(method, fed, cohort, **how):
    """The clustering step from the model 0."""
    return method.round(from_zero(method, fed), fed, cohort(fed, -1, **how), Seed(0))


# The clustering ------------------------------------------------------------------------------------------------------


@BOTH
def test_clients_with_close_updates_form_clusters_at_the_mean_of_their_models(backend, tiny, cohort, clustered):
    # F_i(w) = ½(w - x_i)², half way from 0: Δ = -3, 5, -2, 6 for a, b, c, d. Up to λ = 2, {a, c} and {b, d} merge.
    # Means by examples: (-3 - 2)/2 = -2.5, and (5 + 3·6)/4 = 5.75.
    fed = tiny(backend=backend, a=[-6], b=[10], c=[-4], d=[12, 12, 12])
    out = once(clustered(), fed, cohort)
    assert out.assignment == {"a": 0, "b": 1, "c": 0, "d": 1}
    assert out.state.bank["w"].tolist() == [-2.5, 5.75]
    assert out.distances == {"a": 0.5, "b": 0.75, "c": 0.5, "d": 0.25}
    assert out.loss == (18 + 50 + 8 + 3 * 72) / 6
    assert out.state.updates.tolist() == [[-3], [5], [-2], [6]]
    assert out.evidence["clients"] == list("abcd")
    assert out.evidence["labels"].tolist() == [0, 1, 0, 1]
    assert out.evidence["distances"][0].tolist() == [0, 8, 1, 9]
    assert out.evidence["threshold"] == 2
    uniform = once(clustered(weights="uniform"), fed, cohort)
    assert uniform.state.bank["w"].tolist() == [-2.5, 5.5]


def test_distances_by_hand():
    # Between (1, 0), (0, 2) and (-3, 0): L1 3, 4, 5; L2 √5, 4, √13; cosines 0, -1, 0.
    updates = np.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])
    expected = {"l1": [3, 4, 5], "l2": [5**0.5, 4, 13**0.5], "cosine": [1, 2, 1]}
    for metric, pairs in expected.items():
        found = update_distances(updates, metric)
        np.testing.assert_allclose([found[0, 1], found[0, 2], found[1, 2]], pairs)
        np.testing.assert_allclose(np.diagonal(found), 0, atol=1e-12)


@pytest.mark.parametrize(
    ("linkage", "last"),
    # Δ = 0, 2, 5. The first two merge at 2; the third is then 3 from the nearest, 5 from the farthest, 4 in the mean;
    # for Ward √(2·2·1/3)·(5 - 1) from their center.
    [("single", 3), ("complete", 5), ("average", 4), ("ward", 4 * (4 / 3) ** 0.5)],
)
def test_linkage_is_the_distance_between_clusters(linkage, last, tiny, cohort, clustered):
    fed = tiny(a=[0], b=[4], c=[10])
    for threshold, clusters in ((last - 0.01, 2), (last + 0.01, 1)):
        method = clustered(linkage=linkage, threshold=threshold)
        assert tree.rows(once(method, fed, cohort).state.bank) == clusters


def test_a_quantile_or_a_number_of_clusters_replaces_the_threshold(tiny, cohort, clustered):
    # Δ = 0, 1, 5, 5.5: pairs ½, 1, 4, 4.5, 5, 5.5, of which a sixth is below 1: λ = 1 merges {0, 1} and {5, 5.5}.
    fed = tiny(a=[0], b=[2], c=[10], d=[11])
    out = once(clustered(threshold="auto", threshold_quantile=1 / 6), fed, cohort)
    assert out.evidence["threshold"] == 1
    assert out.assignment == {"a": 0, "b": 0, "c": 1, "d": 1}
    out = once(clustered(threshold="auto", clusters=3), fed, cohort)
    assert out.assignment == {"a": 0, "b": 1, "c": 2, "d": 2}


def test_clients_are_divided_as_long_as_halves_of_their_examples_agree(tiny, cohort, clustered):
    # Δ = 0 … 3 and 20 … 23. Each client has two equal examples, so both halves are at Δ: they agree about {0 … 3} and
    # {20 … 23}. These clusters of four are not divided further.
    fed = tiny(a=[0, 0], b=[2, 2], c=[4, 4], d=[6, 6], e=[40, 40], f=[42, 42], g=[44, 44], h=[46, 46])
    out = once(clustered(threshold="auto"), fed, cohort)
    assert out.assignment == dict.fromkeys("abcd", 0) | dict.fromkeys("efgh", 1)
    assert [(size, smaller) for size, smaller, _ in out.evidence["tried"]] == [(8, 4)]
    # The halves of each client are 40 apart, in the same directions for all: each half tells nothing of its client.
    noisy = tiny(**{client: [x - 40, x + 40] for client, x in zip("abcdefgh", range(0, 8, 1), strict=True)})
    out = once(clustered(threshold="auto"), noisy, cohort)
    assert set(out.assignment.values()) == {0}


def test_without_two_examples_at_any_client_the_eigengap_chooses(tiny, cohort, clustered):
    out = once(clustered(threshold="auto"), tiny(a=[0], b=[2], c=[20], d=[22], e=[24]), cohort)
    assert "scores" in out.evidence
    assert "tried" not in out.evidence


def test_a_threshold_of_zero_makes_singletons_and_an_infinite_one_one_cluster(blobs, run_rounds):
    fed, _ = blobs()
    singletons, _ = run_rounds(FLHC(LOCAL, warm_rounds=0, threshold=0.0, rounds=1), fed, 0)
    together, _ = run_rounds(FLHC(LOCAL, warm_rounds=0, threshold=float("inf"), rounds=1), fed, 0)
    assert (tree.rows(singletons.bank), tree.rows(together.bank)) == (12, 1)


def test_one_client_is_one_cluster(tiny, cohort, clustered):
    for how in ({}, {"threshold": "auto"}, {"threshold": "auto", "threshold_quantile": 0.5}):
        out = once(clustered(**how), tiny(a=[2]), cohort)
        assert out.assignment == {"a": 0}


def test_other_client_ids_only_renumber_the_clusters(tiny, cohort, clustered):
    numbers = [-6, 10, -4, 12, 1]
    names = ["a", "b", "c", "d", "e"], ["z", "b", "y", "a", "m"]
    found = []
    for each in names:
        out = once(clustered(), tiny(**{name: [x] for name, x in zip(each, numbers, strict=True)}), cohort)
        found.append(
            {x: float(out.state.bank["w"][out.assignment[name]]) for name, x in zip(each, numbers, strict=True)}
        )
    assert found[0] == found[1]


def test_running_statistics_are_not_compared(tiny, cohort):
    # Everything under `stats` is sent and averaged, but is no part of updates: only `w` is compared.
    method = FLHC(warm_rounds=0, rounds=1)
    task = models.from_functions(
        lambda key: {"w": np.float32(0), "norm": {"stats": np.zeros(3, np.float32)}},
        lambda params, x: x[:, 0] * 0 + params["w"],
        (1,),
        None,
        name="with a statistic",
    )
    assert method.start(task, Seed(0)).updates.shape == (0, 1)


# Rounds --------------------------------------------------------------------------------------------------------------


def test_the_clustering_step_comes_after_the_warm_rounds(blobs, run_rounds):
    fed, _ = blobs()
    method = FLHC(LOCAL, warm_rounds=3, rounds=5)
    state, done = run_rounds(method, fed, 5, size=5)
    assert [len(out.assignment) for out in done] == [5, 5, 5, 12, 5, 5]
    assert [bool(out.evidence) for out in done] == [False, False, False, True, False, False]
    model = 4 * tree.size(state.w)
    assert fed.traffic.by_purpose()["train"] == {
        "down": (3 * 5 + 12 + 2 * 5) * model,
        "up": (3 * 5 + 12 + 2 * 5) * model,
    }
    # Each client sends the updates of two halves.
    assert fed.traffic.by_purpose()["noise_floor"] == {"down": 12 * model, "up": 2 * 12 * model}
    assert set(fed.traffic.by_purpose()) == {"train", "noise_floor", "control"}
    # The clustering step is not counted as a round.
    assert fed.traffic.by_purpose(-1)["train"]["up"] == 12 * model
    assert all(fed.traffic.by_purpose(t)["train"]["up"] == 5 * model for t in range(5))


def test_rounds_before_the_clustering_are_fedavg_to_the_bit(blobs, run_rounds):
    fed, _ = blobs()
    mine, done = run_rounds(FLHC(LOCAL, warm_rounds=4, rounds=5), fed, 3, size=5, stragglers=1)
    theirs, others = run_rounds(FedAvg(LOCAL), fed, 3, size=5, stragglers=1)
    assert tree.same(mine.w, theirs)
    assert [(out.assignment, out.loss, out.distances) for out in done] == [
        (out.assignment, out.loss, out.distances) for out in others
    ]


@pytest.mark.exhaustive
def test_a_run_clusters_between_two_of_its_rounds():
    spec = {"data": {"name": "blobs", "clients": 8}, "method": {"name": "flhc", "warm_rounds": 2}}
    record = coterie.run({**spec, "local": {"epochs": 1}, "run": {"rounds": 4, "clients_per_round": 3}})
    assert [row["stage"] for row in record.rounds] == ["train", "train", "prepare", "train", "train"]
    assert [row["cohort_size"] for row in record.rounds] == [3, 3, 8, 3, 3]
    with pytest.raises(SpecError, match=r"warm_rounds of flhc must be less than run\.rounds, 2, .*, got 2; lower it"):
        coterie.run({**spec, "run": {"rounds": 2}})


def test_before_the_clustering_all_clients_are_served_the_common_model(tiny, cohort, clustered):
    fed, method = tiny(a=[-6], b=[10]), clustered(warm_rounds=1)
    now = from_zero(method, fed)
    assert method.stage(now) == "train"
    assert method.place(now, fed, "ab", Seed(0))[1].row == {"a": 0, "b": 0}
    assert fed.traffic.total() == 0
    # Half way from 0 to -6 and 10: the mean of -3 and 5.
    now = method.round(now, fed, cohort(fed), Seed(0)).state
    assert method.stage(now) == "prepare"
    placed = method.place(now, fed, "ab", Seed(0))[1]
    assert (placed.row, placed.bank["w"].tolist()) == ({"a": 0, "b": 0}, [1])


def test_the_clustering_uses_the_decayed_rate_of_the_next_round(tiny, cohort, clustered, step):
    # Clients at 8 and -8. FedAvg at rate 1 stays at 0; the clustering at ½ gives two clusters at ±4; in round 1 at ½,
    # ±6; in round 2 at ¼, ±6.5. A newcomer's Δ is at ½, too: half way from 0 to 6.
    fed = tiny(a=[8], b=[-8], new=[6])
    method = clustered(local=step(1.0, lr_decay=0.5), warm_rounds=1)
    now = from_zero(method, fed)
    seen = []
    for t in (0, -1, 1, 2):
        now = method.round(now, fed, cohort(fed, t, clients="ab"), Seed(0)).state
        seen.append(np.abs(now.bank["w"]).max())
    assert seen == [0, 4, 6, 6.5]
    out = method.round(now, fed, cohort(fed, 3, clients=["new"]), Seed(0))
    assert out.evidence["mean_distances"].tolist() == [[1, 7]]  # from 3 to 4 and to -4


def test_a_skipped_round_is_not_a_warm_round(losing, numbers, quadratic, clustered):
    fed, lost = losing(numbers(a=[-6], b=[10]), quadratic, fit="ab")
    method = clustered(warm_rounds=1)
    session = Session(method, fed, Seed(0), Sampler(fed.clients, 2, Seed(0)))
    assert session.step().skipped is not None
    assert (session.stage, session.t) == ("train", 1)
    lost.clear()
    session.step()
    assert (session.stage, session.t) == ("prepare", 2)
    session.step()
    assert (session.stage, session.t, dict(session.state.assignment)) == ("train", 2, {"a": 0, "b": 1})


def test_an_infinite_threshold_is_fedavg_to_the_bit(blobs, run_rounds):
    local = dataclasses.replace(LOCAL, lr_decay=1.0)
    fed, _ = blobs()
    method = FLHC(local, warm_rounds=2, threshold=float("inf"), rounds=9)
    ready, _ = run_rounds(method, fed, 2, size=5)
    mine, done = run_rounds(method, fed, 3, size=5, state=ready, stragglers=1)
    theirs, others = run_rounds(FedAvg(local), fed, 3, size=5, state=tree.row(ready.bank, 0), stragglers=1)
    assert tree.same(tree.row(mine.bank, 0), theirs)
    assert [out.loss for out in done] == [out.loss for out in others]
    assert [out.distances for out in done] == [out.distances for out in others]


def test_a_cluster_without_replies_keeps_its_model_to_the_bit(tiny, cohort, clustered):
    fed, method = tiny(a=[-6], b=[10], c=[-4], d=[12]), clustered()
    state = once(method, fed, cohort).state
    out = method.round(state, fed, cohort(fed, 0, clients="ac"), Seed(0))
    assert out.state.bank["w"][1].tobytes() == state.bank["w"][1].tobytes()
    # From -2.5 half way to -6 and -4: -4.25 and -3.25, whose mean is -3.75.
    assert out.state.bank["w"][0] == -3.75
    assert out.assignment == {"a": 0, "c": 0}


# Newcomers -----------------------------------------------------------------------------------------------------------


@BOTH
def test_newcomers_join_the_cluster_of_smallest_mean_distance(backend, tiny, cohort, clustered):
    # Clusters of Δ = {-3, -2} and {5, 6}. From 0, l: Δ = 1.5, at 4.5 and 3.5, mean 4, and at 3.5 and 4.5, mean 4: a tie
    # for the lowest. m: Δ = 2, means 4.5 and 3.5.
    fed = tiny(backend=backend, a=[-6], b=[10], c=[-4], d=[12], l=[3], m=[4])
    method = clustered()
    known = dataclasses.replace(cohort(fed, -1, clients="abcd"), available=tuple("abcd"))
    state = method.round(from_zero(method, fed), fed, known, Seed(0)).state
    placed = method.place(state, fed, "abcdlm", Seed(0))[1]
    assert placed.row == {"a": 0, "b": 1, "c": 0, "d": 1, "l": 0, "m": 1}
    assert fed.traffic.by_purpose()["pretrain"] == {"down": 2 * 4, "up": 2 * 4}
    assert set(method.place(state, fed.evaluating(), "abcdlm", Seed(0))[1].row) == set("abcd")
    # In a cohort it joins permanently and trains at once: from 5.5 half way to 12 and 4 is 8.75 and 4.75.
    out = method.round(state, fed, cohort(fed, 0, clients="dm"), Seed(0))
    assert out.assignment == {"d": 1, "m": 1}
    assert dict(out.state.assignment) == {"a": 0, "b": 1, "c": 0, "d": 1, "m": 1}
    assert out.state.bank["w"][1] == 6.75
    assert out.evidence["clients"] == ["m"]
    assert out.evidence["mean_distances"].tolist() == [[4.5, 3.5]]


def test_a_client_that_missed_the_clustering_is_a_newcomer(losing, numbers, quadratic, cohort, clustered):
    fed, lost = losing(numbers(a=[-6], b=[10], c=[-4], d=[12]), quadratic, fit="b")
    method = clustered()
    out = once(method, fed, cohort)
    assert out.assignment == {"a": 0, "c": 0, "d": 1}
    assert method.place(out.state, fed, "abcd", Seed(0))[1].row == {"a": 0, "b": 1, "c": 0, "d": 1}
    # If its reply is lost again, it does not join and the others train; alone in a cohort, the round is skipped.
    lost["update"] = lost.pop("fit")
    later = method.round(out.state, fed, cohort(fed, 0), Seed(0))
    assert set(later.assignment) == set("acd")
    assert "b" not in later.state.assignment
    with pytest.raises(TooFewReplies):
        method.round(out.state, fed, cohort(fed, 0, clients="b"), Seed(0))


def test_clients_without_examples_are_not_clustered(tiny, cohort, clustered):
    fed, method = tiny(a=[-6], b=[], c=[-4]), clustered()
    out = once(method, fed, cohort)
    assert out.assignment == {"a": 0, "c": 0}
    # If no client has examples, there is one cluster with the common model.
    ready = once(method, fed, cohort, clients="b").state
    assert method.stage(ready) == "train"
    assert ready.bank["w"].tolist() == [0]
    assert method.place(ready, fed, "abc", Seed(0))[1].row == {"a": 0, "b": 0, "c": 0}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"warm_rounds": -1}, "warm_rounds must be at least 0, got -1"),
        ({"warm_rounds": 5}, "warm_rounds of flhc must be less than run.rounds, 5, for clusters to be trained, got 5"),
        ({"clusters": 0}, "clusters must be at least 1, got 0"),
        ({"max_clusters": 0}, "max_clusters must be at least 1"),
        ({"threshold": -1.0}, "threshold must be at least 0, got -1.0"),
        ({"threshold": "widest"}, "threshold must be a number of at least 0 or 'auto', got 'widest'"),
        ({"threshold": float("nan")}, "threshold must be at least 0, got nan"),
        ({"threshold_quantile": 1.5}, "threshold_quantile must be between 0 and 1, got 1.5"),
        ({"threshold": 1.0, "clusters": 2}, "Give one of method.threshold, method.threshold_quantile and"),
        ({"threshold_quantile": 0.5, "clusters": 2}, "Give one of"),
        ({"linkage": "ward"}, "linkage 'ward' needs method.metric 'l2', got 'cosine'"),
        ({"metric": "l3"}, "metric must be one of 'cosine', 'l2', 'l1', got 'l3'"),
    ],
)
def test_invalid_settings_are_rejected(settings, text):
    with pytest.raises(SpecError, match=text):
        FLHC(**{"warm_rounds": 0, "rounds": 5, **settings})


# Planted clusters ----------------------------------------------------------------------------------------------------

TASK = models.build("mclr", (8, 8), 10, normalize=Normalize(0.0, 16.0))


def _truth(images):
    return dict(zip(images.clients, images.truth.tolist(), strict=True))


@pytest.mark.slow
def test_rotated_digits_are_recovered(run_rounds, seeds):
    scores = []
    for seed in seeds:
        images = data.load("digits", clients=40, clusters=4, seed=seed)
        state, _ = run_rounds(FLHC(rounds=11), vectorized(images, TASK), 10, size=10, seed=seed)
        scores.append(adjusted_rand(dict(state.assignment), _truth(images)))
    assert scores.count(1.0) >= len(seeds) - len(seeds) // 10, scores


@pytest.mark.exhaustive
def test_the_number_of_clusters_is_found_and_is_one_for_identically_distributed_clients(run_rounds):
    for partition, clusters, expected in (("inverted", 2, 2), ("iid", 4, 1)):
        for seed in range(3):
            images = data.load("digits", clients=40, partition=partition, clusters=clusters, seed=seed)
            state, done = run_rounds(FLHC(rounds=11), vectorized(images, TASK), 10, size=10, seed=seed)
            assert tree.rows(state.bank) == expected, (partition, seed, done[-1].evidence["tried"])


@pytest.mark.slow
def test_newcomers_and_lost_clients_join_their_true_cluster_while_three_replies_in_ten_are_lost(run_rounds):
    images = data.load("digits", clients=40, clusters=4, seed=0)
    fed = Server(FaultTransport(Vectorized(images, TASK), Faults(drop=0.3), Seed(0).fold("faults")))
    old = [client for i, client in enumerate(sorted(images.clients)) if i % 8]
    method = FLHC(rounds=13)
    state, _ = run_rounds(method, fed, 13, size=10, among=old)
    assert len(state.labels) < len(old), "some clients were lost in the clustering step"
    placed = method.place(state, vectorized(images, TASK), images.clients, Seed(1))[1].row
    assert adjusted_rand(placed, _truth(images)) == 1
    assert codec.encode(codec.decode(codec.encode(state))) == codec.encode(state)
