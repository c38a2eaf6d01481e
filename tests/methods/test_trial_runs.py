"""Trial runs: validation by hand, clusters that train independently, and clusters that are trained once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from coterie import data, models, tree
from coterie.clients import LocalSGD, fit, score
from coterie.errors import SpecError, TooFewReplies
from coterie.federation import Sequential, Server, sequential, vectorized
from coterie.federation.protocol import Mean
from coterie.methods.trial_runs import TrialRun, mean_accuracies, next_scores, trial_fit, trial_task
from coterie.models import Normalize
from coterie.seeds import Seed

LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1, lr_decay=0.5)
TRIAL = TrialRun("mclr", LOCAL, rounds=2)


def test_a_cluster_trains_on_rest_and_is_validated_on_held(blobs, cohort):
    # Two rounds of FedAvg by hand on `rest`, then the score on `held`: 4 of 40 training images.
    fed, _ = blobs(clients=4)
    members = fed.clients[:3]
    task = trial_task(fed.task, "mclr")
    trial_fed = fed.on(task)
    w = task.init(Seed(7).fold("init"))
    for r in range(2):
        name = Seed(7).fold("round", r)
        got = trial_fed.ask(members, trial_fit, name, part="rest", start=w, local=LOCAL.at(r), reduce=Mean())
        assert got.samples.tolist() == [36, 36, 36]
        w = tree.row(got.means()[0], 0)
    held = trial_fed.ask(members, score, Seed(0), part="held", params=w)
    assert held.samples.tolist() == [4, 4, 4]
    found = TRIAL.validate([members], fed, cohort(fed, -1), Seed(7))
    correct, losses = held.by_client("correct"), held.by_client("loss")
    assert found == {client: (correct[client] / 4, losses[client] / 4) for client in members}


@pytest.mark.exhaustive
def test_clusters_train_independently(blobs, cohort):
    fed, _ = blobs(clients=6)
    a, b, c, d, e, f = fed.clients
    all_clients = cohort(fed, -1)
    alone = TRIAL.validate([[b, e]], fed, all_clients, Seed(0))
    among = TRIAL.validate([[a, c], [b, e], [d], [f]], fed, all_clients, Seed(0))
    assert set(among) == set(fed.clients)
    assert {client: among[client] for client in (b, e)} == alone


def test_stragglers_do_all_of_a_trial_run(blobs, cohort):
    fed, _ = blobs(clients=4)
    slow = cohort(fed, -1, efforts=dict.fromkeys(fed.clients, 0.1))
    found = TRIAL.validate([list(fed.clients)], fed, slow, Seed(0))
    assert found == TRIAL.validate([list(fed.clients)], fed, cohort(fed, -1), Seed(0))


def test_trial_bytes_count_as_trial_and_not_as_training_or_evaluation(blobs, cohort):
    # Two rounds down and up, and once down for validation.
    fed, _ = blobs(clients=4)
    TRIAL.validate([list(fed.clients)], fed, cohort(fed, -1), Seed(0))
    model = 4 * tree.size(trial_task(fed.task, "mclr").init(Seed(0)))
    sent = fed.traffic.by_purpose()
    assert sent["trial"] == {"down": 3 * 4 * model, "up": 2 * 4 * model}
    assert set(sent) == {"trial", "control"}


def test_the_trial_task_has_the_inputs_of_the_task_and_is_built_once():
    task = models.build("lenet5", (28, 28), 10, normalize=Normalize(33.0, 78.0))
    small = trial_task(task, "mclr")
    assert small is trial_task(task, "mclr")
    assert (small.name, small.shape, small.classes, small.normalize) == ("mclr", (28, 28), 10, task.normalize)
    # Half the filters of LeNet-5: 3 of 25 weights and 8 of 75, dense 128 → 120 → 84 → 10, each with a bias.
    half = trial_task(task, "lenet5")
    layers = 3 * 26 + 8 * 76 + 129 * 120 + 121 * 84 + 85 * 10
    assert tree.size(half.init(Seed(0))) == layers
    assert trial_task(models.mclr((28, 28), 10), "mclr") is not small


def test_works_of_trial_runs_have_their_own_names():
    assert trial_fit.name != fit.name
    assert trial_fit.stream != fit.stream
    assert trial_fit.body is fit.body


def test_clusters_of_an_earlier_partition_are_not_trained_again():
    # {abcd}, then {ab}{cd}, then {ab}{c}{d}.
    partitions = np.array([[0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 2]])
    asked = []

    def run(clusters):
        asked.append(clusters)
        return {client: (len(asked) / 10, len(asked)) for members in clusters for client in members}

    known = np.zeros((0, 4, 2))
    for _ in partitions:
        known = np.concatenate([known, next_scores(partitions, known, "abcd", run)[None]])
    assert asked == [[["a", "b", "c", "d"]], [["a", "b"], ["c", "d"]], [["c"], ["d"]]]
    np.testing.assert_array_equal(known[..., 0], [[0.1] * 4, [0.2] * 4, [0.2, 0.2, 0.3, 0.3]])
    np.testing.assert_array_equal(known[..., 1], [[1] * 4, [2] * 4, [2, 2, 3, 3]])


def test_a_partition_without_new_clusters_asks_no_client():
    # The validation clients are in the same clusters although the partition of all clients differs; so may labels.
    partitions = np.array([[0, 0, 1], [3, 3, 7]])
    known = np.array([[[0.5, 0.7], [-1.0, -1.0], [1.0, 0.1]]])
    found = next_scores(partitions, known, "abc", lambda clusters: pytest.fail("asked"))
    assert found.tolist() == known[0].tolist()


def test_the_scores_of_a_client_without_a_reply_are_unknown():
    found = next_scores(np.array([[0, 0, 1]]), np.zeros((0, 3, 2)), "abc", lambda clusters: {"a": (0.25, 2.0)})
    assert found.tolist() == [[0.25, 2.0], [-1, -1], [-1, -1]]


def test_goodness_is_the_mean_over_known_accuracies():
    # (0.2 + 0.4)/2, and 1 of the known ones; all clients have the same weight.
    assert mean_accuracies(np.array([[0.2, 0.4], [-1.0, 1.0]])) == pytest.approx([0.3, 1.0])
    with pytest.raises(SpecError, match="none of the validation clients has any: keep a share"):
        mean_accuracies(np.array([[0.2, 0.4], [-1.0, -1.0]]))


def test_a_client_without_validation_examples_trains_but_does_not_validate(cohort):
    # One example stays for training, so that a client with one example has no validation examples.
    arrays = {"a": (np.ones((1, 2), np.float32), np.zeros(1, int)), "b": (np.eye(2, dtype=np.float32), np.arange(2))}
    fed = sequential(data.from_arrays(arrays, test={}, classes=2), models.mclr((2,), 2))
    assert set(TRIAL.validate([["a", "b"]], fed, cohort(fed, -1), Seed(0))) == {"b"}


def test_a_trial_without_replies_raises_too_few_replies_and_no_spec_error(cohort):
    class Losing(Sequential):
        def on(self, task):
            return Losing(self._data, task)

        def send(self, request):
            lost = "b" if request.work.name == "trial.score" else ""
            return (batch for batch in super().send(request) if batch.clients[0] != lost)

    arrays = {"a": (np.ones((1, 2), np.float32), np.zeros(1, int)), "b": (np.eye(2, dtype=np.float32), np.arange(2))}
    fed = Server(Losing(data.from_arrays(arrays, test={}, classes=2), models.mclr((2,), 2)))
    with pytest.raises(
        TooFewReplies, match="1 of 2 clients did not validate, and the others have no validation examples"
    ):
        TRIAL.validate([["a", "b"]], fed, cohort(fed, -1), Seed(0))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_lenet_validates_images(cohort):
    images = np.random.default_rng(0).integers(0, 256, (8, 28, 28)).astype(np.uint8)
    fed = vectorized(data.from_arrays({"a": (images, np.arange(8) % 2)}, test={}, classes=2), models.mclr((28, 28), 2))
    trial = TrialRun("lenet5", dataclasses.replace(LOCAL, epochs=1), rounds=2)
    found = trial.validate([["a"]], fed, cohort(fed, -1), Seed(0))
    assert found["a"][0] in (0.0, 1.0)  # one validation image
