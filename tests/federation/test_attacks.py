"""Malicious clients, and robust aggregation rules."""

from __future__ import annotations

import math

import numpy as np
import pytest

import coterie
from coterie import tree
from coterie.aggregation import Aggregation
from coterie.clients import LocalSGD, fit, gradient, score
from coterie.clients.closest import fit_closest, gradient_closest
from coterie.errors import SpecError
from coterie.federation import Attack, AttackTransport, Mean, PerClient, Sequential, Server
from coterie.methods.fedsim import fit_with_gradient
from coterie.models import trainable
from coterie.models.layers import BatchNorm, Dense, relu
from coterie.models.networks import network
from coterie.seeds import Seed
from coterie.testing import tiny_data, tiny_task

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.1)
TASK = tiny_task()
START = TASK.init(Seed(1))
CLIENTS = tuple(str(client) for client in range(10))


@pytest.fixture(scope="module")
def pair():
    """`pair(attack)`: an honest federation, the same federation under attack, and the attackers."""

    def make(attack, **options):
        honest = Server(Sequential(tiny_data(), TASK))
        attackers = attack.attackers(CLIENTS, {}, Seed(5))
        return (
            honest,
            Server(AttackTransport(Sequential(tiny_data(), TASK), attack, attackers, Seed(5)), **options),
            attackers,
        )

    return make


def rows(got, name="params"):
    """Client → its model as one vector."""
    return {client: tree.flatten(model).astype(float) for client, model in got.by_client(name).items()}


def test_attackers_are_drawn_once_by_seed():
    attack = Attack("sign-flip", fraction=0.3)
    assert len(attack.attackers(CLIENTS, {}, Seed(0))) == 3
    assert attack.attackers(CLIENTS, {}, Seed(0)) == attack.attackers(CLIENTS[::-1], {}, Seed(0))
    assert len({attack.attackers(CLIENTS, {}, Seed(seed)) for seed in range(9)}) > 1
    assert Attack("none").attackers(CLIENTS, {}, Seed(0)) == frozenset()


@pytest.mark.parametrize("seed", range(5))
def test_each_true_cluster_has_the_same_fraction_of_attackers(seed):
    truth = {client: int(client) // 5 for client in CLIENTS}
    attackers = Attack("sign-flip", fraction=0.4).attackers(CLIENTS, truth, Seed(seed))
    assert sorted(truth[client] for client in attackers) == [0, 0, 1, 1]  # 0.4 · 5 of each


@pytest.mark.parametrize(
    ("fraction", "sizes", "counts"),
    [
        (
            0.2,
            [2, 2, 2, 2],
            [0, 0, 1, 1],
        ),  # round(1.6) = 2; each cluster has a share of 0.4, and two of them get one attacker
        (0.2, [10, 10], [2, 2]),
        (0.2, [6, 3, 1], [0, 1, 1]),  # 2 in all; shares 1.2, 0.6 and 0.2: one, then one for the largest remainder, 0.6
        (0.3, [5, 5], [1, 2]),  # 3 in all; shares 1.5 each
        (0.01, [4, 4], [0, 1]),  # 0.08 in all, but there is at least one attacker
        (0.07, [100, 100], [7, 7]),
        (1.0, [3, 1], [1, 3]),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_attackers_are_divided_among_the_clusters_by_largest_remainder(fraction, sizes, counts, seed):
    truth = {f"{cluster}-{place}": cluster for cluster, size in enumerate(sizes) for place in range(size)}
    attackers = Attack("sign-flip", fraction=fraction).attackers(list(truth), truth, Seed(seed))
    found = [sum(truth[client] == cluster for client in attackers) for cluster in range(len(sizes))]
    assert sorted(found) == counts
    if sizes == [6, 3, 1]:
        assert found == [1, 1, 0]


def test_equal_remainders_are_ordered_at_random():
    truth = {client: int(client) // 2 for client in CLIENTS}  # five clusters of two clients, each with a share of 0.4
    attack = Attack("sign-flip", fraction=0.2)
    clusters = {truth[client] for seed in range(20) for client in attack.attackers(CLIENTS, truth, Seed(seed))}
    assert clusters == set(range(5))


@pytest.mark.parametrize(("name", "sign"), [("sign-flip", -1), ("scale", 1)])
def test_an_attacker_multiplies_its_update_by_the_strength(pair, name, sign):
    honest, attacked, attackers = pair(Attack(name, fraction=0.3, strength=4.0))
    bank = tree.stack([START, TASK.init(Seed(2))])
    sent = {client: place % 2 for place, client in enumerate(CLIENTS)}
    asks = ({"start": START}, {"start": PerClient(bank, sent)})
    for ask in asks:
        good, bad = (rows(fed.ask(CLIENTS, fit, Seed(0), local=LOCAL, **ask)) for fed in (honest, attacked))
        for client in CLIENTS:
            start = START if ask is asks[0] else tree.row(bank, sent[client])
            move = good[client] - tree.flatten(start)
            expected = tree.flatten(start) + sign * 4 * move if client in attackers else good[client]
            np.testing.assert_allclose(bad[client], expected, rtol=1e-4, atol=1e-5)


def test_an_attacker_that_chose_a_model_reverses_its_update_from_that_model(pair):
    honest, attacked, attackers = pair(Attack("sign-flip", fraction=0.3, strength=2.0))
    heads = tree.stack([START, TASK.init(Seed(2))])
    good, bad = (
        fed.ask(CLIENTS, fit_closest, Seed(0), base={}, heads=heads, local=LOCAL) for fed in (honest, attacked)
    )
    assert good["choice"].tolist() == bad["choice"].tolist()
    for client, choice in good.by_client("choice").items():
        start, trained = tree.flatten(tree.row(heads, choice)), rows(good)[client]
        expected = start - 2 * (trained - start) if client in attackers else trained
        np.testing.assert_allclose(rows(bad)[client], expected, rtol=1e-4, atol=1e-5)


def test_without_a_sent_model_the_sign_of_the_answer_is_flipped(pair):
    honest, attacked, attackers = pair(Attack("sign-flip", fraction=0.3, strength=1.0))
    good, bad = (rows(fed.ask(CLIENTS, gradient, Seed(0), params=START), "gradient") for fed in (honest, attacked))
    for client in CLIENTS:
        np.testing.assert_allclose(bad[client], -good[client] if client in attackers else good[client])


def test_the_sign_of_a_gradient_beside_a_trained_model_is_flipped(pair):
    # With s = 1: -g for the gradient, 2w - w_k for the model.
    honest, attacked, attackers = pair(Attack("sign-flip", fraction=0.3, strength=1.0))
    good, bad = (fed.ask(CLIENTS, fit_with_gradient, Seed(0), start=START, local=LOCAL) for fed in (honest, attacked))
    for client in CLIENTS:
        g, trained, attacks = rows(good, "gradient")[client], rows(good)[client], client in attackers
        np.testing.assert_allclose(rows(bad, "gradient")[client], -g if attacks else g)
        expected = 2 * tree.flatten(START) - trained if attacks else trained
        np.testing.assert_allclose(rows(bad)[client], expected, rtol=1e-4, atol=1e-6)


def test_the_sign_of_the_gradient_of_a_chosen_model_is_flipped(pair):
    honest, attacked, attackers = pair(Attack("sign-flip", fraction=0.3, strength=1.0))
    heads = tree.stack([START, TASK.init(Seed(2))])
    good, bad = (fed.ask(CLIENTS, gradient_closest, Seed(0), base={}, heads=heads) for fed in (honest, attacked))
    for client, g in rows(good, "gradient").items():
        np.testing.assert_allclose(rows(bad, "gradient")[client], -g if client in attackers else g)


@pytest.fixture(scope="module")
def normal():
    """A network with batch normalization for the same clients."""
    layers = [Dense(4), BatchNorm(), relu, Dense(3)]
    return network("normal", TASK.shape, 3, layers)


@pytest.mark.parametrize("name", ["sign-flip", "scale", "noise"])
def test_an_attack_changes_all_parameters_except_running_statistics(name, normal):
    attack = Attack(name, fraction=1.0, strength=10.0)
    honest, attacked = Sequential(tiny_data(), normal), Sequential(tiny_data(), normal)
    fed = Server(honest), Server(AttackTransport(attacked, attack, frozenset(CLIENTS), Seed(5)))
    good, bad = (each.ask(CLIENTS, fit, Seed(0), start=normal.init(Seed(1)), local=LOCAL)["params"] for each in fed)
    assert tree.same(bad["layer01"]["stats"], good["layer01"]["stats"])
    for path, leaf in tree.paths(trainable(bad)):
        assert not np.array_equal(leaf, dict(tree.paths(good))[path]), path


def test_the_norm_of_the_noise_excludes_running_statistics(normal):
    # ‖w_k - w‖/√d over the trained parameters: 4·16 + 4, scale and shift of 4 each, 3·4 + 3.
    start, attack = normal.init(Seed(1)), Attack("noise", fraction=1.0, strength=3.0)
    fed = [Server(Sequential(tiny_data(), normal))]
    fed += [Server(AttackTransport(Sequential(tiny_data(), normal), attack, frozenset(CLIENTS), Seed(5)))]
    good, bad = (each.ask(CLIENTS, fit, Seed(0), start=start, local=LOCAL)["params"] for each in fed)
    d = tree.size(trainable(start))
    assert d == 68 + 8 + 15
    moved = tree.flatten_rows(trainable(good)) - tree.flatten(trainable(start))
    added = tree.flatten_rows(trainable(bad)) - tree.flatten_rows(trainable(good))
    ratio = np.linalg.norm(added, axis=1) / (3 * np.linalg.norm(moved, axis=1))
    assert abs(ratio - 1).max() < 5 / math.sqrt(2 * d)


def test_an_attack_keeps_running_variances_positive(normal):
    # Raw bytes have variances far above 1, where running variances start. If two of ten clients reversed that update
    # ten times over, the mean variance would be negative and the scores NaN.
    record = coterie.run(
        {"attack": {"name": "sign-flip", "strength": 10.0}, "local": {"epochs": 1}, "run": {"rounds": 2}},
        data=tiny_data(),
        task=normal,
    )
    assert record.summary["status"] == "done"
    assert (record.models()["layer01"]["stats"]["variance"] > 0).all()


def test_noise_has_the_norm_of_the_update_times_the_strength_and_differs_between_asks(pair):
    honest, attacked, attackers = pair(Attack("noise", fraction=0.3, strength=3.0))
    good = rows(honest.ask(CLIENTS, fit, Seed(0), start=START, local=LOCAL))
    first, second = (rows(attacked.ask(CLIENTS, fit, Seed(0), start=START, local=LOCAL)) for _ in range(2))
    d = tree.size(START)
    for client in attackers:
        move = np.linalg.norm(good[client] - tree.flatten(START))
        length = np.linalg.norm(first[client] - good[client])
        # The norm of d standard normal numbers is √d ± 1/√2; the tolerance is five standard deviations.
        assert abs(length / (3 * move) - 1) < 5 / math.sqrt(2 * d)
        assert not np.array_equal(first[client], second[client])


def test_evaluation_and_honest_clients_are_not_changed(pair):
    honest, attacked, attackers = pair(Attack("scale", fraction=0.3))
    scored = [fed.scoring().ask(CLIENTS, score, Seed(0), part="test", params=START) for fed in (honest, attacked)]
    assert scored[0]["correct"].tolist() == scored[1]["correct"].tolist()
    good, bad = (rows(fed.ask(CLIENTS, fit, Seed(0), start=START, local=LOCAL)) for fed in (honest, attacked))
    assert {client for client in CLIENTS if not np.array_equal(good[client], bad[client])} == attackers


@pytest.mark.parametrize("rule", ["trimmed-mean", "median", "geometric-median", "krum", "multi-krum", "norm-clip"])
def test_group_means_use_the_robust_rule(pair, rule):
    aggregation = Aggregation(rule)
    _, attacked, _ = pair(Attack("scale", fraction=0.3, strength=1e4), aggregation=aggregation)
    by = {client: place % 2 for place, client in enumerate(CLIENTS)}
    how = Mean(groups=3, by=by, spread=True)
    got = attacked.ask(CLIENTS, fit, Seed(0), start=START, local=LOCAL, reduce=how)
    single = attacked.ask(CLIENTS, fit, Seed(0), start=START, local=LOCAL)
    mean, weight = got.means()
    for group in (0, 1):
        places = [place for place in range(10) if place % 2 == group]
        expected = aggregation.of(tree.take(single["params"], places), np.ones(5))
        np.testing.assert_array_equal(tree.flatten(tree.row(mean, group)), tree.flatten(expected))
    assert weight[2] == 0
    away = [np.linalg.norm(one - tree.flatten(tree.row(mean, by[client]))) for client, one in rows(single).items()]
    np.testing.assert_allclose(got.spread, away, rtol=1e-4)


def test_average_uses_the_robust_rule(pair):
    _, fed, _ = pair(Attack("none"), aggregation=Aggregation("median"))
    bank = {"w": np.array([[0.0], [1.0], [100.0]])}
    assert fed.average(bank, [1, 1, 1])["w"].tolist() == [1.0]
    assert fed.on(TASK).average(bank, [1, 1, 1])["w"].tolist() == [1.0]
    assert fed.average(bank, [1, 0, 1])["w"].tolist() == [50.0]  # a model of weight 0 is left out


def test_robust_tells_whether_the_rule_ignores_weights(pair):
    _, plain, _ = pair(Attack("none"))
    assert not plain.robust
    for rule in ("trimmed-mean", "median", "geometric-median", "krum", "multi-krum", "norm-clip"):
        _, fed, _ = pair(Attack("none"), aggregation=Aggregation(rule))
        assert all(each.robust for each in (fed, fed.on(TASK), fed.evaluating(), fed.placing()))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"name": "sign"}, "attack.name must be one of 'none', 'sign-flip'"),
        ({"fraction": 1.5}, "attack.fraction must be between 0 and 1, got 1.5"),
        ({"strength": math.nan}, "attack.strength must be at least 0, got nan"),
        (
            {"name": "sign-flip", "fraction": 0.0},
            "attack.name = 'sign-flip' needs attack.fraction above 0, got 0; for no attack use name 'none'",
        ),
    ],
)
def test_invalid_attack_settings_raise(given, text):
    with pytest.raises(SpecError, match=text):
        Attack(**given)


def test_label_flip_changes_only_the_training_labels_of_attackers(tmp_path):
    from coterie.runs.build import build
    from coterie.runs.spec import Spec

    spec = {"data": {"name": "digits", "clients": 16}, "attack": {"name": "label-flip", "fraction": 0.25}}
    honest, attacked = (build(Spec.of({**spec, "attack": attack})) for attack in ({}, spec["attack"]))
    attackers = set()
    for place, client in enumerate(honest.data.clients):
        before, after = (each.data.y[each.data.rows(place, "fit")] for each in (honest, attacked))
        attackers |= set() if np.array_equal(before, after) else {client}
        assert np.array_equal(after, 9 - before) == (client in attackers)
        tests = [each.data.y[each.data.rows(place, "test")] for each in (honest, attacked)]
        assert np.array_equal(*tests)
    assert len(attackers) == 4  # one of the four clients of each rotation
    assert attacked.attackers == tuple(sorted(attackers))
    assert honest.attackers == ()


def test_label_flip_cannot_be_combined_with_a_shift():
    spec = {"attack": {"name": "label-flip"}, "shift": {"name": "swap_all"}}
    with pytest.raises(SpecError, match="use sign-flip, scale or noise"):
        coterie.run(spec)


@pytest.mark.slow
def test_a_robust_rule_keeps_the_accuracy_that_the_mean_loses(tmp_path):
    # Two of the ten clients of each rotation attack; the rule tolerates three.
    base = {
        "data": {"name": "digits", "clients": 40},
        "method": "oracle",
        "local": {"epochs": 2, "batch_size": 10, "learning_rate": 0.1},
        "run": {"rounds": 15, "clients_per_round": 40, "evaluate_every": 15},
    }
    attack = {"name": "sign-flip", "fraction": 0.2}

    def accuracy(**more):
        return coterie.run({**base, **more}).summary["accuracy"]["weighted"]

    clean, attacked, robust = (
        accuracy(),
        accuracy(attack=attack),
        accuracy(attack=attack, aggregation={"rule": "multi-krum"}),
    )
    assert attacked < clean - 0.10
    assert robust > clean - 0.03
