"""PACFL: clusters by angles computed by hand, identities, newcomers, and recovery of planted clusters."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import data, models, tree
from coterie.clients import LocalSGD
from coterie.clustering import pacfl_angles
from coterie.errors import SpecError
from coterie.federation import sequential, vectorized
from coterie.methods.fedavg import FedAvg
from coterie.methods.oracle import Oracle
from coterie.methods.pacfl import PACFL
from coterie.metrics import adjusted_rand
from coterie.models import Normalize
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("backend", ["sequential", pytest.param("vectorized", marks=pytest.mark.exhaustive)])
LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1, lr_decay=0.9)


def at(*degrees):
    """Unit vectors in the plane at these angles to the first axis."""
    return np.stack([np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))], axis=1).astype(np.float32)


def lines(backend="sequential", **clients):
    """`lines(a=[10])`: each client has one class, whose examples lie on a line at this angle, one example an angle."""
    arrays = {name: (at(*degrees), np.zeros(len(degrees), int)) for name, degrees in clients.items()}
    images = data.from_arrays(arrays, test={}, classes=2)
    make = {"sequential": sequential, "vectorized": vectorized}[backend]
    return make(images, models.mclr((2,), 2))


# Clustering ----------------------------------------------------------------------------------------------------------


@BOTH
def test_clusters_are_formed_by_angles(backend, run_rounds):
    # Lines at 0°, 8°, 50°, 60°: with average linkage 8 and 10 merge, and then 51 = (50 + 60 + 42 + 52)/4.
    fed = lines(backend, a=[0], b=[8], c=[50], d=[60])
    for threshold, labels in ((7.0, [0, 1, 2, 3]), (9.0, [0, 0, 1, 2]), (50.0, [0, 0, 1, 1]), (51.1, [0, 0, 0, 0])):
        state, rounds = run_rounds(PACFL(threshold=threshold), fed, 0)
        assert dict(state.assignment) == dict(zip("abcd", labels, strict=True))
        assert tree.rows(state.bank) == max(labels) + 1
    np.testing.assert_allclose(rounds[0].evidence["angles"][0], [0, 8, 50, 60], atol=1e-3)
    assert rounds[0].evidence["clients"] == list("abcd")
    assert rounds[0].evidence["labels"].tolist() == labels


def test_a_threshold_of_0_makes_singletons_and_90_degrees_one_cluster(groups, run_rounds):
    fed, truth = groups()
    assert tree.rows(run_rounds(PACFL(threshold=0.0), fed, 0)[0].bank) == len(truth)
    assert tree.rows(run_rounds(PACFL(threshold=90.0), fed, 0)[0].bank) == 1


def test_linkage_and_angle_are_used_by_the_clustering(run_rounds):
    # 0, 10, 20: single joins all at 10, complete needs 20. A weighted mean of (30, 20) and 10 is the same as average.
    fed = lines(a=[0], b=[10], c=[20])
    for linkage, clusters in (("single", 1), ("complete", 2)):
        state, _ = run_rounds(PACFL(threshold=11.0, linkage=linkage), fed, 0)
        assert tree.rows(state.bank) == clusters
    # Examples at 0° and 90° are both directions and span the plane: 0° to all lines, or 30° by vectors.
    fed = lines(a=[0, 0, 90], b=[30])
    for angle, expected in (("subspace", 0), ("sum", 0), ("pairwise_abs", 30), ("pairwise_signed", 30)):
        _, rounds = run_rounds(PACFL(threshold=5.0, angle=angle, vectors=2), fed, 0)
        assert rounds[0].evidence["angles"][0, 1] == pytest.approx(expected, abs=1e-2)


def test_inputs_are_taken_as_stored_or_as_the_model_receives_them(run_rounds):
    arrays = {"a": (np.float32([[1, 0]]), np.zeros(1, int)), "b": (np.float32([[0, 2]]), np.zeros(1, int))}
    images = data.from_arrays(arrays, test={}, classes=2)
    fed = sequential(images, models.mclr((2,), 2, normalize=Normalize(np.array([0.0, 1.0]), 1.0)))
    # The model receives (x, y - 1): (1, 0) becomes (1, -1), and (0, 2) becomes (0, 1).
    for inputs, expected in (("raw", 90), ("model", 45)):
        _, rounds = run_rounds(PACFL(threshold=5.0, inputs=inputs), fed, 0)
        assert rounds[0].evidence["angles"][0, 1] == pytest.approx(expected, abs=1e-4)


def test_a_budget_is_distributed_over_classes_by_their_sizes(run_rounds):
    # 20 directions for 30 and 10 examples: 15 and 5; or 3 of each class.
    x, y = np.random.default_rng(0).normal(size=(40, 64)).astype(np.float32), np.repeat([0, 1], [30, 10])
    fed = sequential(data.from_arrays({"a": (x, y)}, test={}, classes=2), models.mclr((64,), 2))
    for settings, expected in (({"budget": 20}, (15, 5)), ({"vectors": 3}, (3, 3))):
        state, _ = run_rounds(PACFL(**settings), fed, 0)
        for rows, part in zip(np.split(state.bases[0], [expected[0]]), (x[:30], x[30:]), strict=True):
            theirs = np.linalg.svd(part, full_matrices=False)[2][: len(rows)]
            np.testing.assert_allclose(np.abs(np.sum(rows * theirs, axis=1)), 1, atol=1e-5)
        assert len(state.bases[0]) == sum(expected)


def test_a_budget_separates_clients_with_many_equal_classes(run_rounds):
    # Ten classes of five examples and 4 directions: 0.4 per class, yet the first four classes get one each. Those of a
    # and b lie in the first half of the inputs, those of c and d in the other.
    draw, arrays = np.random.default_rng(0), {}
    for client in "abcd":
        x = np.zeros((50, 40), np.float32)
        x[:, :20] = draw.normal(size=(50, 20))
        arrays[client] = (np.roll(x, 20 * (client > "b"), axis=1), np.repeat(np.arange(10), 5))
    fed = sequential(data.from_arrays(arrays, test={}, classes=10), models.mclr((40,), 10))
    state, rounds = run_rounds(PACFL(budget=4, threshold=89.0), fed, 0)
    assert [rows.shape for rows in state.bases] == [(4, 40)] * 4
    np.testing.assert_allclose(rounds[0].evidence["angles"][:2, 2:], 90, atol=1e-3)
    assert dict(state.assignment) == {"a": 0, "b": 0, "c": 1, "d": 1}


def test_the_number_of_clusters_is_found_and_is_one_for_identically_distributed_clients(groups, digits, run_rounds):
    fed, _ = groups()
    state, rounds = run_rounds(PACFL(), fed, 0)
    assert tree.rows(state.bank) == 5
    # 20 clients are divided into 5 clusters of 4 by four divisions; clusters of 4 are not divided.
    assert rounds[0].evidence["tried"][0][0] == 20
    assert len(rounds[0].evidence["tried"]) == 4
    _, rounds = run_rounds(PACFL(rule="silhouette"), fed, 0)
    assert set(rounds[0].evidence["scores"]) == {str(k) for k in range(1, 11)}
    iid, _ = digits(clients=20, partition="iid", seed=0)
    assert tree.rows(run_rounds(PACFL(), iid, 0)[0].bank) == 1


# A round -------------------------------------------------------------------------------------------------------------


@BOTH
def test_one_cluster_is_fedavg_to_the_bit(backend, blobs, run_rounds):
    fed, _ = blobs(backend=backend)
    mine, rounds = run_rounds(PACFL(LOCAL, threshold=90.0), fed, 3, size=5, stragglers=1)
    theirs, others = run_rounds(FedAvg(LOCAL), fed, 3, size=5, stragglers=1)
    assert tree.same(tree.row(mine.bank, 0), theirs)
    assert [r.loss for r in rounds[1:]] == [r.loss for r in others]
    assert [r.distances for r in rounds[1:]] == [r.distances for r in others]


def test_the_true_partition_is_oracle_to_the_bit(groups, run_rounds):
    fed, truth = groups()
    mine, _ = run_rounds(PACFL(LOCAL), fed, 3, size=6)
    theirs, _ = run_rounds(Oracle(LOCAL, truth=truth), fed, 3, size=6)
    assert adjusted_rand(dict(mine.assignment), truth) == 1
    for client, cluster in mine.assignment.items():
        assert tree.same(tree.row(mine.bank, cluster), tree.row(theirs, truth[client]))


def test_a_cluster_without_replies_keeps_its_model(run_rounds, cohort):
    fed = lines(a=[0], b=[90])
    state, _ = run_rounds(PACFL(LOCAL, threshold=1.0), fed, 0)
    method = PACFL(LOCAL, threshold=1.0)
    out = method.round(state, fed, cohort(fed, clients="a"), Seed(0))
    assert out.assignment == {"a": 0}
    assert tree.same(tree.row(out.state.bank, 1), tree.row(state.bank, 1))
    assert not tree.same(tree.row(out.state.bank, 0), tree.row(state.bank, 0))
    idle = method.round(state, fed, cohort(fed, efforts={"a": 0.5, "b": 0.5}), Seed(0))
    assert tree.same(idle.state.bank, state.bank)


# Newcomers -----------------------------------------------------------------------------------------------------------


def test_a_newcomer_joins_the_cluster_of_the_smallest_mean_angle(run_rounds, cohort):
    # Initial clients at 0°, 10° and 60°; 32° is at 32 and 22 from the first two, mean 27, and at 28 from the third.
    fed, method = lines(a=[0], b=[10], c=[60], x=[32], y=[45]), PACFL(LOCAL, threshold=20.0)
    state, _ = run_rounds(method, fed, 0, among="abc")
    assert method.place(state, fed, "abcxy", Seed(0))[1].row == {"a": 0, "b": 0, "c": 1, "x": 0, "y": 1}
    out = method.round(state, fed, cohort(fed, clients="cx"), Seed(0))
    assert out.assignment == {"c": 1, "x": 0}
    assert dict(out.state.assignment) == {"a": 0, "b": 0, "c": 1, "x": 0}
    assert out.evidence["clients"] == ["x"]
    np.testing.assert_allclose(out.evidence["mean_angles"], [[27, 28]], atol=1e-3)


def test_placing_a_newcomer_needs_no_training(run_rounds):
    fed, method = lines(a=[0], b=[90], x=[1]), PACFL(LOCAL, threshold=5.0)
    state, _ = run_rounds(method, fed, 0, among="ab")
    assert method.place(state, fed.evaluating(), "abx", Seed(0))[1].row == {"a": 0, "b": 1, "x": 0}


def test_a_client_that_did_not_reply_joins_later_and_does_not_train_before(losing, joins_later):
    images = data.from_arrays({c: (at(90.0 * (c > "a")), np.zeros(1, int)) for c in "abc"}, test={}, classes=2)
    fed, lost = losing(images, models.mclr((2,), 2), class_subspaces="b")
    _, found = joins_later(PACFL(LOCAL, threshold=1.0), fed, lost)
    assert found == {"a": 0, "b": 1, "c": 1}


def test_a_finetuned_model_is_the_clusters_model_after_further_local_training(groups, run_rounds, accuracy):
    fed, truth = groups()
    state, _ = run_rounds(PACFL(LOCAL), fed, 2, size=6)
    assert PACFL(LOCAL).place(state, fed, truth, Seed(0))[1].adapt is None
    placement = PACFL(LOCAL, finetuned=True).place(state, fed, truth, Seed(0))[1]
    assert placement.adapt.sent["start"].row == placement.row
    assert placement.adapt.sent["local"] == LOCAL
    assert accuracy(PACFL(LOCAL, finetuned=True), state, fed) > accuracy(PACFL(LOCAL), state, fed)


# Traffic and invalid settings ----------------------------------------------------------------------------------------


def test_only_directions_are_sent_before_training(groups, run_rounds):
    fed, _ = groups()
    state, _ = run_rounds(PACFL(LOCAL), fed, 0)
    sent = fed.traffic.by_purpose()
    assert set(sent) == {"subspaces", "noise_floor", "control"}
    assert sent["noise_floor"]["down"] == 0
    assert sent["subspaces"]["up"] < sent["noise_floor"]["up"] <= 2 * sent["subspaces"]["up"]  # two halves
    assert sent["subspaces"] == {"down": 0, "up": 4 * 64 * sum(len(rows) for rows in state.bases)}
    run_rounds(PACFL(LOCAL), fed, 2, size=6, state=state)
    model = 4 * tree.size(state.w0)
    assert fed.traffic.by_purpose()["train"] == {"down": 12 * model, "up": 12 * model}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"vectors": 0}, "vectors must be at least 1, got 0"),
        ({"budget": -1}, "budget must be at least 0, got -1"),
        ({"max_clusters": 0}, "max_clusters must be at least 1"),
        ({"angle": "largest"}, "angle must be one of 'subspace', 'sum', .*, got 'largest'"),
        ({"threshold": -1.0}, "threshold must be at least 0, got -1.0"),
        ({"threshold": "gap"}, "threshold must be a number of at least 0 or 'auto', got 'gap'"),
        ({"linkage": "ward"}, "linkage must be one of"),
        ({"inputs": "pixels"}, "inputs must be one of 'raw', 'model'"),
    ],
)
def test_invalid_settings_are_rejected(settings, text):
    with pytest.raises(SpecError, match=text):
        PACFL(**settings)


def test_a_task_without_classes_is_rejected(quadratic):
    with pytest.raises(SpecError, match="pacfl compares classes, but model quadratic predicts numbers"):
        PACFL().start(quadratic, Seed(0))


# Planted clusters ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("clients", [20, 40])
def test_label_clusters_and_their_number_are_recovered(clients, groups, run_rounds, seeds):
    scores = []
    for seed in seeds:
        fed, truth = groups(seed, clients)
        state, _ = run_rounds(PACFL(), fed, 0, seed=seed)
        scores.append(adjusted_rand(dict(state.assignment), truth))
    assert scores.count(1.0) >= len(seeds) - len(seeds) // 10, scores


@pytest.mark.slow
def test_rotations_are_separated_by_one_direction_per_class_but_not_by_three(digits, run_rounds):
    # With three, two subspaces of about 30 of 64 dimensions have a smallest angle near 0, rotated or not.
    fed, truth = digits(clients=20, clusters=4, seed=0)
    state, _ = run_rounds(PACFL(), fed, 0)
    assert {len(rows) for rows in state.bases} <= {8, 9, 10}
    assert adjusted_rand(dict(state.assignment), truth) == 1
    state, _ = run_rounds(PACFL(vectors=3, rule="silhouette"), fed, 0)
    columns = [rows.T for rows in state.bases]
    other = np.array([[truth[one] != truth[two] for two in state.initial_clients] for one in state.initial_clients])
    assert np.median(pacfl_angles(columns)[other]) < 2
    assert adjusted_rand(dict(state.assignment), truth) < 1


def test_the_automatic_number_of_directions_depends_on_inputs_and_classes(groups, caplog):
    # 784 inputs and 10 classes: 784/80 = 9.8, at most 3. 64 inputs: 0.8, at least 1. 25 inputs: 10 of 25 are more than
    # a quarter, which is warned of.
    for side, vectors, warned in ((28, 3, False), (8, 1, False), (5, 1, True)):
        caplog.clear()
        assert PACFL().subspaces(models.build("mclr", (side, side), 10)).vectors == vectors
        assert ("more than a quarter" in caplog.text) == warned
    assert PACFL(vectors=5).subspaces(models.build("mclr", (5, 5), 10)).vectors == 5
