"""Group means that the federation computes, against means of the individual replies computed by hand."""

from __future__ import annotations

import dataclasses
import itertools
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import tree
from coterie.aggregation import Aggregation, weighted_mean
from coterie.clients import LocalSGD, fit, gradient
from coterie.clients.closest import fit_closest
from coterie.data.federated import Index
from coterie.errors import SpecError
from coterie.federation import Cached, Mean, reduce, vectorized
from coterie.models import Normalize, mlp
from coterie.seeds import Seed
from coterie.testing import tiny_data, tiny_task

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.1)
BACKENDS = ("sequential", "vectorized")
GROUP = {str(client): client % 3 for client in range(10)}


@pytest.fixture(scope="session")
def uneven():
    """The tiny clients; client i keeps 3·i of its 32 training examples, so client 0 has none."""
    data = tiny_data()
    return data.rearranged(fit=Index.from_lists([data.fit.of(place)[: 3 * place] for place in range(10)]))


@pytest.fixture(scope="session")
def two_layers():
    """A network with the layers dense0 and dense1, and its model of seed 1."""
    task = mlp(tiny_task().shape, 3, widths=(2,), normalize=Normalize(0.0, 255.0))
    return task, task.init(Seed(1))


def by_hand(got, groups, many, weights):
    """(means, weights, distances) of individual replies: Σ a_i w_i / Σ a_i in float64, client by client.

    The weight of a client without examples is 0 for `samples` and `uniform`.
    """
    share = got.samples.astype(float) if weights == "samples" else (got.samples > 0).astype(float)
    flat = tree.flatten_rows(got["params"]).astype(float)
    total = np.array([share[groups == g].sum() for g in range(many)])
    means = np.zeros((many, flat.shape[1]))
    for g in range(many):
        if total[g]:
            means[g] = (share[groups == g, None] * flat[groups == g]).sum(axis=0) / total[g]
    means = means.astype(np.float32)
    return means, total, np.linalg.norm(flat - means[groups], axis=1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_with_weights_first_only_the_first_client_of_each_group_counts(wired, uneven, model, backend):
    # Client i is in group i mod 3. Client 0 has no examples, so client 3 is the first of group 0.
    fed, _ = wired(backend, data=uneven)
    got = fed.ask(fed.clients, fit, Seed(0), start=model, local=LOCAL)
    how = Mean(groups=4, by=GROUP, weights="first")
    summed = fed.ask(fed.clients, fit, Seed(0), start=model, local=LOCAL, reduce=how)
    assert summed.weight.tolist() == [1, 1, 1, 0]
    for group, first in ((0, "3"), (1, "1"), (2, "2")):
        assert tree.same(tree.row(summed.mean, group), got.by_client("params")[first])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("weights", ["samples", "uniform"])
@pytest.mark.parametrize("by", [None, GROUP], ids=["one", "groups"])
def test_a_mean_is_the_weighted_mean_of_the_replies(wired, uneven, model, backend, weights, by):
    fed, _ = wired(backend, data=uneven)
    got = fed.ask(fed.clients, fit, Seed(0), start=model, local=LOCAL)
    many = 1 if by is None else 4  # group 3 is empty
    how = Mean(groups=many, by=by, weights=weights, spread=True)
    summed = fed.ask(fed.clients, fit, Seed(0), start=model, local=LOCAL, reduce=how)
    groups = np.array([0 if by is None else by[client] for client in got.clients])
    means, total, distances = by_hand(got, groups, many, weights)
    assert summed.clients == got.clients
    assert "params" not in summed.answers
    assert np.array_equal(summed["loss"], got["loss"])
    np.testing.assert_allclose(tree.flatten_rows(summed.mean), means, rtol=1e-6, atol=1e-9)
    assert summed.weight.tolist() == total.tolist()
    np.testing.assert_allclose(summed.spread, distances, rtol=1e-5, atol=1e-7)


def test_an_empty_group_has_zeros_and_weight_0(wired, model):
    fed, _ = wired()
    got = fed.ask(("0", "1"), fit, Seed(0), start=model, local=LOCAL, reduce=Mean(groups=3, by={"0": 2, "1": 2}))
    mean, weight = got.means()
    assert weight.tolist() == [0.0, 0.0, 64.0]
    assert not tree.flatten_rows(mean)[:2].any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_answer_can_hold_the_group(wired, model, backend):
    fed, _ = wired(backend)
    # The models of clients 0 and 1, which belong to different true clusters.
    heads = fed.ask(("0", "1"), fit, Seed(0), start=model, local=dataclasses.replace(LOCAL, epochs=20))["params"]
    sent = {"base": {}, "heads": heads, "local": LOCAL}
    got = fed.ask(fed.clients, fit_closest, Seed(0), **sent)
    choice = got["choice"]
    assert set(choice.tolist()) == {0, 1}  # both groups are used
    how = Mean(groups=2, by="choice", weights="uniform", spread=True)
    summed = fed.ask(fed.clients, fit_closest, Seed(0), **sent, reduce=how)
    means, total, distances = by_hand(got, choice, 2, "uniform")
    np.testing.assert_allclose(tree.flatten_rows(summed.mean), means, rtol=1e-6, atol=1e-9)
    assert summed.weight.tolist() == total.tolist()
    np.testing.assert_allclose(summed.spread, distances, rtol=1e-5, atol=1e-7)
    assert np.array_equal(summed["choice"], choice)


def test_any_model_of_a_reply_can_be_averaged(wired, model):
    fed, _ = wired("vectorized")
    got = fed.ask(fed.clients, gradient, Seed(0), params=model)
    summed = fed.ask(fed.clients, gradient, Seed(0), params=model, reduce=Mean("gradient", weights="uniform"))
    expected = tree.flatten_rows(got["gradient"]).astype(float).mean(axis=0)
    np.testing.assert_allclose(tree.flatten_rows(summed.mean)[0], expected, rtol=1e-5, atol=1e-8)
    assert set(summed.answers) == {"loss"}


# ------------------------------------------------------------------------------------------------------- named layers

# Three clients with 1, 1 and 2 samples; the first is in group 0, the others are in group 1.
LAYERS = {"body": np.array([[1.0], [2.0], [6.0]]), "head": np.array([[10.0], [20.0], [60.0]])}
GROUPS = {"a": 0, "b": 1, "c": 1}


def averaged(rule, *means):
    """The `GroupMeans` of each mean over the three clients."""
    template = tree.map(lambda leaf: leaf[0], LAYERS)
    found = []
    for how in means:
        made = reduce.reduction(how, template, Aggregation(rule))
        made.add(("a", "b", "c"), {"params": LAYERS}, np.array([1, 1, 2]))
        found.append(made.result())
    return found


def test_a_mean_of_named_layers_holds_only_these_layers():
    body, head = averaged("mean", Mean(layers=("body",)), Mean(groups=2, by=GROUPS, layers=("head",), spread=True))
    assert {layer: leaf.tolist() for layer, leaf in body.mean.items()} == {"body": [[3.75]]}  # (1 + 2 + 2·6) / 4
    assert body.weight.tolist() == [4.0]
    assert set(head.mean) == {"head"}
    np.testing.assert_allclose(head.mean["head"], [[10.0], [140 / 3]])  # 10; (20 + 2·60) / 3
    assert head.weight.tolist() == [1.0, 3.0]
    # Distances are measured on the head alone: 0, 46.67 - 20, 60 - 46.67.
    np.testing.assert_allclose(head.spread, [0.0, 80 / 3, 40 / 3])


@pytest.mark.parametrize("rule", ["mean", "median"])
def test_distances_can_be_measured_to_models_computed_from_the_means(rule):
    # Heads 10 and, of 20 and 60 with equal weights, 40; the models are 5 and 35, and that of the empty group is 7.
    def reference(means, weights):
        assert weights.tolist() == [1.0, 2.0, 0.0]
        return {"head": np.where(weights > 0, means["head"][:, 0] - 5, 7)[:, None]}

    how = Mean(groups=3, by=GROUPS, weights="uniform", layers=("head",), spread=True, reference=reference)
    (head,) = averaged(rule, how)
    assert head.mean["head"].tolist() == [[10.0], [40.0], [0.0]]
    assert head.spread.tolist() == [5.0, 15.0, 25.0]


def test_a_client_without_samples_has_a_distance_to_the_reference():
    # Its group has no mean, but a model: the client's own, 8, was sent to it and came back; mixing moved it to 6.
    how = Mean(spread=True, reference=lambda means, weights: {"w": np.array([[6.0]])})
    made = reduce.reduction(how, {"w": np.zeros(1)}, Aggregation())
    made.add(("a",), {"params": {"w": np.array([[8.0]])}}, np.array([0]))
    assert made.result().spread.tolist() == [2.0]


def test_a_robust_mean_of_named_layers_holds_only_these_layers():
    body, head = averaged("median", Mean(layers=("body",)), Mean(groups=2, by=GROUPS, layers=("head",), spread=True))
    assert {layer: leaf.tolist() for layer, leaf in body.mean.items()} == {"body": [[2.0]]}  # of 1, 2, 6
    assert {layer: leaf.tolist() for layer, leaf in head.mean.items()} == {"head": [[10.0], [40.0]]}  # 10; of 20, 60
    assert head.spread.tolist() == [0.0, 20.0, 20.0]


def test_a_robust_rule_sees_only_the_named_layers():
    # Krum with f = 1 of 4 models keeps the model with the smallest squared distance to another, the first of equals.
    #   body alone:   b and d, (2 - 2.5)² = 0.25                keeps b, whose body is 2
    #   both layers:  a and c, (1 - 6)² + (0 - 1)² = 26         keeps a, whose body is 1
    bank = {"body": np.array([[1.0], [2.0], [6.0], [2.5]]), "head": np.array([[0.0], [50.0], [1.0], [99.0]])}
    template = tree.map(lambda leaf: leaf[0], bank)
    kept = {}
    for layers in (("body",), None):
        made = reduce.reduction(Mean(layers=layers), template, Aggregation("krum"))
        made.add(tuple("abcd"), {"params": bank}, np.ones(4, np.int64))
        kept[layers] = float(made.result().mean["body"][0, 0])
    assert kept == {("body",): 2.0, None: 1.0}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rule", ["mean", "trimmed-mean"])
@pytest.mark.parametrize("lost", [(), ("2", "5")], ids=["in order", "resent"])
def test_one_ask_averages_heads_per_group_and_the_body_over_all(wired, two_layers, backend, rule, lost):
    task, start = two_layers
    fed, wire = wired(backend, task=task, aggregation=Aggregation(rule))
    how = (Mean(groups=3, by=GROUP, layers=("dense1",), spread=True), Mean(weights="uniform", layers=("dense0",)))
    sent = {"start": Cached(start), "local": LOCAL}
    single = fed.ask(fed.clients, fit, Seed(0), **sent)
    for client in lost:  # these clients reply after the others
        wire.store.forget(client)
    got = fed.ask(fed.clients, fit, Seed(0), **sent, reduce=how)
    assert "params" not in got.answers
    (heads, weight), (body, total) = got.means(0), got.means(1)
    assert set(heads) == {"dense1"}
    assert set(body) == {"dense0"}
    assert weight.tolist() == [4 * 32, 3 * 32, 3 * 32]
    assert total.tolist() == [10.0]
    for group in range(3):
        members = [place for place, client in enumerate(single.clients) if GROUP[client] == group]
        expected = Aggregation(rule).of(
            tree.take({"dense1": single["params"]["dense1"]}, members), np.ones(len(members))
        )
        np.testing.assert_allclose(tree.flatten(tree.row(heads, group)), tree.flatten(expected), rtol=1e-6, atol=1e-9)
    expected = Aggregation(rule).of({"dense0": single["params"]["dense0"]}, np.ones(10))
    np.testing.assert_allclose(tree.flatten(tree.row(body, 0)), tree.flatten(expected), rtol=1e-6, atol=1e-9)
    assert got.spread.shape == (10,)
    assert got.reduced[1].spread is None


def test_named_layers_have_the_same_mean_on_both_backends(wired, two_layers):
    task, start = two_layers
    how = Mean(groups=3, by=GROUP, layers=("dense1",), spread=True)
    found = [
        fed.ask(fed.clients, fit, Seed(0), start=start, local=LOCAL, reduce=how)
        for fed in (wired(backend, task=task)[0] for backend in BACKENDS)
    ]
    one, other = (tree.flatten_rows(got.mean) for got in found)
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found[0].spread, found[1].spread, rtol=1e-4, atol=1e-7)


def test_all_layers_by_name_are_the_whole_model_to_the_bit(wired, two_layers):
    task, start = two_layers
    fed, _ = wired(task=task)
    whole, named = (
        fed.ask(fed.clients, fit, Seed(0), start=start, local=LOCAL, reduce=Mean(spread=True, layers=layers))
        for layers in (None, ("dense1", "dense0"))
    )
    assert tree.same(whole.mean, named.mean)
    assert np.array_equal(whole.spread, named.spread)


def test_an_unknown_layer_raises(wired, model):
    fed, _ = wired()
    with pytest.raises(SpecError, match=r"No layer 'dense1'\. Did you mean 'dense0'\? Known: dense0"):
        fed.ask(fed.clients, fit, Seed(0), start=model, local=LOCAL, reduce=Mean(layers=("dense1",)))


def test_the_batch_size_does_not_change_the_bytes_of_a_mean(model, monkeypatch):
    fed = vectorized(tiny_data(), tiny_task(), threads=1)
    how = Mean(groups=3, by=GROUP, spread=True)
    whole = fed.ask(fed.clients, fit, Seed(0), start=model, local=LOCAL, reduce=how)
    monkeypatch.setattr(sys.modules["coterie.federation.vectorized"], "BATCH_BYTES", 3 * 204)  # three clients per batch
    batches = fed.ask(fed.clients, fit, Seed(0), start=model, local=LOCAL, reduce=how)
    assert tree.same(whole.mean, batches.mean)
    assert np.array_equal(whole.spread, batches.spread)


def test_distances_are_left_out_if_the_models_take_too_much_memory(wired, model, monkeypatch):
    fed, _ = wired()
    how = Mean(spread=True)
    whole = fed.ask(fed.clients, fit, Seed(0), start=model, local=LOCAL, reduce=how)
    assert len(whole.spread) == 10
    for room, kept in ((10 * 204, True), (10 * 204 - 1, False)):  # a model has 204 bytes
        monkeypatch.setattr(reduce, "KEPT_BYTES", room)
        got = fed.ask(fed.clients, fit, Seed(0), start=model, local=LOCAL, reduce=how)
        assert (got.spread is not None) is kept
        assert tree.same(got.mean, whole.mean)
    unasked = fed.ask(
        fed.clients, fit, Seed(0), start=model, local=LOCAL, reduce=dataclasses.replace(how, spread=False)
    )
    assert unasked.spread is None


@given(
    weights=st.lists(st.integers(0, 5000), min_size=1, max_size=100).filter(any),
    seed=st.integers(0, 1000),
)
def test_a_reduction_equals_weighted_mean_to_the_bit(weights, seed):
    bank = {"w": Seed(seed).fold("w").generator().normal(size=(len(weights), 7)).astype(np.float32)}
    sums = reduce.Reduction(Mean(), {"w": np.zeros(7, np.float32)})
    for place, weight in enumerate(weights):
        sums.add((str(place),), {"params": tree.take(bank, [place])}, np.array([weight]))
    assert tree.same(tree.row(sums.result()[0], 0), weighted_mean(bank, weights))


def test_models_are_summed_in_blocks_of_32_clients():
    # 0.1 + 0.2 + 0.3 is 0.6000000000000001 and 0.1 + (0.2 + 0.3) is 0.6 in float64. Clients 31, 32 and 33 have these
    # values, all others 0: client 31 is in the first block, the others in the second.
    bank = {"w": np.zeros((34, 1))}
    bank["w"][31:, 0] = 0.1, 0.2, 0.3
    sums = reduce.Reduction(Mean(weights="uniform"), {"w": np.zeros(1)})
    sums.add(tuple(map(str, range(34))), {"params": bank}, np.ones(34))
    mean, weight, _ = sums.result()
    assert (mean["w"][0, 0], weight[0]) == (0.6 / 34, 34)
    assert weighted_mean(bank, np.ones(34))["w"][0] == 0.6 / 34


def test_the_block_of_a_client_does_not_depend_on_lost_replies():
    # Client 0 has not replied: client 31 is the 31st reply but still in the first block.
    sums = reduce.Reduction(Mean(weights="uniform"), {"w": np.zeros(1)})
    values = np.array([[0.1], [0.2], [0.3]])
    sums.add(("31", "32", "33"), {"params": {"w": values}}, np.ones(3), [31, 32, 33])
    assert sums.result().mean["w"][0, 0] == (0.1 + (0.2 + 0.3)) / 3


@given(
    cuts=st.lists(st.integers(0, 5), max_size=4),
    groups=st.lists(st.integers(0, 2), min_size=1, max_size=150),
    seed=st.integers(0, 1000),
)
def test_sums_of_whole_blocks_from_other_processes_give_the_bytes_of_one_reduction(cuts, groups, seed):
    # Blocks between two cuts are summed elsewhere in turn: here, there, here, ...
    n = len(groups)
    draw = Seed(seed).generator()
    template = {"a": np.zeros((2, 3), np.float32), "b": np.zeros((), np.float32)}
    bank = {"a": draw.normal(size=(n, 2, 3)).astype(np.float32), "b": draw.normal(size=n).astype(np.float32)}
    samples, clients = draw.integers(0, 50, n), tuple(f"{i:03}" for i in range(n))
    how = Mean(groups=3, by=dict(zip(clients, groups, strict=True)), spread=True)

    def add(sums, first, last):
        part = slice(first, last)
        sums.add(clients[part], {"params": tree.row(bank, part)}, samples[part], range(first, min(last, n)))

    whole, joined = reduce.Reduction(how, template), reduce.Reduction(how, template)
    add(whole, 0, n)
    edges = [0, *sorted({32 * cut for cut in cuts if 32 * cut < n} - {0}), n]
    for turn, (first, last) in enumerate(itertools.pairwise(edges)):
        if turn % 2:
            there = reduce.BlockReduction(how, template)
            add(there, first, last)
            joined.add_sums(there.sums())
        else:
            add(joined, first, last)
    for one, other in zip(whole.result(), joined.result(), strict=True):
        assert tree.same(one, other)
