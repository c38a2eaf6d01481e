"""Clients that lie, and averages that withstand them."""

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
from coterie.federation import Attack, Attacked, Mean, PerClient, Sequential, Server
from coterie.methods.fedsim import fit_with_gradient
from coterie.models import trainable
from coterie.models.layers import BatchNorm, Dense, relu
from coterie.models.networks import network
from coterie.seeds import Seed
from coterie.testing import tiny_data, tiny_task

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.1)
TASK = tiny_task()
START = TASK.init(Seed(1))
EVERYONE = tuple(str(client) for client in range(10))


@pytest.fixture(scope="module")
def pair():
    """`pair(attack)`: an honest federation, the same with liars, and who lies."""

    def make(attack, **options):
        honest = Server(Sequential(tiny_data(), TASK))
        liars = attack.by(EVERYONE, {}, Seed(5))
        return honest, Server(Attacked(Sequential(tiny_data(), TASK), attack, liars, Seed(5)), **options), liars

    return make


def rows(got, name="params"):
    """Client → its model as one vector."""
    return {client: tree.flatten(model).astype(float) for client, model in got.by_client(name).items()}


def test_the_share_of_liars_is_drawn_once_by_seed():
    attack = Attack("sign-flip", fraction=0.3)
    assert len(attack.by(EVERYONE, {}, Seed(0))) == 3
    assert attack.by(EVERYONE, {}, Seed(0)) == attack.by(EVERYONE[::-1], {}, Seed(0))
    assert len({attack.by(EVERYONE, {}, Seed(seed)) for seed in range(9)}) > 1
    assert Attack("none").by(EVERYONE, {}, Seed(0)) == frozenset()


@pytest.mark.parametrize("seed", range(5))
def test_each_true_cluster_has_its_share_of_liars(seed):
    truth = {client: int(client) // 5 for client in EVERYONE}
    liars = Attack("sign-flip", fraction=0.4).by(EVERYONE, truth, Seed(seed))
    assert sorted(truth[client] for client in liars) == [0, 0, 1, 1]  # 0.4 · 5 of each


@pytest.mark.parametrize(
    ("fraction", "sizes", "counts"),
    [
        (0.2, [2, 2, 2, 2], [0, 0, 1, 1]),  # round(1.6) = 2; each cluster is owed 0.4, and two of them get one
        (0.2, [10, 10], [2, 2]),
        (0.2, [6, 3, 1], [0, 1, 1]),  # 2 in all; owed 1.2, 0.6 and 0.2: one, then the largest rest, 0.6
        (0.3, [5, 5], [1, 2]),  # 3 in all; owed 1.5 each
        (0.01, [4, 4], [0, 1]),  # 0.08 in all, but an attack has an attacker
        (0.07, [100, 100], [7, 7]),
        (1.0, [3, 1], [1, 3]),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_the_share_of_all_is_dealt_out_over_the_clusters_by_largest_remainder(share, sizes, counts, seed):
    truth = {f"{kind}-{place}": kind for kind, size in enumerate(sizes) for place in range(size)}
    liars = Attack("sign-flip", fraction=share).by(list(truth), truth, Seed(seed))
    found = [sum(truth[client] == kind for client in liars) for kind in range(len(sizes))]
    assert sorted(found) == counts
    if sizes == [6, 3, 1]:
        assert found == [1, 1, 0]


def test_which_of_equal_clusters_has_an_attacker_is_drawn():
    truth = {client: int(client) // 2 for client in EVERYONE}  # five clusters of two, each owed 0.4
    attack = Attack("sign-flip", fraction=0.2)
    kinds = {truth[client] for seed in range(20) for client in attack.by(EVERYONE, truth, Seed(seed))}
    assert kinds == set(range(5))


@pytest.mark.parametrize(("name", "sign"), [("sign-flip", -1), ("scale", 1)])
def test_a_liar_goes_from_where_it_was_sent_so_far_as_its_strength_says(pair, name, sign):
    honest, lying, liars = pair(Attack(name, fraction=0.3, strength=4.0))
    bank = tree.stack([START, TASK.init(Seed(2))])
    sent = {client: place % 2 for place, client in enumerate(EVERYONE)}
    asks = ({"start": START}, {"start": PerClient(bank, sent)})
    for ask in asks:
        good, bad = (rows(fed.ask(EVERYONE, fit, Seed(0), local=LOCAL, **ask)) for fed in (honest, lying))
        for client in EVERYONE:
            start = START if ask is asks[0] else tree.row(bank, sent[client])
            move = good[client] - tree.flatten(start)
            expected = tree.flatten(start) + sign * 4 * move if client in liars else good[client]
            np.testing.assert_allclose(bad[client], expected, rtol=1e-4, atol=1e-5)


def test_a_liar_that_chose_among_models_goes_from_its_choice(pair):
    honest, lying, liars = pair(Attack("sign-flip", fraction=0.3, strength=2.0))
    heads = tree.stack([START, TASK.init(Seed(2))])
    good, bad = (fed.ask(EVERYONE, fit_closest, Seed(0), base={}, heads=heads, local=LOCAL) for fed in (honest, lying))
    assert good["choice"].tolist() == bad["choice"].tolist()
    for client, choice in good.by_client("choice").items():
        start, trained = tree.flatten(tree.row(heads, choice)), rows(good)[client]
        expected = start - 2 * (trained - start) if client in liars else trained
        np.testing.assert_allclose(rows(bad)[client], expected, rtol=1e-4, atol=1e-5)


def test_without_a_model_to_move_from_the_answer_itself_is_turned_round(pair):
    honest, lying, liars = pair(Attack("sign-flip", fraction=0.3, strength=1.0))
    good, bad = (rows(fed.ask(EVERYONE, gradient, Seed(0), params=START), "gradient") for fed in (honest, lying))
    for client in EVERYONE:
        np.testing.assert_allclose(bad[client], -good[client] if client in liars else good[client])


def test_a_gradient_beside_a_trained_model_is_turned_round_at_nought(pair):
    # With s = 1: -g for the gradient, 2w - w_k for the model.
    honest, lying, liars = pair(Attack("sign-flip", fraction=0.3, strength=1.0))
    good, bad = (fed.ask(EVERYONE, fit_with_gradient, Seed(0), start=START, local=LOCAL) for fed in (honest, lying))
    for client in EVERYONE:
        g, trained, lies = rows(good, "gradient")[client], rows(good)[client], client in liars
        np.testing.assert_allclose(rows(bad, "gradient")[client], -g if lies else g)
        expected = 2 * tree.flatten(START) - trained if lies else trained
        np.testing.assert_allclose(rows(bad)[client], expected, rtol=1e-4, atol=1e-6)


def test_the_gradient_of_a_chosen_model_is_turned_round_at_nought(pair):
    honest, lying, liars = pair(Attack("sign-flip", fraction=0.3, strength=1.0))
    heads = tree.stack([START, TASK.init(Seed(2))])
    good, bad = (fed.ask(EVERYONE, gradient_closest, Seed(0), base={}, heads=heads) for fed in (honest, lying))
    for client, g in rows(good, "gradient").items():
        np.testing.assert_allclose(rows(bad, "gradient")[client], -g if client in liars else g)


@pytest.fixture(scope="module")
def normal():
    """A dense layer with batch normalization behind it, on the same clients."""
    layers = [Dense(4), BatchNorm(), relu, Dense(3)]
    return network("normal", TASK.shape, 3, layers)


@pytest.mark.parametrize("name", ["sign-flip", "scale", "noise"])
def test_running_statistics_are_told_honestly_and_all_else_is_not(name, normal):
    attack = Attack(name, fraction=1.0, strength=10.0)
    honest, lying = Sequential(tiny_data(), normal), Sequential(tiny_data(), normal)
    fed = Server(honest), Server(Attacked(lying, attack, frozenset(EVERYONE), Seed(5)))
    good, bad = (each.ask(EVERYONE, fit, Seed(0), start=normal.init(Seed(1)), local=LOCAL)["params"] for each in fed)
    assert tree.same(bad["layer01"]["stats"], good["layer01"]["stats"])
    for path, leaf in tree.paths(trainable(bad)):
        assert not np.array_equal(leaf, dict(tree.paths(good))[path]), path


def test_the_length_of_noise_counts_no_statistics(normal):
    # ‖w_k - w‖/√d over what is trained: 4·16 + 4, scale and shift of 4, 3·4 + 3.
    start, attack = normal.init(Seed(1)), Attack("noise", fraction=1.0, strength=3.0)
    fed = [Server(Sequential(tiny_data(), normal))]
    fed += [Server(Attacked(Sequential(tiny_data(), normal), attack, frozenset(EVERYONE), Seed(5)))]
    good, bad = (each.ask(EVERYONE, fit, Seed(0), start=start, local=LOCAL)["params"] for each in fed)
    d = tree.size(trainable(start))
    assert d == 68 + 8 + 15
    moved = tree.flatten_rows(trainable(good)) - tree.flatten(trainable(start))
    added = tree.flatten_rows(trainable(bad)) - tree.flatten_rows(trainable(good))
    ratio = np.linalg.norm(added, axis=1) / (3 * np.linalg.norm(moved, axis=1))
    assert abs(ratio - 1).max() < 5 / math.sqrt(2 * d)


def test_a_model_with_batch_normalisation_does_not_break_under_attack(normal):
    # Bytes as they are stored have variances far above 1, where running variances start: two of ten clients that turned
    # their move of those round ten times over would leave a mean below 0, and scores that are no numbers.
    record = coterie.run(
        {"attack": {"name": "sign-flip", "strength": 10.0}, "local": {"epochs": 1}, "run": {"rounds": 2}},
        data=tiny_data(),
        task=normal,
    )
    assert record.summary["status"] == "done"
    assert (record.models()["layer01"]["stats"]["variance"] > 0).all()


def test_noise_is_as_long_as_the_move_times_the_strength_and_new_in_each_ask(pair):
    honest, lying, liars = pair(Attack("noise", fraction=0.3, strength=3.0))
    good = rows(honest.ask(EVERYONE, fit, Seed(0), start=START, local=LOCAL))
    first, second = (rows(lying.ask(EVERYONE, fit, Seed(0), start=START, local=LOCAL)) for _ in range(2))
    d = tree.size(START)
    for client in liars:
        move = np.linalg.norm(good[client] - tree.flatten(START))
        length = np.linalg.norm(first[client] - good[client])
        # The length of d normal numbers is √d ± 1/√2: five deviations.
        assert abs(length / (3 * move) - 1) < 5 / math.sqrt(2 * d)
        assert not np.array_equal(first[client], second[client])


def test_scoring_and_honest_clients_are_left_alone(pair):
    honest, lying, liars = pair(Attack("scale", fraction=0.3))
    scored = [fed.evaluating().ask(EVERYONE, score, Seed(0), part="test", params=START) for fed in (honest, lying)]
    assert scored[0]["correct"].tolist() == scored[1]["correct"].tolist()
    good, bad = (rows(fed.ask(EVERYONE, fit, Seed(0), start=START, local=LOCAL)) for fed in (honest, lying))
    assert {client for client in EVERYONE if not np.array_equal(good[client], bad[client])} == liars


@pytest.mark.parametrize("rule", ["trimmed-mean", "median", "geometric-median", "krum", "multi-krum", "norm-clip"])
def test_reduced_replies_are_averaged_by_the_rule_in_each_group(pair, rule):
    robust = Aggregation(rule)
    _, lying, _ = pair(Attack("scale", fraction=0.3, strength=1e4), robust=robust)
    by = {client: place % 2 for place, client in enumerate(EVERYONE)}
    how = Mean(groups=3, by=by, spread=True)
    got = lying.ask(EVERYONE, fit, Seed(0), start=START, local=LOCAL, reduce=how)
    single = lying.ask(EVERYONE, fit, Seed(0), start=START, local=LOCAL)
    mean, weight = got.means()
    for group in (0, 1):
        places = [place for place in range(10) if place % 2 == group]
        expected = robust.of(tree.take(single["params"], places), np.ones(5))
        np.testing.assert_array_equal(tree.flatten(tree.row(mean, group)), tree.flatten(expected))
    assert weight[2] == 0
    away = [np.linalg.norm(one - tree.flatten(tree.row(mean, by[client]))) for client, one in rows(single).items()]
    np.testing.assert_allclose(got.spread, away, rtol=1e-4)


def test_models_that_were_handed_over_are_averaged_by_the_same_rule(pair):
    _, fed, _ = pair(Attack("none"), aggregation=Aggregation("median"))
    bank = {"w": np.array([[0.0], [1.0], [100.0]])}
    assert fed.average(bank, [1, 1, 1])["w"].tolist() == [1.0]
    assert fed.on(TASK).average(bank, [1, 1, 1])["w"].tolist() == [1.0]
    assert fed.average(bank, [1, 0, 1])["w"].tolist() == [50.0]  # a model of weight 0 is left out


def test_a_federation_says_whether_weights_count_when_it_averages(pair):
    _, plain, _ = pair(Attack("none"))
    assert not plain.robust
    for rule in ("trimmed-mean", "median", "geometric-median", "krum", "multi-krum", "norm-clip"):
        _, fed, _ = pair(Attack("none"), aggregation=Aggregation(rule))
        assert all(each.robust for each in (fed, fed.on(TASK), fed.evaluating(), fed.placing()))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"name": "lie"}, "attack.name must be one of 'none', 'sign'"),
        ({"fraction": 1.5}, "attack.fraction must lie between 0 and 1, got 1.5"),
        ({"strength": math.nan}, "attack.strength must be finite and not negative"),
        (
            {"name": "sign-flip", "fraction": 0.0},
            "attack.name = 'sign-flip' with attack.fraction = 0 is an attack by nobody",
        ),
    ],
)
def test_attacks_that_cannot_be_meant_are_refused(given, text):
    with pytest.raises(SpecError, match=text):
        Attack(**given)


def test_labels_of_liars_are_turned_round_for_training_and_of_nobody_for_testing(tmp_path):
    from coterie.runs.build import build
    from coterie.runs.spec import Spec

    spec = {"data": {"name": "digits", "clients": 16}, "attack": {"name": "label-flip", "fraction": 0.25}}
    honest, lying = (build(Spec.of({**spec, "attack": attack})) for attack in ({}, spec["attack"]))
    liars = set()
    for place, client in enumerate(honest.data.clients):
        before, after = (each.data.y[each.data.rows(place, "fit")] for each in (honest, lying))
        liars |= set() if np.array_equal(before, after) else {client}
        assert np.array_equal(after, 9 - before) == (client in liars)
        tests = [each.data.y[each.data.rows(place, "test")] for each in (honest, lying)]
        assert np.array_equal(*tests)
    assert len(liars) == 4  # one of the four clients of each rotation
    assert lying.attackers == tuple(sorted(liars))
    assert honest.attackers == ()


def test_turned_labels_do_not_go_with_a_shift():
    spec = {"attack": {"name": "label-flip"}, "shift": {"name": "swap_all"}}
    with pytest.raises(SpecError, match="use sign, scale or noise"):
        coterie.run(spec)


@pytest.mark.slow
def test_a_robust_rule_saves_what_the_mean_loses(tmp_path):
    # Two of the ten clients of each rotation attack; the rule leaves three out.
    base = {
        "data": {"name": "digits", "clients": 40},
        "method": "oracle",
        "local": {"epochs": 2, "batch_size": 10, "learning_rate": 0.1},
        "run": {"rounds": 15, "clients_per_round": 40, "evaluate_every": 15},
    }
    attack = {"name": "sign-flip", "fraction": 0.2}

    def accuracy(**more):
        return coterie.run({**base, **more}).summary["accuracy"]["weighted"]

    alone, hurt, saved = accuracy(), accuracy(attack=attack), accuracy(attack=attack, robust={"rule": "multi-krum"})
    assert hurt < alone - 0.10
    assert saved > alone - 0.03
