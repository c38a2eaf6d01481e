"""Sums with clipping and noise: what a client can change, how large the noise is, and what is counted."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from coterie import tree
from coterie.aggregation import Aggregation
from coterie.clients import LocalSGD, fit, gradient
from coterie.clients.closest import fit_closest
from coterie.errors import SpecError
from coterie.federation import Attack, AttackTransport, Averaging, Cohort, Mean, PerClient, Privacy, Sequential, Server
from coterie.federation.averaging import releases
from coterie.federation.cohort import Sampling
from coterie.federation.privacy import PrivateReduction, denominators
from coterie.models import Normalize, mlp
from coterie.seeds import Seed
from coterie.testing import tiny_data, tiny_task

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.5)
CLIENTS = tuple(str(client) for client in range(10))
GROUP = {client: int(client) % 2 for client in CLIENTS}
UNIFORM = Mean(weights="uniform")


def averaging(norm=1.0, noise=0.0, rule="mean", **more):
    return Averaging(Aggregation(rule), Privacy(norm, noise, 1e-5), Seed(7), **more)


def cohort(clients=CLIENTS, sampling=None):
    return Cohort(0, tuple(clients), Seed(0), CLIENTS, sampling=sampling)


# ------------------------------------------------------------------------------------------------- what is refused


def test_noise_needs_a_maximum_norm():
    with pytest.raises(SpecError, match=r"privacy\.noise_multiplier = 1 needs privacy\.max_update_norm above 0"):
        Privacy(noise_multiplier=1.0)


@pytest.mark.parametrize("weights", ["samples", "first"])
def test_noise_needs_uniform_weights(wired, model, weights):
    fed, _ = wired(averaging=averaging(noise=1.0))
    with pytest.raises(SpecError, match=r"set method\.weights = 'uniform'"):
        fed.ask(CLIENTS, fit, Seed(0), reduce=Mean(weights=weights), start=model, local=LOCAL)


def test_members_of_a_group_must_start_from_one_model(wired, bank):
    fed, _ = wired(averaging=averaging(noise=1.0))
    start = PerClient(bank, GROUP)
    with pytest.raises(SpecError, match="must start from the same model"):
        fed.ask(CLIENTS, fit, Seed(0), reduce=UNIFORM, start=start, local=LOCAL)


def test_an_average_of_models_must_name_their_clients(wired, bank):
    fed, _ = wired(averaging=averaging())
    with pytest.raises(SpecError, match="needs clients="):
        fed.average(bank, [1, 1])
    assert tree.same(fed.average(bank, [1, 1], clients=()), Server(fed._transport).average(bank, [1, 1]))


def test_an_average_with_noise_needs_uniform_weights(wired, bank, model):
    fed, _ = wired(averaging=averaging(noise=1.0))
    with pytest.raises(SpecError, match="uniform"):
        fed.average(bank, [1, 2], clients=("0", "1"), start=model)


# --------------------------------------------------------------------------------------------------------- clipping


@pytest.mark.parametrize("backend", ["sequential", "vectorized"])
def test_clients_clip_what_is_averaged_before_they_send_it(wired, model, backend):
    sent = []

    def touch(request, batches):
        for batch in batches:
            sent.extend(zip(batch.clients, tree.flatten_rows(batch.answers["params"]), strict=True))
            yield batch

    fed, _ = wired(backend, touch, averaging=averaging(norm=0.05))
    fed.ask(CLIENTS, fit, Seed(0), reduce=UNIFORM, start=model, local=LOCAL)
    whole = Server(Sequential(tiny_data(), tiny_task())).ask(CLIENTS, fit, Seed(0), start=model, local=LOCAL)
    start = tree.flatten(model).astype(np.float64)
    for (client, clipped), full in zip(sent, tree.flatten_rows(whole["params"]), strict=True):
        update = full - start
        assert np.linalg.norm(update) > 0.05, client
        expected = start + update * 0.05 / np.linalg.norm(update)
        np.testing.assert_allclose(clipped, expected, atol=1e-6)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_individual_replies_are_not_clipped(wired, model, noise):
    plain, _ = wired()
    private, _ = wired(averaging=averaging(norm=1e-3, noise=noise))
    one, other = (fed.ask(CLIENTS, fit, Seed(0), start=model, local=LOCAL) for fed in (plain, private))
    assert tree.same(one["params"], other["params"])


def test_a_large_norm_without_noise_changes_no_bit(wired, model, bank):
    plain, _ = wired()
    clipped, _ = wired(averaging=averaging(norm=1e9))
    for mean in (Mean(spread=True), Mean(groups=2, by=GROUP)):
        asked = [
            fed.ask(CLIENTS, fit, Seed(0), reduce=mean, start=model, local=LOCAL).reduced[0] for fed in (plain, clipped)
        ]
        assert all(tree.same(one, other) for one, other in zip(*asked, strict=True) if one is not None)
    assert tree.same(plain.average(bank, [1, 2]), clipped.average(bank, [1, 2], clients=("0", "1"), start=model))


def test_clipping_alone_clips_an_average_around_its_start(wired):
    fed, _ = wired(averaging=averaging(norm=1.0))
    bank, start = {"w": np.array([[4.0, 1.0], [1.0, 1.0]], np.float32)}, {"w": np.ones(2, np.float32)}
    # Updates (3, 0) and (0, 0): clipped to (1, 0) and (0, 0).
    np.testing.assert_allclose(fed.average(bank, [1, 1], clients=("0", "1"), start=start)["w"], [1.5, 1.0], rtol=1e-7)


def test_the_server_clips_again_what_a_malicious_client_enlarged(model):
    transport = Sequential(tiny_data(), tiny_task())
    attack = Attack("scale", fraction=0.1, strength=1e6)
    fed = Server(AttackTransport(transport, attack, frozenset({"3"}), Seed(0)), averaging=averaging(norm=0.1))
    honest = Server(transport, averaging=averaging(norm=0.1))
    means = [
        tree.flatten(tree.row(each.ask(CLIENTS, fit, Seed(0), reduce=UNIFORM, start=model, local=LOCAL).mean, 0))
        for each in (fed, honest)
    ]
    # One of ten updates changes by at most 2C.
    assert np.linalg.norm(means[0] - means[1]) <= 0.2 / 10 + 1e-6


# ------------------------------------------------------------------------------------------------------ sensitivity

_UPDATES = arrays.arrays(np.float64, (5, 4), elements=st.floats(-100, 100))


@given(updates=_UPDATES, groups=st.lists(st.integers(0, 2), min_size=5, max_size=5), client=st.integers(0, 4))
def test_one_client_changes_the_sums_of_all_groups_together_by_at_most_the_norm(updates, groups, client):
    norm, starts = 1.5, {"w": np.arange(12.0).reshape(3, 4)}

    def sums(rows, kept):
        made = PrivateReduction(
            Mean(groups=3, by="choice", weights="uniform"),
            {"w": np.zeros(4)},
            Privacy(norm),
            starts,
            np.ones(3),
            Seed(0),
        )
        choice = np.array(groups)[kept]
        made.add(tuple(CLIENTS[i] for i in kept), {"params": {"w": rows[kept]}, "choice": choice}, np.ones(len(kept)))
        return made.result().mean["w"]

    models = updates + starts["w"][groups]
    others = [i for i in range(5) if i != client]
    whole, without = sums(models, list(range(5))), sums(models, others)
    assert np.linalg.norm(whole - without) <= norm * (1 + 1e-9)
    zeroed = models.copy()
    zeroed[client] = starts["w"][groups[client]]
    assert np.linalg.norm(whole - sums(zeroed, list(range(5)))) <= norm * (1 + 1e-9)


# ------------------------------------------------------------------------------------------------------------ noise


def noisy_zero_updates(times, noise, norm, size):
    """Means of updates that are zero, minus their start: (times, 51)."""
    zero = dataclasses.replace(LOCAL, learning_rate=0.0)
    fed = Server(Sequential(tiny_data(), tiny_task()), averaging=averaging(norm, noise))
    start = tiny_task().init(Seed(1))
    drawn = cohort(CLIENTS[:2], Sampling("fixed", size, 10))
    found = [
        tree.flatten_rows(fed.ask(drawn, fit, Seed(t), reduce=UNIFORM, start=start, local=zero).mean)[0]
        for t in range(times)
    ]
    return np.array(found, np.float64) - tree.flatten(start)


def test_the_noise_of_a_mean_has_the_stated_deviation_and_mean_zero():
    # z C / D = 2 · 0.5 / 4 = 0.25; n = 200 · 51 = 10,200 normal numbers.
    noise = noisy_zero_updates(200, noise=2.0, norm=0.5, size=4)
    n = noise.size
    assert n == 10_200
    # The variance estimate deviates by √(2/n) = 1.4 %, the mean by 0.25/√n; five deviations are allowed.
    assert abs(noise.var() / 0.25**2 - 1) < 5 * np.sqrt(2 / n)
    assert abs(noise.mean()) < 5 * 0.25 / np.sqrt(n)
    # Independent from ask to ask: the correlation of 50 pairs of vectors is within 5/√51 of 0.
    assert all(abs(np.corrcoef(noise[t], noise[t + 1])[0, 1]) < 5 / np.sqrt(51) for t in range(50))


def test_the_noise_is_drawn_from_the_seed_and_the_number_of_the_release():
    again = [noisy_zero_updates(2, noise=1.0, norm=1.0, size=4) for _ in range(2)]
    np.testing.assert_array_equal(*again)
    assert not np.array_equal(again[0][0], again[0][1])


def test_the_noisy_mean_is_the_sum_of_clipped_updates_over_the_fixed_denominator(wired, model):
    tiny = 1e-9  # the noise is far below float32 precision
    fed, _ = wired(averaging=averaging(norm=0.05, noise=tiny))
    drawn = cohort(CLIENTS[:3], Sampling("fixed", 4, 10))
    mean = fed.ask(drawn, fit, Seed(0), reduce=UNIFORM, start=model, local=LOCAL).mean
    whole = wired()[0].ask(CLIENTS[:3], fit, Seed(0), start=model, local=LOCAL)["params"]
    start = tree.flatten(model).astype(np.float64)
    updates = tree.flatten_rows(whole) - start
    clipped = updates * 0.05 / np.linalg.norm(updates, axis=1, keepdims=True)
    np.testing.assert_allclose(tree.flatten_rows(mean)[0], start + clipped.sum(axis=0) / 4, atol=1e-6)


def test_a_group_without_replies_also_gets_noise_so_that_it_does_not_show(wired, bank):
    fed, _ = wired(averaging=averaging(noise=1.0))
    heads = tree.take(bank, [0, 0])  # ties go to the first, so no client chooses the second
    mean = Mean("params", 2, "choice", "uniform")
    got = fed.ask(cohort(), fit_closest, Seed(0), reduce=mean, base={}, heads=heads, local=LOCAL)
    assert not got["choice"].any()
    moved, weight = got.means()
    assert (weight > 0).all()
    assert not tree.same(tree.row(moved, 1), tree.row(heads, 1))


def test_a_group_of_which_no_client_was_asked_is_not_released(wired, bank):
    fed, _ = wired(averaging=averaging(noise=1.0))
    row = dict.fromkeys(CLIENTS, 0)
    mean = Mean(groups=2, by=row, weights="uniform")
    got = fed.ask(cohort(), fit, Seed(0), reduce=mean, start=PerClient(bank, row), local=LOCAL)
    assert got.means()[1].tolist() == [10, 0]


@pytest.mark.parametrize("work", ["models", "gradients"])
def test_both_backends_release_the_same_bytes(wired, model, work):
    made = []
    for backend in ("sequential", "vectorized"):
        fed, _ = wired(backend, averaging=averaging(norm=0.1, noise=0.5))
        if work == "models":
            got = fed.ask(cohort(), fit, Seed(0), reduce=UNIFORM, start=model, local=LOCAL)
        else:
            got = fed.ask(cohort(), gradient, Seed(0), reduce=Mean("gradient", weights="uniform"), params=model)
        made.append(got.mean)
    assert tree.same(*made)


def test_an_average_of_individual_models_gets_noise_and_divides_by_their_number(wired):
    fed, _ = wired(averaging=averaging(norm=1.0, noise=1e-9))
    bank = {"w": np.array([[3.0, 0.0], [0.0, 0.5], [9.0, 9.0]], np.float32)}
    mean = fed.average(bank, [1, 1, 0], clients=("0", "1", "2"))["w"]
    np.testing.assert_allclose(mean, [0.5, 0.25], atol=1e-6)  # (1, 0) + (0, 0.5), over 2
    loud, _ = wired(averaging=averaging(norm=1.0, noise=1.0))
    assert not np.allclose(loud.average(bank, [1, 1, 0], clients=("0", "1", "2"))["w"], mean, atol=1e-3)


def test_layers_that_all_clusters_share_are_averaged_over_all_clients_in_the_same_release(wired):
    task = mlp(tiny_task().shape, 3, widths=(2,), normalize=Normalize(0.0, 255.0))
    first, second = task.init(Seed(1)), task.init(Seed(2))
    second["dense0"] = first["dense0"]
    base, heads = {"dense0": first["dense0"]}, {"dense1": tree.stack([first["dense1"], second["dense1"]])}
    means = [Mean("params", 2, "choice", "uniform", layers=("dense1",)), Mean(weights="uniform", layers=("dense0",))]
    how = averaging(norm=0.05, noise=1e-9)
    fed, _ = wired(task=task, averaging=how)
    sent = {"base": base, "heads": heads, "local": LOCAL}
    got = fed.ask(cohort(), fit_closest, Seed(0), reduce=means, **sent)
    assert how.ledger.participations == dict.fromkeys(CLIENTS, 1)
    plain = wired(task=task)[0].ask(cohort(), fit_closest, Seed(0), **sent)
    choice = plain["choice"]
    starts = tree.take(tree.stack([first, second]), choice)
    updates = tree.map(lambda after, before: after.astype(np.float64) - before, plain["params"], starts)
    scale = np.minimum(1, 0.05 / np.linalg.norm(tree.flatten_rows(updates), axis=1))  # over both layers together
    assert (scale < 1).any()

    def total(layer, members):
        weight = scale * members
        return tree.map(lambda leaf: np.tensordot(weight, leaf, 1), updates[layer])

    shared = tree.map(lambda start, sums: start + sums / 10, first["dense0"], total("dense0", np.ones(10)))
    np.testing.assert_allclose(
        tree.flatten(tree.row(got.means(1)[0]["dense0"], 0)), tree.flatten(shared), rtol=0, atol=1e-6
    )
    for k, head in enumerate((first["dense1"], second["dense1"])):
        own = tree.map(lambda start, sums: start + sums / 5, head, total("dense1", choice == k))
        np.testing.assert_allclose(
            tree.flatten(tree.row(got.means(0)[0]["dense1"], k)), tree.flatten(own), rtol=0, atol=1e-6
        )


def test_shared_layers_also_have_one_start_if_clients_are_sent_the_models_of_their_clusters(wired):
    task = mlp(tiny_task().shape, 3, widths=(2,), normalize=Normalize(0.0, 255.0))
    models = [task.init(Seed(1)), task.init(Seed(2))]
    models[1]["dense0"] = models[0]["dense0"]
    means = [Mean("params", 2, GROUP, "uniform", layers=("dense1",)), Mean(weights="uniform", layers=("dense0",))]
    fed, _ = wired(task=task, averaging=averaging(norm=1e-6, noise=1e-9))
    start = PerClient(tree.stack(models), GROUP)
    got = fed.ask(cohort(), fit, Seed(0), reduce=means, start=start, local=LOCAL)
    # Updates of norm 1e-6: the means are the starts.
    np.testing.assert_allclose(
        tree.flatten(tree.row(got.means(1)[0], 0)), tree.flatten({"": models[0]["dense0"]}), atol=1e-5
    )
    np.testing.assert_allclose(
        tree.flatten(tree.row(got.means(0)[0], 1)), tree.flatten({"": models[1]["dense1"]}), atol=1e-5
    )


# ------------------------------------------------------------------------------------------------ what is counted


def test_the_denominator_is_fixed_for_the_sampled_cohort_and_the_number_asked_otherwise():
    sampling = Sampling("fixed", 6, 10)
    by = Mean(groups=2, by=GROUP)
    assert denominators(by, CLIENTS[:3], sampling).tolist() == [3, 3]
    assert denominators(by, CLIENTS[:3], None).tolist() == [2, 1]
    assert denominators(Mean(groups=2, by="choice"), CLIENTS[:3], None).tolist() == [1.5, 1.5]
    assert denominators(Mean(), CLIENTS[:3], None).tolist() == [3]


def test_means_of_different_layers_are_one_release_and_means_of_the_same_layer_are_several():
    assert releases([Mean(layers=("a",)), Mean(layers=("b",))]) == 1
    assert releases([Mean(layers=("a",)), Mean(layers=("a", "b"))]) == 2
    assert releases([Mean(), Mean(layers=("a",))]) == 2
    assert releases([Mean("params"), Mean("gradient")]) == 2


def test_every_asked_client_counts_even_if_its_reply_is_lost(wired, lose, model):
    how = averaging(noise=1.0)
    fed, _ = wired(touch=lose({1: ("4",)}), averaging=how)
    got = fed.ask(cohort(), fit, Seed(0), reduce=UNIFORM, start=model, local=LOCAL)
    assert "4" in got.lost
    assert how.ledger.participations == dict.fromkeys(CLIENTS, 1)


def test_a_mean_that_is_only_compared_gets_no_noise_and_is_listed_as_not_covered(wired, model):
    how = averaging(noise=1.0)
    fed, _ = wired(averaging=how)
    got = fed.ask(cohort(), fit, Seed(0), reduce=Mean(released=False), start=model, local=LOCAL)
    plain = wired()[0].ask(cohort(), fit, Seed(0), reduce=Mean(), start=model, local=LOCAL)
    assert tree.same(got.mean, plain.mean)
    assert how.ledger.participations == {}
    assert how.ledger.individual == {"fit"}


def test_individual_replies_are_noted_in_training_but_not_while_clients_are_placed(wired, model):
    how = averaging(noise=1.0)
    fed, _ = wired(averaging=how)
    fed.placing().ask(CLIENTS, fit, Seed(0), start=model, local=LOCAL)
    fed.ask(cohort(), fit, Seed(0), reduce=UNIFORM, start=model, local=LOCAL)
    assert how.ledger.individual == set()
    fed.ask(CLIENTS, fit, Seed(0), start=model, local=LOCAL)
    assert how.ledger.individual == {"fit"}


def test_only_clients_of_the_sampled_cohort_count_as_sampled():
    drawn = cohort(CLIENTS[:4], Sampling("fixed", 4, 10))
    assert drawn.of(CLIENTS[:2]).sampling == drawn.active().sampling == drawn.sampling
    assert drawn.of(CLIENTS[3:6]).sampling is None
    assert drawn.draw(CLIENTS[:4], 2, name="x").sampling is None
    assert drawn.draw(CLIENTS[:4], 2, name="x").of(CLIENTS[:1]).sampling is None
