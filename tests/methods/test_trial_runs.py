"""Trial runs: who judges what, clusters that do not touch each other, and clusters that are trained once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from coterie import data, models, tree
from coterie.clients import LocalSGD, fit, score
from coterie.errors import SpecError, TooFewReplies
from coterie.federation import Sequential, Server, sequential, vectorized
from coterie.federation.protocol import Mean
from coterie.methods.trials import accuracies_of, light_task, mean_accuracies, train, validation_accuracies
from coterie.models import Normalize
from coterie.seeds import Seed

LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1, lr_decay=0.5)
HOW = {"light": "mclr", "local": LOCAL, "rounds": 2}


def test_a_cluster_is_trained_on_what_is_left_and_judged_on_what_is_held(blobs, cohort):
    # Two rounds of FedAvg by hand on `rest`, then the score on `held`: 4 of 40 training images.
    fed, _ = blobs(clients=4)
    members = fed.clients[:3]
    task = light_task(fed.task, "mclr")
    there = fed.on(task)
    w = task.init(Seed(7).fold("init"))
    for r in range(2):
        name = Seed(7).fold("round", r)
        got = there.ask(members, train, name, part="rest", start=w, local=LOCAL.at(r), reduce=Mean())
        assert got.samples.tolist() == [36, 36, 36]
        w = tree.row(got.means()[0], 0)
    held = there.ask(members, score, Seed(0), part="held", params=w)
    assert held.samples.tolist() == [4, 4, 4]
    found = validation_accuracies([members], fed, cohort(fed, -1), Seed(7), **HOW)
    assert found == {c: n / 4 for c, n in held.by_client("correct").items()}


def test_clusters_do_not_touch_each_other(blobs, cohort):
    fed, _ = blobs(clients=6)
    a, b, c, d, e, f = fed.clients
    everyone = cohort(fed, -1)
    alone = validation_accuracies([[b, e]], fed, everyone, Seed(0), **HOW)
    among = validation_accuracies([[a, c], [b, e], [d], [f]], fed, everyone, Seed(0), **HOW)
    assert set(among) == set(fed.clients)
    assert {client: among[client] for client in (b, e)} == alone


def test_stragglers_judge_in_full(blobs, cohort):
    fed, _ = blobs(clients=4)
    late = cohort(fed, -1, efforts=dict.fromkeys(fed.clients, 0.1))
    found = validation_accuracies([list(fed.clients)], fed, late, Seed(0), **HOW)
    assert found == validation_accuracies([list(fed.clients)], fed, cohort(fed, -1), Seed(0), **HOW)


def test_trial_bytes_count_as_such_and_not_as_training_or_evaluation(blobs, cohort):
    # Two rounds down and up, and once down to be judged.
    fed, _ = blobs(clients=4)
    validation_accuracies([list(fed.clients)], fed, cohort(fed, -1), Seed(0), **HOW)
    model = 4 * tree.size(light_task(fed.task, "mclr").init(Seed(0)))
    sent = fed.traffic.by_purpose()
    assert sent["trial"] == {"down": 3 * 4 * model, "up": 2 * 4 * model}
    assert set(sent) == {"trial", "control"}


def test_the_light_model_takes_the_inputs_of_the_task_and_is_made_once():
    task = models.build("lenet5", (28, 28), 10, normalize=Normalize(33.0, 78.0))
    light = light_task(task, "mclr")
    assert light is light_task(task, "mclr")
    assert (light.name, light.shape, light.classes, light.normalize) == ("mclr", (28, 28), 10, task.normalize)
    # Half the filters of LeNet-5: 3 of 25 weights and 8 of 75, dense 128 → 120 → 84 → 10, each with a bias.
    half = light_task(task, "lenet5")
    layers = 3 * 26 + 8 * 76 + 129 * 120 + 121 * 84 + 85 * 10
    assert tree.size(half.init(Seed(0))) == layers
    assert light_task(models.mclr((28, 28), 10), "mclr") is not light


def test_works_of_trials_have_names_of_their_own():
    assert train.name != fit.name
    assert train.stream != fit.stream
    assert train.body is fit.body


def test_clusters_that_an_earlier_partition_holds_are_not_run_again():
    # {abcd}, then {ab}{cd}, then {ab}{c}{d}.
    partitions = np.array([[0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 2]])
    asked = []

    def run(clusters):
        asked.append(clusters)
        return {client: len(asked) / 10 for members in clusters for client in members}

    known = np.zeros((0, 4))
    for _ in partitions:
        known = np.concatenate([known, accuracies_of(partitions, known, "abcd", run)[None]])
    assert asked == [[["a", "b", "c", "d"]], [["a", "b"], ["c", "d"]], [["c"], ["d"]]]
    np.testing.assert_array_equal(known, [[0.1] * 4, [0.2] * 4, [0.2, 0.2, 0.3, 0.3]])


def test_a_partition_that_holds_nothing_new_asks_nobody():
    # Judges see the same clusters although the partition of all clients is another one; labels may differ.
    partitions = np.array([[0, 0, 1], [3, 3, 7]])
    found = accuracies_of(partitions, np.array([[0.5, -1.0, 1.0]]), "abc", lambda clusters: pytest.fail("asked"))
    assert found.tolist() == [0.5, -1.0, 1.0]


def test_who_did_not_judge_is_unknown():
    found = accuracies_of(np.array([[0, 0, 1]]), np.zeros((0, 3)), "abc", lambda clusters: {"a": 0.25})
    assert found.tolist() == [0.25, -1, -1]


def test_goodness_is_the_mean_over_those_who_judged():
    # (0.2 + 0.4)/2, and 1 of those who are known; every client counts 1.
    assert mean_accuracies(np.array([[0.2, 0.4], [-1.0, 1.0]])) == pytest.approx([0.3, 1.0])
    with pytest.raises(SpecError, match="none of the clients that judge has any: keep a share"):
        mean_accuracies(np.array([[0.2, 0.4], [-1.0, -1.0]]))


def test_who_has_nothing_to_spare_trains_but_does_not_judge(cohort):
    # One example stays for training, so that a client of one has none held back.
    arrays = {"a": (np.ones((1, 2), np.float32), np.zeros(1, int)), "b": (np.eye(2, dtype=np.float32), np.arange(2))}
    fed = sequential(data.from_arrays(arrays, test={}, classes=2), models.mclr((2,), 2))
    assert set(validation_accuracies([["a", "b"]], fed, cohort(fed, -1), Seed(0), **HOW)) == {"b"}


def test_a_trial_that_was_lost_is_tried_again_and_no_fault_of_the_data(cohort):
    class Losing(Sequential):
        def on(self, task):
            return Losing(self._data, task)

        def carry(self, order):
            lost = "b" if order.work.name == "trial.score" else ""
            return (block for block in super().carry(order) if block.clients[0] != lost)

    arrays = {"a": (np.ones((1, 2), np.float32), np.zeros(1, int)), "b": (np.eye(2, dtype=np.float32), np.arange(2))}
    fed = Server(Losing(data.from_arrays(arrays, test={}, classes=2), models.mclr((2,), 2)))
    with pytest.raises(TooFewReplies, match="1 of 2 clients did not judge, and the others have no examples"):
        validation_accuracies([["a", "b"]], fed, cohort(fed, -1), Seed(0), **HOW)


@pytest.mark.slow
def test_lenet_judges_images(cohort):
    images = np.random.default_rng(0).integers(0, 256, (8, 28, 28)).astype(np.uint8)
    fed = vectorized(data.from_arrays({"a": (images, np.arange(8) % 2)}, test={}, classes=2), models.mclr((28, 28), 2))
    how = {**HOW, "light": "lenet5", "local": dataclasses.replace(LOCAL, epochs=1)}
    found = validation_accuracies([["a"]], fed, cohort(fed, -1), Seed(0), **how)
    assert found["a"] in (0.0, 1.0)  # of the one image that is held back
