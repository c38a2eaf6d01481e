"""FedSim: both means by hand, clusters, identities, traffic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import data, models, tree
from coterie.aggregation import Aggregation
from coterie.clients import LocalSGD, fit
from coterie.errors import SpecError
from coterie.federation import Cohort, Sequential, Server, sequential
from coterie.methods.fedavg import FedAvg
from coterie.methods.fedsim import FedSim, fit_with_gradient, mean_of_means
from coterie.metrics import adjusted_rand
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("backend", ["sequential", pytest.param("vectorized", marks=pytest.mark.exhaustive)])
LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1, lr_decay=0.9, momentum=0.5)


def w(value):
    return {"w": np.float32(value)}


# Both means ----------------------------------------------------------------------------------------------------------


@BOTH
def test_models_are_averaged_within_clusters_and_clusters_with_equal_weights(backend, tiny, cohort, step):
    # A step of rate 1 takes client k to c_k, the mean of its examples. Gradients at 5 are 5 - c_k: 5, 4, -15, -16.
    #   a: c = 0, n = 1    b: c = 1, n = 2          (0 + 2·1) / 3 = 2/3
    #   c: c = 20, n = 1   d: c = 21, n = 1         (20 + 21) / 2 = 41/2        their mean: (2/3 + 41/2) / 2 = 127/12
    fed = tiny(backend=backend, a=[0], b=[1, 1], c=[20], d=[21])
    out = FedSim(step(1.0), clusters=2).round(w(5), fed, cohort(fed), Seed(0))
    assert out.assignment == {"a": 0, "b": 0, "c": 1, "d": 1}
    assert out.state["w"] == np.float32(127 / 12)
    # Distances are those to the one global model.
    expected = {"a": 127 / 12, "b": 115 / 12, "c": 113 / 12, "d": 125 / 12}
    assert out.distances == pytest.approx(expected, rel=1e-6)
    # Losses before the step at 5: (25 + 2·16 + 225 + 256) / 2 over five examples.
    assert out.loss == pytest.approx(538 / 2 / 5)
    assert out.counts == {"empty_clusters": 0}


@BOTH
@pytest.mark.parametrize("clusters", [2, 5])
def test_nine_copies_of_a_client_count_as_one(backend, clusters, tiny, cohort, step):
    # (0 + 10) / 2; FedAvg would land on (9·0 + 10) / 10 = 1. There are two distinct gradients, hence two clusters.
    fed = tiny(backend=backend, **{f"copy{i}": [0, 0] for i in range(9)}, other=[10])
    out = FedSim(step(1.0), clusters=clusters).round(w(3), fed, cohort(fed), Seed(0))
    assert out.state["w"] == 5
    assert out.counts == {"empty_clusters": clusters - 2}


@pytest.mark.exhaustive
def test_nine_copies_of_a_client_with_images_count_as_one(blobs, cohort, step):
    # (w_a + w_b) / 2 of the models that the two clients train; they are of different true clusters.
    images = data.load("blobs", clients=2, clusters=2, samples=50, seed=0)
    one, other = (images.examples(client) for client in images.clients)
    copies = data.from_arrays({**{f"copy{i}": one for i in range(9)}, "other": other}, test={}, classes=images.classes)
    task = blobs()[0].task
    fed, method = sequential(copies, task), FedSim(step(0.5), clusters=2)
    start = method.start(task, Seed(0))
    single = fed.ask(["copy0", "other"], fit, Seed(0), start=start, local=step(0.5))["params"]
    out = method.round(start, fed, cohort(fed), Seed(0))
    np.testing.assert_allclose(tree.flatten(out.state), tree.flatten_rows(single).mean(axis=0), atol=1e-6)


def test_round_robin_assigns_a_shuffled_cohort_in_turn(tiny, cohort, step):
    # Four clients in two clusters of two, one of three ways:
    #   ab, cd: (0 + 10)/2 = 5,    (2·6 + 20)/3 = 32/3,   their mean 47/6
    #   ac, bd: (0 + 2·6)/3 = 4,   (10 + 20)/2 = 15,      their mean 19/2
    #   ad, bc: (0 + 20)/2 = 10,   (10 + 2·6)/3 = 22/3,   their mean 26/3
    ways = {("a", "b"): 47 / 6, ("a", "c"): 19 / 2, ("a", "d"): 26 / 3}
    fed, method = tiny(a=[0], b=[10], c=[6, 6], d=[20]), FedSim(step(1.0), clusters=2, clustering="round_robin")
    seen = set()
    for number in range(12):
        out = method.round(w(1), fed, cohort(fed, t=3), Seed(number))
        with_a = tuple(client for client in "abcd" if out.assignment[client] == out.assignment["a"])
        assert out.state["w"] == pytest.approx(ways[with_a])
        assert out.evidence == {}
        seen.add(with_a)
    assert seen == set(ways)
    assert out.assignment == method.round(w(1), fed, cohort(fed, t=3), Seed(11)).assignment


def test_round_robin_does_not_follow_client_ids(tiny, cohort, step):
    # Client i is in the true cluster i mod 3. Of the 15!/(5!)³/3! balanced assignments one is the true one.
    fed = tiny(backend="vectorized", **{f"{i:02}": [i] for i in range(15)})
    truth = {f"{i:02}": i % 3 for i in range(15)}
    for how in ({"clustering": "round_robin"}, {"first_round": "round_robin"}):
        for number in range(5):
            out = FedSim(step(1.0), clusters=3, **how).round(w(1), fed, cohort(fed), Seed(number))
            assert np.bincount(list(out.assignment.values())).tolist() == [5, 5, 5]
            assert adjusted_rand(out.assignment, truth) < 0.5


def test_the_first_round_may_be_round_robin(tiny, cohort, step):
    fed = tiny(a=[0], b=[10], c=[0], d=[10])
    method = FedSim(step(1.0), clusters=3, first_round="round_robin")
    first = method.round(w(1), fed, cohort(fed, t=0), Seed(0)).assignment
    assert sorted(first.values()) == [0, 0, 1, 2]
    assert method.round(w(1), fed, cohort(fed, t=1), Seed(0)).assignment == {"a": 0, "b": 1, "c": 0, "d": 1}
    always = FedSim(step(1.0), clusters=3, clustering="round_robin")
    assert always.round(w(1), fed, cohort(fed, t=0), Seed(0)).assignment == first


@pytest.mark.parametrize("rule", ["trimmed-mean", "median", "geometric-median", "krum", "multi-krum", "norm-clip"])
def test_a_robust_rule_outvotes_a_cluster_of_malicious_clients(rule, numbers, quadratic, cohort, step):
    # Ten clusters at 0, 1, …, 8 and at 1e6, where three malicious clients agree with each other: in a plain mean of
    # clusters they move the model to about 1e5.
    good = {f"{i}{twin}": [i] for i in range(9) for twin in "ab"}
    images = numbers(**good, **{f"bad{i}": [1e6] for i in range(3)})
    method = FedSim(step(1.0), clusters=10, variance=1.0)
    fed = sequential(images, quadratic)
    assert method.round(w(0.5), fed, cohort(fed), Seed(0)).state["w"] == pytest.approx((36 + 1e6) / 10)
    fed = Server(Sequential(images, quadratic), aggregation=Aggregation(rule))
    out = method.round(w(0.5), fed, cohort(fed), Seed(0))
    assert len(set(out.assignment.values())) == 10
    assert 0 <= out.state["w"] <= 8


def test_a_client_without_examples_is_in_no_cluster(tiny, cohort, step):
    # (0 + 10)/2, without b; its gradient of 0 would otherwise be a cluster of its own.
    fed = tiny(a=[0], b=[], c=[10], d=[10])
    out = FedSim(step(1.0), clusters=3).round(w(7), fed, cohort(fed), Seed(0))
    assert out.state["w"] == 5
    assert out.assignment == {"a": 0, "c": 1, "d": 1}
    round_robin = FedSim(step(1.0), clusters=2, clustering="round_robin").round(w(7), fed, cohort(fed), Seed(0))
    assert set(round_robin.assignment) == set("acd")
    assert sorted(round_robin.assignment.values()) == [0, 0, 1]


@pytest.mark.parametrize("clustering", ["gradients", "round_robin"])
def test_without_examples_or_replies_the_model_stays_to_the_bit(clustering, tiny, cohort, step):
    fed = tiny(a=[], b=[], c=[1])
    method, start = FedSim(step(1.0), clustering=clustering), w(1 / 3)
    assert tree.same(method.round(start, fed, cohort(fed, clients="ab"), Seed(0)).state, start)
    slow = cohort(fed, clients="c", efforts={"c": 0.5})
    out = method.round(start, fed, slow, Seed(0))
    assert tree.same(out.state, start)
    assert (dict(out.assignment), out.loss) == ({}, None)


def test_two_replies_are_one_cluster(tiny, cohort, step):
    # (0 + 3·8)/4 = 6, not (0 + 8)/2.
    fed = tiny(a=[0], b=[8, 8, 8])
    out = FedSim(step(1.0), clusters=2).round(w(1), fed, cohort(fed), Seed(0))
    assert out.state["w"] == 6
    assert out.assignment == {"a": 0, "b": 0}


def test_equal_gradients_are_one_cluster(tiny, cohort, step):
    fed = tiny(a=[3], b=[3], c=[2, 4], d=[3])
    out = FedSim(step(1.0), clusters=4).round(w(1), fed, cohort(fed), Seed(0))
    assert set(out.assignment.values()) == {0}
    assert out.state["w"] == 3


# Gradients and their scores ------------------------------------------------------------------------------------------


@BOTH
def test_gradients_are_those_of_the_data_loss_at_the_model_received(backend, tiny, step):
    # At 5: 5 - 0 and 5 - (1 + 3)/2, without the proximal term and the weight decay of local training.
    fed = tiny(backend=backend, a=[0], b=[1, 3])
    got = fed.ask(
        fed.clients, fit_with_gradient, Seed(0), start=w(5), local=step(0.5, mu=3.0, weight_decay=2.0, steps=4)
    )
    assert got["gradient"]["w"].tolist() == [5, 3]


def test_clusters_are_formed_by_pca_scores(tiny, two_layers, cohort, step):
    # Both layers have the gradient s - x with s = wide + head: vectors (s - x)(1, 1), so one component holds all, and
    # with x = 0, 1, 10, 13 around their mean of 6 the scores are √2 (6, 5, -4, -7), turned so that -7 becomes positive.
    fed = tiny(task=two_layers, a=[0], b=[1], c=[10], d=[13])
    method = FedSim(step(0.1), clusters=2)
    out = method.round(method.start(two_layers, Seed(0)), fed, cohort(fed), Seed(0))
    np.testing.assert_allclose(out.evidence["scores"], np.sqrt(2) * np.array([[-6], [-5], [4], [7]]), rtol=1e-5)
    assert out.evidence["clients"] == ["a", "b", "c", "d"]
    assert out.assignment == {"a": 0, "b": 0, "c": 1, "d": 1}


def test_variance_sets_the_number_of_components(cohort, step):
    # Targets (p, q) of a model of two numbers: gradients at 0 are (-p, -q). Along p: ±10; along q: ±1, 1 % of 404.
    corners = {"a": (10, 1), "b": (10, -1), "c": (-10, 1), "d": (-10, -1)}
    task = models.from_functions(
        lambda key: {"w": np.zeros(2)}, lambda params, x: x @ params["w"], (2,), None, name="two numbers"
    )
    clients = {name: (np.eye(2, dtype=np.float32), np.array(pair, np.float32)) for name, pair in corners.items()}
    fed = sequential(data.from_arrays(clients, test={}, classes=None), task)
    for variance, columns in ((0.9, 1), (1.0, 2)):
        out = FedSim(step(1.0), clusters=2, variance=variance).round(
            {"w": np.zeros(2, np.float32)}, fed, cohort(fed), Seed(0)
        )
        assert out.evidence["scores"].shape == (4, columns)
        assert out.assignment == {"a": 0, "b": 0, "c": 1, "d": 1}


def test_running_statistics_have_no_gradient(step):
    task = models.Task(
        name="with statistics",
        init=lambda seed: {"norm": {"stats": {"mean": np.zeros(1, np.float32)}}, "out": np.ones(1, np.float32)},
        apply=lambda params, x, key: (x[:, 0] - params["norm"]["stats"]["mean"]) * params["out"],
        shape=(1,),
        classes=None,
        layers=("norm", "out"),
        learn=lambda params, x, key, weight: (x[:, 0] * params["out"], {"norm": {"stats": {"mean": x.mean(axis=0)}}}),
    )
    clients = {name: (np.ones((2, 1), np.float32), np.full(2, y, np.float32)) for name, y in (("a", 0), ("b", 3))}
    fed = sequential(data.from_arrays(clients, test={}, classes=None), task)
    got = fed.ask(fed.clients, fit_with_gradient, Seed(0), start=task.init(Seed(0)), local=step(0.1))
    assert list(got["gradient"]) == ["out"]
    assert got["gradient"]["out"].reshape(-1).tolist() == [1, -2]  # (out·1 - y)·1
    assert set(got["params"]) == {"norm", "out"}


@pytest.mark.slow
def test_true_clusters_are_separated_within_a_cohort(blobs, run_rounds, seeds):
    scores = []
    for seed in seeds:
        fed, truth = blobs(seed)
        _, rounds = run_rounds(FedSim(LOCAL, clusters=2), fed, 3, size=8, seed=seed)
        scores.append(min(adjusted_rand(r.assignment, {c: truth[c] for c in r.assignment}) for r in rounds))
    assert scores.count(1.0) >= len(seeds) - len(seeds) // 10, scores


# Identities ----------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("how", [{}, {"clustering": "round_robin"}, {"first_round": "round_robin"}])
def test_one_cluster_is_fedavg_to_the_bit(backend, how, blobs, run_rounds):
    fed, _ = blobs(backend=backend)
    mine, rounds = run_rounds(FedSim(LOCAL, clusters=1, **how), fed, 3, size=6, stragglers=1)
    theirs, others = run_rounds(FedAvg(LOCAL), fed, 3, size=6, stragglers=1)
    assert tree.same(mine, theirs)
    for a, b in zip(rounds, others, strict=True):
        assert (a.assignment, a.loss, a.distances) == (b.assignment, b.loss, b.distances)


def test_one_cluster_per_distinct_client_is_the_plain_mean(tiny, cohort, step):
    # (0 + 10 + 14 + 40)/4 = 16, although c has most of the examples.
    fed = tiny(a=[0], b=[10], c=[14] * 7, d=[40, 40])
    out = FedSim(step(1.0), clusters=4).round(w(-5), fed, cohort(fed), Seed(0))
    assert out.state["w"] == 16


def test_balanced_clusters_of_clients_of_equal_size_are_fedavg(tiny, cohort, step):
    fed = tiny(a=[0], b=[1], c=[20], d=[22])
    out = FedSim(step(0.3), clusters=2).round(w(5), fed, cohort(fed), Seed(0))
    assert out.state["w"] == pytest.approx(float(FedAvg(step(0.3)).round(w(5), fed, cohort(fed), Seed(0)).state["w"]))


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(["a", "b", "c", "d", "e"]))
def test_the_order_of_clients_does_not_matter(order, tiny, step):
    held = {"a": [1 / 3], "b": [2 / 7, 5], "c": [1e3], "d": [1e-3, 4, 9], "e": [1e3, 9e2]}
    method, plain = FedSim(step(0.3), clusters=2), tiny(**held)
    expected = method.round(w(0.1), plain, Cohort(0, tuple("abcde"), Seed(0), plain.clients), Seed(0))
    mixed = tiny(**{client: held[client] for client in order})
    out = method.round(w(0.1), mixed, Cohort(0, tuple(order), Seed(0), mixed.clients), Seed(0))
    assert tree.same(out.state, expected.state)
    assert (out.assignment, out.distances) == (expected.assignment, expected.distances)


clients = st.lists(
    st.tuples(st.floats(-1e3, 1e3, width=32), st.integers(0, 3), st.integers(1, 50)), min_size=1, max_size=12
)


@pytest.fixture(scope="session")
def averaged(tiny):
    fed = tiny(a=[0])

    def mean(members):
        values, labels, samples = (np.array(column) for column in zip(*members, strict=True))
        labels = np.unique(labels, return_inverse=True)[1]
        clients, bank = [str(i) for i in range(len(values))], {"w": values.astype(np.float32)}
        return float(mean_of_means(fed, bank, labels, samples, clients, {"w": np.float32(0)})["w"])

    return mean


@given(members=clients, order=st.randoms(), names=st.permutations(range(4)))
def test_the_mean_does_not_depend_on_client_order_or_cluster_numbers(members, order, names, averaged):
    mean = averaged(members)
    values = [value for value, _, _ in members]
    # float32 rounds numbers of up to 1,000 by 6e-5.
    assert min(values) - 1e-4 <= mean <= max(values) + 1e-4
    mixed = list(members)
    order.shuffle(mixed)
    assert averaged(mixed) == pytest.approx(mean, abs=1e-4)
    assert averaged([(value, names[label], n) for value, label, n in members]) == pytest.approx(mean, abs=1e-4)


@given(members=clients, times=st.integers(2, 5), label=st.integers(0, 3))
def test_copies_of_a_cluster_do_not_change_its_weight(members, times, label, averaged):
    copied = [member for member in members if member[1] == label]
    assert averaged(members + copied * (times - 1)) == pytest.approx(averaged(members), abs=1e-4)


# Traffic, placement, settings ----------------------------------------------------------------------------------------


def test_a_round_sends_one_model_down_and_two_up(blobs, run_rounds):
    fed, _ = blobs()
    state, _ = run_rounds(FedSim(LOCAL, clusters=2, first_round="round_robin"), fed, 3, size=5)
    model = 4 * tree.size(state)
    assert fed.traffic.by_purpose(0)["train"] == {"down": 5 * model, "up": 5 * model}
    assert "gradients" not in fed.traffic.by_purpose(0)
    for t in (1, 2):
        assert fed.traffic.by_purpose(t)["train"] == {"down": 5 * model, "up": 5 * model}
        assert fed.traffic.by_purpose(t)["gradients"] == {"down": 0, "up": 5 * model}


def test_every_client_is_served_the_one_model(tiny, step):
    placement = FedSim(step(1.0)).place(w(3), tiny(a=[0]), ["a", "newcomer"], Seed(0))[1]
    assert placement.row == {"a": 0, "newcomer": 0}
    assert placement.bank["w"].tolist() == [3]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"clusters": 0}, "method.clusters must be at least 1, got 0"),
        ({"variance": 0.0}, "method.variance must be above 0 and at most 1, got 0.0"),
        ({"variance": 1.5}, "method.variance must be above 0 and at most 1, got 1.5"),
        ({"clustering": "random"}, "method.clustering must be one of 'gradients', 'round_robin', got 'random'"),
        ({"first_round": "none"}, "method.first_round must be one of 'gradients', 'round_robin', got 'none'"),
    ],
)
def test_invalid_settings_are_rejected(given, text):
    with pytest.raises(SpecError, match=f"^{text}$"):
        FedSim(**given)
