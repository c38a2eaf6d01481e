"""FLAG: proximity by hand, the threshold sweep, bytes sent, newcomers, and recovery of planted clusters."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie import codec, data, models, tree
from coterie.clients import LocalSGD
from coterie.clustering import agglomerative, elbow, guarded_elbow
from coterie.errors import SpecError
from coterie.federation import sequential, vectorized
from coterie.methods.fedavg import FedAvg
from coterie.methods.flag import FLAG
from coterie.methods.oracle import Oracle
from coterie.methods.trial_runs import TrialRun
from coterie.metrics import adjusted_rand
from coterie.models import Normalize
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("backend", ["sequential", pytest.param("vectorized", marks=pytest.mark.exhaustive)])
LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1, lr_decay=0.9)
QUICK = {"update_epochs": 2, "trial_rounds": 2, "trial_epochs": 2}
DIGITS = models.build("mclr", (8, 8), 10, normalize=Normalize(0.0, 16.0))


# Two inputs, two classes, whose logits are w: the gradient of the mean loss does not depend on the inputs.
BIASES = models.from_functions(
    lambda key: {"w": jnp.zeros(2)}, lambda params, x: jnp.tile(params["w"], (x.shape[0], 1)), (2,), 2, name="biases"
)


def planar(make=sequential, **clients):
    """`planar(a=([0, 0], [30, 1]))`: examples at these angles to the first axis, each with its label."""
    arrays = {}
    for name, examples in clients.items():
        degrees = np.deg2rad([angle for angle, _ in examples])
        x = np.stack([np.cos(degrees), np.sin(degrees)], axis=1).astype(np.float32)
        arrays[name] = (x, np.array([label for _, label in examples]))
    return make(data.from_arrays(arrays, test={}, classes=2), BIASES)


# Proximity -----------------------------------------------------------------------------------------------------------


@BOTH
def test_proximity_by_hand(backend, run_rounds):
    # a and b have one example of class 0 each, at 0° and 40°; c has one of class 1. Sizes 1 and 1 have the smallest
    # ratio and weight 1/2, sizes 1 and 0 the largest and weight 3/2.
    #   V_ab = (40/2 + 0)/2 = 10, V_ac = V_bc = (180·3/2 + 180·3/2)/2 = 270
    # Class 0 moves w toward (1, -1) and class 1 in the opposite direction: G_ab = 0, G_ac = G_bc = 180.
    #   A_ab = (10/270 + 0)/2 = 1/54, A_ac = A_bc = 1
    fed = planar({"sequential": sequential, "vectorized": vectorized}[backend], a=[(0, 0)], b=[(40, 0)], c=[(70, 1)])
    _, rounds = run_rounds(FLAG(LOCAL, **QUICK, threshold_step=1.0, singletons=False), fed, 0)
    shown = rounds[0].evidence
    assert shown["clients"] == list("abc")
    np.testing.assert_allclose(shown["data_angles"], [[0, 10, 270], [10, 0, 270], [270, 270, 0]], atol=1e-3)
    np.testing.assert_allclose(shown["update_angles"], [[0, 0, 180], [0, 0, 180], [180, 180, 0]], atol=0.05)
    np.testing.assert_allclose(shown["proximity"], [[0, 1 / 54, 1], [1 / 54, 0, 1], [1, 1, 0]], atol=2e-4)


def test_class_sizes_give_the_weights(run_rounds):
    # a and b have 1 and 50 examples of class 0, 1 and 1 of class 1: class 0 has weight 1.5, class 1 weight 0.5.
    fed = planar(a=[(0, 0), (0, 1)], b=[(40, 0)] * 50 + [(60, 1)])
    for settings, expected in (({}, (1.5 * 40 + 0.5 * 60) / 2), ({"delta": 0.0}, 50), ({"privacy": True}, 50)):
        _, rounds = run_rounds(FLAG(LOCAL, beta=1.0, threshold_step=1.0, singletons=False, **settings), fed, 0)
        assert rounds[0].evidence["data_angles"][0, 1] == pytest.approx(expected, abs=1e-3)


def test_inputs_are_taken_as_the_model_receives_them(run_rounds):
    # (x, y - 1): (1, 0) becomes (1, -1) and (0, 2) becomes (0, 1), at 135°, which is 45° for lines.
    arrays = {"a": (np.float32([[1, 0]]), np.zeros(1, int)), "b": (np.float32([[0, 2]]), np.zeros(1, int))}
    task = models.mclr((2,), 1, normalize=Normalize(np.array([0.0, 1.0]), 1.0))
    fed = sequential(data.from_arrays(arrays, test={}, classes=1), task)
    for inputs, expected in (("model", 45), ("raw", 90)):
        _, rounds = run_rounds(FLAG(LOCAL, beta=1.0, threshold_step=1.0, singletons=False, inputs=inputs), fed, 0)
        assert rounds[0].evidence["data_angles"][0, 1] == pytest.approx(expected, abs=1e-3)


def test_updates_train_update_epochs_without_proximal_term():
    local = LocalSGD(epochs=3, steps=7, learning_rate=0.3, lr_decay=0.9, mu=2.0, trainable_layers=("head",))
    assert FLAG(local).request.updates == LocalSGD(epochs=20, learning_rate=0.3, trainable_layers=("head",))
    assert FLAG(local, update_epochs=5).request.updates == LocalSGD(
        epochs=5, learning_rate=0.3, trainable_layers=("head",)
    )
    assert FLAG(local).trial_run.local == LocalSGD(epochs=10, learning_rate=0.3, lr_decay=0.9)


def test_running_statistics_are_no_update(run_rounds):
    def learn(params, x, key, weight):
        return x @ params["kernel"], {"norm": {"stats": {"mean": x.mean(axis=0) + 1e3}}}

    task = models.Task(
        name="with statistics",
        init=lambda seed: {
            "kernel": np.asarray(jax.random.normal(seed.key(), (2, 2)), np.float32),
            "norm": {"stats": {"mean": np.zeros(2, np.float32)}},
        },
        apply=lambda params, x, key: x @ params["kernel"],
        shape=(2,),
        classes=2,
        layers=("kernel", "norm"),
        learn=learn,
    )
    arrays = {name: (np.eye(2, dtype=np.float32), np.arange(2)) for name in "ab"}
    state, _ = run_rounds(
        FLAG(LOCAL, **QUICK, threshold_step=1.0, singletons=False),
        sequential(data.from_arrays(arrays, test={}, classes=2), task),
        0,
    )
    assert state.initial.updates.shape == (2, 4)
    assert np.abs(state.initial.updates).max() < 100


# Partitions ----------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_each_distinct_partition_is_tried_once_from_the_largest_threshold_on(groups, run_rounds):
    fed, _ = groups()
    state, rounds = run_rounds(FLAG(LOCAL, **QUICK), fed, 0)
    proximity = rounds[0].evidence["proximity"]
    swept = [
        (a, agglomerative(proximity, threshold=a).tolist())
        for a in (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)
    ]
    distinct = []
    for alpha, labels in swept:
        if labels not in [kept for _, kept in distinct]:
            distinct.append((alpha, labels))
    assert state.thresholds == tuple(alpha for alpha, _ in distinct)
    assert state.partitions.tolist() == [labels for _, labels in distinct]
    assert state.partitions[0].tolist() == [0] * 20
    assert state.partitions[-1].tolist() == list(range(20))
    assert [out.label for out in rounds] == [
        "proximity",
        *(f"trial {s + 1} of {len(distinct)}" for s in range(len(distinct))),
    ]


@pytest.mark.exhaustive  # two searches for thresholds on twenty clients
def test_without_singletons_all_thresholds_are_above_0(groups, run_rounds):
    fed, _ = groups()
    state, _ = run_rounds(FLAG(LOCAL, **QUICK), fed, 0)
    above, _ = run_rounds(FLAG(LOCAL, **QUICK, singletons=False), fed, 0)
    assert (state.thresholds[:-1], state.thresholds[-1]) == (above.thresholds, 0.0)
    np.testing.assert_array_equal(state.accuracies[:-1], above.accuracies)


@pytest.mark.parametrize("rule", ["guarded", "elbow", "best", "tolerance"])
def test_the_rule_chooses_by_the_goodness_of_all_partitions(rule, groups, run_rounds):
    fed, _ = groups()
    state, rounds = run_rounds(FLAG(LOCAL, **QUICK, rule=rule, validation_clients=8), fed, 0)
    goodness = {
        1 + int(labels.max()): row.mean() for labels, row in zip(state.partitions, state.accuracies, strict=True)
    }
    assert len(state.validation) == 8
    assert state.accuracies.min() >= 0
    scores = rounds[-1].evidence["scores"]
    assert scores == {str(k): pytest.approx(good) for k, good in goodness.items()}
    assert state.losses.shape == state.accuracies.shape
    np.testing.assert_allclose(rounds[-1].evidence["mean_losses"], state.losses.mean(axis=1))
    if rule == "guarded":
        chosen = guarded_elbow(list(goodness), state.accuracies, -state.losses)
    else:
        chosen = elbow(list(goodness), list(goodness.values()), rule)
    assert tree.rows(state.bank) == chosen
    place = list(goodness).index(chosen)
    assert rounds[-1].evidence["threshold"] == state.thresholds[place]
    np.testing.assert_array_equal(state.labels, state.partitions[place])
    assert rounds[-1].assignment == dict(zip(state.initial.clients, state.labels.tolist(), strict=True))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("rule", "chosen"), [("guarded", 5), ("elbow", 2)])
def test_where_accuracy_is_saturated_the_loss_shows_that_more_clusters_are_better(
    rule, chosen, groups, run_rounds, monkeypatch
):
    # 1, 2, 5 and 20 clusters, of which 5 are the true ones. All but one cluster classify everything correctly: the
    # accuracies are 0.5, 1, 1, 1, with the elbow at 2. Clusters of several groups have a loss of 2, others of 0.5: the
    # elbow of the loss is at 5, and 2 clusters are worse by 1.5 for each client, without noise.
    fed, truth = groups()

    def validate(self, clusters, *_):
        scores = {}
        for members in clusters:
            loss = 2.0 if len({truth[client] for client in members}) > 1 else 0.5
            scores.update(dict.fromkeys(members, (0.5 if len(members) == len(truth) else 1.0, loss)))
        return scores

    method = FLAG(LOCAL, **QUICK, rule=rule)
    _, rounds = run_rounds(method, fed, 0)
    untried = rounds[0].state
    group = np.array([truth[client] for client in untried.initial.clients])
    partitions = np.stack([0 * group, group // 3, group, np.arange(len(group))])
    monkeypatch.setattr(TrialRun, "validate", validate)
    other = dataclasses.replace(untried, partitions=partitions, thresholds=(1.0, 0.8, 0.5, 0.0))
    state, _ = run_rounds(method, fed, 0, state=other)
    assert tree.rows(state.bank) == chosen


def test_a_trial_run_does_not_depend_on_when_it_runs(groups, run_rounds):
    # The second partition tried first gives each validation client the same accuracy.
    fed, _ = groups()
    method = FLAG(LOCAL, **QUICK)
    whole, rounds = run_rounds(method, fed, 0)
    untried = rounds[0].state
    other = dataclasses.replace(untried, partitions=untried.partitions[1:2], thresholds=untried.thresholds[1:2])
    state, _ = run_rounds(method, fed, 0, state=other)
    np.testing.assert_array_equal(state.accuracies[0], whole.accuracies[1])


def test_only_validation_clients_take_part_in_trial_runs(groups, run_rounds):
    fed, _ = groups()
    state, rounds = run_rounds(FLAG(LOCAL, **QUICK, validation_clients=3, threshold_step=1.0, singletons=False), fed, 0)
    assert len(rounds) == 1  # one partition: nothing to try
    assert "trial" not in fed.traffic.by_purpose()
    state, _ = run_rounds(FLAG(LOCAL, **QUICK, validation_clients=3, threshold_step=0.4), fed, 0)
    # For the first partition two rounds down and up and once down for validation, three clients; later partitions ask
    # only for clusters that are new among the validation clients.
    model = 4 * tree.size(DIGITS.init(Seed(0)))
    sent = fed.traffic.by_purpose()["trial"]
    where = state.partitions[:, [state.initial.clients.index(client) for client in state.validation]]
    seen, clients = [], 0
    for labels in where:
        for label in set(labels.tolist()):
            members = (labels == label).tolist()
            if members not in seen:
                seen.append(members)
                clients += sum(members)
    assert sent == {"down": 3 * clients * model, "up": 2 * clients * model}


@pytest.mark.exhaustive
def test_trial_runs_train_all_layers_even_if_clients_train_some(run_rounds):
    task = models.build("mlp", (8, 8), 10, widths=(8,), normalize=Normalize(0.0, 16.0))
    fed = vectorized(data.load("digits", clients=10, partition="groups", alpha=1.0, seed=0), task)
    last = task.layers[-1]
    state, _ = run_rounds(
        FLAG(dataclasses.replace(LOCAL, trainable_layers=(last,), mu=0.5), **QUICK, threshold_step=0.5), fed, 1
    )
    assert len(state.accuracies) == len(state.partitions) > 1
    moved = {layer for layer in task.layers if not tree.same(tree.row(state.bank, 0)[layer], state.w0[layer])}
    assert moved == {last}


def test_one_partition_needs_no_trial_run_and_is_fedavg_to_the_bit(blobs, run_rounds):
    for backend in ("sequential", "vectorized"):
        fed, _ = blobs(backend=backend)
        mine, rounds = run_rounds(
            FLAG(LOCAL, **QUICK, threshold_step=1.0, singletons=False), fed, 3, size=5, stragglers=1
        )
        theirs, others = run_rounds(FedAvg(LOCAL), fed, 3, size=5, stragglers=1)
        assert tree.same(tree.row(mine.bank, 0), theirs)
        assert [r.loss for r in rounds[1:]] == [r.loss for r in others]
        assert [r.distances for r in rounds[1:]] == [r.distances for r in others]


def test_the_true_partition_is_oracle_to_the_bit(groups, run_rounds):
    fed, truth = groups()
    mine, _ = run_rounds(FLAG(LOCAL), fed, 3, size=6)
    theirs, _ = run_rounds(Oracle(LOCAL, truth=truth), fed, 3, size=6)
    assert adjusted_rand(dict(mine.assignment), truth) == 1
    for client, cluster in mine.assignment.items():
        assert tree.same(tree.row(mine.bank, cluster), tree.row(theirs, truth[client]))


def test_without_validation_examples_the_choice_fails_with_advice(run_rounds):
    images = data.load("digits", clients=4, partition="groups", alpha=1.0, seed=0, skew=0.5)
    fed = vectorized(dataclasses.replace(images, held_share=0.0), DIGITS)
    with pytest.raises(SpecError, match="none of the validation clients has any"):
        run_rounds(FLAG(LOCAL, **QUICK), fed, 0)


# Bytes sent ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "purposes"),
    [
        ({}, {"pretrain", "subspaces", "labels", "trial", "control"}),
        ({"privacy": True}, {"pretrain", "subspaces", "trial", "control"}),
        ({"delta": 0.0}, {"pretrain", "subspaces", "trial", "control"}),
        ({"beta": 1.0}, {"subspaces", "labels", "trial", "control"}),
        ({"beta": 1.0, "privacy": True}, {"subspaces", "trial", "control"}),
        ({"beta": 0.0}, {"pretrain", "trial", "control"}),
    ],
)
def test_only_what_is_compared_is_sent_and_kept(settings, purposes, groups, run_rounds):
    fed, _ = groups()
    state, _ = run_rounds(FLAG(LOCAL, **QUICK, **settings), fed, 0)
    assert set(fed.traffic.by_purpose()) == purposes
    assert (state.initial.counts is not None) == ("labels" in purposes)
    assert (state.initial.bases is not None) == ("subspaces" in purposes)
    assert (state.initial.updates is not None) == ("pretrain" in purposes)


def test_privacy_is_the_same_as_equal_class_weights(groups, run_rounds):
    fed, _ = groups()
    private, _ = run_rounds(FLAG(LOCAL, **QUICK, privacy=True), fed, 2, size=6)
    equal, _ = run_rounds(FLAG(LOCAL, **QUICK, delta=0.0), fed, 2, size=6)
    assert codec.encode(private) == codec.encode(equal)


def test_a_fixed_number_of_directions_does_not_reveal_class_sizes(groups, run_rounds):
    fed, _ = groups()
    state, _ = run_rounds(FLAG(LOCAL, **QUICK, beta=1.0, privacy=True, vectors=1), fed, 0)
    assert {len(rows) for client in state.initial.bases for rows in client} == {0, 1}


# Newcomers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"scale": "offdiag"}, {"privacy": True}, {"beta": 1.0}, {"beta": 0.0}])
def test_an_initial_client_as_a_newcomer_gets_its_own_row(settings, groups, run_rounds):
    fed, _ = groups()
    method = FLAG(LOCAL, **QUICK, **settings)
    state, rounds = run_rounds(method, fed, 0)
    rows = method.proximity.of_newcomers(state.initial, state.initial, state.ranges)
    others = ~np.eye(len(rows), dtype=bool)
    np.testing.assert_allclose(rows[others], rounds[0].evidence["proximity"][others], atol=1e-6)


def test_a_newcomer_outside_the_ranges_counts_as_their_nearest_end(run_rounds, cohort):
    # Initial clients of one class: V = 10 to 20. The newcomer at 85° has V = 85, 75, 65, all above 20.
    clients = {"a": [(0, 0)], "b": [(10, 0)], "c": [(20, 0)], "x": [(85, 0)]}
    fed, method = planar(**clients), FLAG(LOCAL, beta=1.0, threshold_step=1.0, singletons=False)
    state, _ = run_rounds(method, fed, 0, among="abc")
    out = method.round(state, fed, cohort(fed, clients="x"), Seed(0))
    np.testing.assert_allclose(out.evidence["mean_proximity"], [[1.0]])
    assert out.assignment == {"x": 0}


def test_newcomers_join_their_true_cluster_and_stay(groups, run_rounds, cohort):
    fed, truth = groups()
    newcomers = {next(client for client in truth if truth[client] == group) for group in range(5)}
    method = FLAG(LOCAL)
    state, _ = run_rounds(method, fed, 0, among=set(truth) - newcomers)
    row = method.place(state, fed, truth, Seed(0))[1].row
    assert adjusted_rand(row, truth) == 1
    out = method.round(state, fed, cohort(fed, clients=newcomers), Seed(0))
    assert out.assignment == {client: row[client] for client in newcomers}
    assert set(out.state.assignment) == set(truth)
    assert out.evidence["mean_proximity"].shape == (5, 5)


def test_evaluation_never_trains_so_newcomers_are_placed_only_if_data_alone_are_compared(groups, run_rounds):
    fed, truth = groups()
    known = sorted(truth)[:-2]
    for beta, placed in ((0.5, set(known)), (0.0, set(known)), (1.0, set(truth))):
        method = FLAG(LOCAL, **QUICK, beta=beta)
        state, _ = run_rounds(method, fed, 0, among=known)
        before = fed.traffic.total("up")
        assert set(method.place(state, fed.evaluating(), truth, Seed(0))[1].row) == placed
        assert fed.traffic.total("up") == before
        assert set(method.place(state, fed, truth, Seed(0))[1].row) == set(truth)


@pytest.mark.parametrize("work", ["update", "counted_subspaces"])
def test_a_client_without_a_complete_sketch_is_not_clustered_and_joins_later(work, losing, joins_later):
    images = data.from_arrays({c: (np.eye(2, dtype=np.float32), np.arange(2)) for c in "abc"}, test={}, classes=2)
    fed, lost = losing(images, BIASES, **{work: "b"})
    state, found = joins_later(FLAG(LOCAL, **QUICK, threshold_step=1.0, singletons=False), fed, lost)
    assert found == {"a": 0, "b": 0, "c": 0}
    assert state.initial.clients == ("a", "c")
    assert len(state.initial.bases) == len(state.initial.counts) == len(state.initial.updates) == 2


# Invalid settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"beta": 1.5}, "beta must be between 0 and 1, got 1.5"),
        ({"delta": -0.1}, "delta must be between 0 and 1, got -0.1"),
        ({"threshold_step": 0.0}, "threshold_step must be above 0 and at most 1, got 0.0"),
        ({"share": 2.0}, "share must be above 0 and at most 1, got 2.0"),
        ({"vectors": -1}, "vectors must be at least 0, got -1"),
        ({"validation_clients": 0}, "validation_clients must be at least 1, got 0"),
        ({"trial_rounds": 0}, "trial_rounds must be at least 1"),
        ({"update_epochs": 0}, "update_epochs must be at least 1"),
        ({"log": "plain"}, "log must be one of 'shifted', 'clamped', got 'plain'"),
        ({"rule": "first"}, "rule must be one of 'guarded', 'elbow', 'best', 'tolerance', got 'first'"),
        ({"trial_model": "mlp"}, "trial_model must be one of 'mclr', 'lenet5', got 'mlp'"),
        ({"scale": "rows"}, "scale must be one of 'whole', 'offdiag'"),
    ],
)
def test_invalid_settings_are_rejected(settings, text):
    with pytest.raises(SpecError, match=text):
        FLAG(**settings)


def test_a_task_without_classes_is_rejected(quadratic):
    with pytest.raises(SpecError, match="flag compares classes, but model quadratic predicts numbers"):
        FLAG().start(quadratic, Seed(0))


# Planted clusters ----------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.slow
def test_label_clusters_and_their_number_are_recovered(groups, run_rounds, seeds):
    scores = []
    for seed in seeds:
        fed, truth = groups(seed)
        state, _ = run_rounds(FLAG(), fed, 0, seed=seed)
        scores.append(adjusted_rand(dict(state.assignment), truth))
    assert scores.count(1.0) >= len(seeds) - len(seeds) // 10, scores


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize(("clients", "settings"), [(20, {}), (40, {"beta": 0.0})])
def test_rotation_clusters_and_their_number_are_recovered(clients, settings, digits, run_rounds, seeds):
    # Forty clients have 36 images each, and a fifth of them lack a digit by chance, which counts 180°: the angles of
    # their data do not show rotations. Their updates do, and so do the data of twenty clients with twice as many.
    scores = []
    for seed in seeds:
        fed, truth = digits(clients=clients, clusters=4, seed=seed)
        state, _ = run_rounds(FLAG(**settings), fed, 0, seed=seed)
        scores.append(adjusted_rand(dict(state.assignment), truth))
    assert scores.count(1.0) >= len(seeds) - len(seeds) // 10, scores


@pytest.mark.exhaustive
def test_identically_distributed_clients_are_one_cluster(digits, run_rounds):
    for seed in range(4):
        iid, _ = digits(clients=20, partition="iid", seed=seed)
        assert tree.rows(run_rounds(FLAG(), iid, 0, seed=seed)[0].bank) == 1
