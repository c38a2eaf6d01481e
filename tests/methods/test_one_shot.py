"""ONE_SHOT: training alone, known losses, and errors."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from coterie import data, models, tree
from coterie.clients import LocalSGD, fit
from coterie.errors import SpecError, TooFewReplies
from coterie.federation import Sequential, Server, vectorized
from coterie.methods.model_distances import between_clients, clients_to_clusters
from coterie.methods.one_shot import OneShot, add_models, one_shot, train_alone
from coterie.seeds import Seed

ZERO = {"w": np.zeros((), np.float32)}


def test_training_alone_takes_init_steps_batches_without_decay_or_proximal_term():
    local = LocalSGD(epochs=20, learning_rate=0.3, lr_decay=0.9, mu=2.0, optimizer="adam")
    assert OneShot(local, init_steps=7).init_training == LocalSGD(
        epochs=20, steps=7, learning_rate=0.3, optimizer="adam"
    )


def test_a_late_model_is_scored_by_all_clients_and_its_client_scores_only_that_model(tiny, cohort, step):
    # w = 0, 1 and 10; f_i(w_j) = ½(w_j - x_i)² with x = 0, 2, 20. c comes late and receives only its own model.
    fed, how = tiny(a=[0], b=[2], c=[20]), OneShot(step(0.5), init_steps=1)
    early = cohort(fed, -1, clients="ab")
    first = train_alone(how, ZERO, fed, early, Seed(0))
    assert first.losses.tolist() == [[0, 0.5], [2, 0.5]]
    got = fed.ask(["c"], fit, Seed(0), start=ZERO, local=how.init_training)
    both = add_models(how, first, got, fed, cohort(fed, -1), Seed(0))
    assert both.clients == ("a", "b", "c")
    np.testing.assert_array_equal(both.table, [[0, 0.5, 50], [2, 0.5, 32], [np.nan, np.nan, 50]])
    # d(a, c) = f_a(w_c), as c has not scored a's; d(b, c) = 32.
    assert between_clients(how.distance, both)[2].tolist() == [50, 32, 50]
    # Models are kept only if all of them are known.
    assert both.models["w"].tolist() == [0, 1, 10]
    without = dataclasses.replace(first, models={})
    assert add_models(how, without, got, fed, cohort(fed, -1), Seed(0)).models == {}


@pytest.mark.parametrize(
    ("clients", "settings", "text"),
    [
        ("a", {}, "needs at least 2, got 1"),
        ("abc", {"min_size": 4}, "min_size = 4 needs clusters of 4 clients .* there are 3; use 3 or less"),
        ("abc", {"min_size": 3, "grouping": "pivot"}, "needs clusters of 4 clients .* 'pivot', .* use 2 or less"),
    ],
)
def test_too_few_clients_are_rejected_before_any_client_is_asked(clients, settings, text, tiny, cohort, step):
    fed = tiny(**{client: [place] for place, client in enumerate(clients)})
    with pytest.raises(SpecError, match=text):
        one_shot(OneShot(step(0.5), init_steps=1, **settings), ZERO, fed, cohort(fed, -1), Seed(0))
    assert fed.traffic.total() == 0


def test_too_few_replies_from_enough_clients_raise_too_few_replies(numbers, quadratic, cohort, step):
    class Losing(Sequential):
        def send(self, request):
            return (batch for batch in super().send(request) if batch.clients[0] == "a")

    fed = Server(Losing(numbers(a=[0], b=[2], c=[4]), quadratic))
    for min_size, needed in ((1, 2), (3, 3)):
        how = OneShot(step(0.5), init_steps=1, min_size=min_size)
        with pytest.raises(TooFewReplies, match=f"1 clients have trained alone, {needed} are needed"):
            one_shot(how, ZERO, fed, cohort(fed, -1), Seed(0))


@pytest.mark.parametrize(
    ("threshold", "advice"),
    [
        (0.1, "Use a larger one; coterie suggest-threshold proposes one"),
        ("auto", "Use a smaller method.min_size, or more method.init_steps"),
        ("gap", "Use a smaller method.min_size, or more method.init_steps"),
        ("quantile", "Use a larger method.quantile, a smaller method.min_size, or more method.init_steps"),
    ],
)
def test_the_advice_without_a_cluster_depends_on_how_the_threshold_was_chosen(threshold, advice, tiny, cohort, step):
    # w = 0, 1, 2, 3 in a row: a pivot and two neighbors are fewer than four, and λ = 1 by gap and by quantile.
    fed = tiny(a=[0], b=[2], c=[4], d=[6])
    how = OneShot(step(0.5), "l2", threshold, min_size=3, grouping="pivot", init_steps=1)
    with pytest.raises(SpecError, match=advice):
        one_shot(how, ZERO, fed, cohort(fed, -1), Seed(0))


def test_running_statistics_do_not_count_in_distances(step):
    def learn(params, x, key, weight):
        return x[:, 0] * 0 + params["w"], {"norm": {"stats": {"mean": x.mean(axis=0) * 1e3}}}

    task = models.Task(
        name="with statistics",
        init=lambda seed: {"w": np.float32(0), "norm": {"stats": {"mean": np.zeros(1, np.float32)}}},
        apply=lambda params, x, key: x[:, 0] * 0 + params["w"],
        shape=(1,),
        classes=None,
        layers=("w", "norm"),
        learn=learn,
    )
    # x, and so the statistics, differ between clients; y is similar within {a, b} and within {c, d}.
    clients = {"a": (1, 0), "b": (50, 2), "c": (1, 20), "d": (50, 22)}
    arrays = {c: (np.full((1, 1), x, np.float32), np.full(1, y, np.float32)) for c, (x, y) in clients.items()}
    fed = vectorized(data.from_arrays(arrays, test={}, classes=None), task)
    from coterie.federation import Cohort

    all_clients = Cohort(-1, fed.clients, Seed(0), fed.clients)
    how = OneShot(step(0.5), distance="l2", init_steps=1)
    trained, row, _, _ = one_shot(how, task.init(Seed(0)), fed, all_clients, Seed(0))
    assert row == {"a": 0, "b": 0, "c": 1, "d": 1}
    assert tree.flatten(trained.models["norm"]).max() > 1e3
    bank = tree.take(trained.models, [0, 2])
    apart = clients_to_clusters("l2", bank, trained.models, np.zeros((0, 0)), np.zeros(0, int), np.zeros((0, 0)))
    assert apart == pytest.approx(np.array([[0, 10], [1, 9], [10, 0], [11, 1]]))


@pytest.mark.parametrize(
    ("distance", "floor", "threshold"),
    [
        # Both halves of a client are equal: no noise. The distances are 1, 1, 9, 10, 10 and 11, their median 9.5. The
        # pairs differ by 10 on average, more than 9.5/2: λ is between 1 and 9.
        ("l2", 0.0, 5.0),
        # On the other half, w = 0, 1, 10, 11 have the losses 0, ½, 50 and 60.5: φ = 27.75. The distances are 1.25,
        # 56.25, 106.25, 125, 130.5 and 151.25, their median 115.625: limit 71.6875. The pairs differ by 128.25.
        ("cross", 27.75, 81.25),
    ],
)
def test_the_threshold_lies_above_the_noise_floor_that_clients_measure(distance, floor, threshold, tiny, cohort, step):
    fed = tiny(a=[0, 0], b=[2, 2], c=[20, 20], d=[22, 22])
    how = OneShot(step(0.5), distance, init_steps=1)
    found = one_shot(how, ZERO, fed, cohort(fed, -1), Seed(0))
    assert found.evidence["noise_floor"] == floor
    assert found.threshold == threshold
    assert found.assignment == {"a": 0, "b": 0, "c": 1, "d": 1}
    assert fed.traffic.total(purpose="noise_floor") > 0


def test_clients_measure_no_noise_floor_for_a_given_threshold(tiny, cohort, step):
    fed = tiny(a=[0, 0], b=[2, 2])
    one_shot(OneShot(step(0.5), "l2", 5.0, init_steps=1), ZERO, fed, cohort(fed, -1), Seed(0))
    assert fed.traffic.total(purpose="noise_floor") == 0
