"""Recurrent networks: numbers of parameters of the papers, agreement of backends, invalid input."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

from coterie import models, tree
from coterie.clients import LocalSGD, fit, score
from coterie.data.federated import Index
from coterie.data.partition import assemble
from coterie.errors import SpecError
from coterie.federation import sequential, vectorized
from coterie.models.cells import Recurrent
from coterie.models.layers import Dense, Dropout
from coterie.models.networks import layered
from coterie.models.recurrent import binary_logits
from coterie.seeds import Seed

TWEET, SENTENCE, WINDOW = (25, 300), (40, 300), (80,)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options", "count"),
    [
        ("lstm", TWEET, 2, {}, 243_861),
        ("bilstm", TWEET, 2, {}, 232_386),
        ("bigru", TWEET, 2, {}, 175_938),
        ("rnn", SENTENCE, 2, {}, 55_041),
        ("char-lstm", WINDOW, 80, {}, 819_920),  # PyTorch's two biases
        ("char-lstm", WINDOW, 80, {"biases": 1}, 817_872),  # TensorFlow's one
        ("char-lstm", WINDOW, 80, {"units": 100}, 133_520),
    ],
)
def test_the_number_of_parameters_is_that_of_the_paper(name, shape, classes, options, count):
    task = models.build(name, shape, classes, **options)
    assert tree.size(models.trainable(task.init(Seed(0)))) == count
    kind = np.uint8 if task.tokens else np.float32
    outputs = jax.eval_shape(task.outputs, task.init(Seed(0)), np.zeros((3, *shape), kind))
    assert outputs.shape == (3, classes)


def test_frozen_vectors_are_not_parameters():
    # 4·64 rows of K for 300 inputs in each direction, independent of the number of words
    params = models.build("bilstm", TWEET, 2).init(Seed(0))
    assert params["layer00"]["forward"]["kernel"].shape == (256, 300)
    assert max(leaf.size for leaf in tree.leaves(params)) == 256 * 300


def test_one_output_gives_two_logits():
    task = layered("one", (1,), 2, [Dense(1), binary_logits])
    params = {"layer00": {"kernel": np.ones((1, 1), np.float32), "bias": np.zeros(1, np.float32)}}
    x = np.array([[math.log(3)]] * 2)
    # σ(log 3) = 3/4: the losses are -log(1/4) for no and -log(3/4) for yes
    losses = task.losses(params, x, np.array([0, 1]))
    assert np.asarray(losses) == pytest.approx([math.log(4), math.log(4 / 3)], rel=1e-6)
    assert task.hits(task.outputs(params, x), np.array([0, 1])).tolist() == [0, 1]


def test_dropout_is_active_only_in_training():
    task = models.build("bigru", (3, 4), 2)
    params, x = task.init(Seed(0)), np.ones((2, 3, 4), np.float32)
    outputs = jax.jit(task.outputs)
    for key, equal in ((None, True), (Seed(1).key(), False)):
        first, second = np.asarray(outputs(params, x, key))
        assert np.array_equal(first, second) == equal
    assert [models.build(name, TWEET, 2).random for name in ("bigru", "bilstm", "lstm", "rnn")] == [
        True,
        True,
        False,
        False,
    ]


# --------------------------------------------------------------------------------------------------- backends

TOKENS = 6


def spoken(*, table=None):
    """Four clients with 6 to 8 rows of 5 ids each, for training and 4 for testing; the label is the first id mod 3."""
    draw = np.random.default_rng(0)
    sizes = [6, 7, 8, 8]
    x = draw.integers(0, TOKENS, (sum(sizes) + 16, 5)).astype(np.uint8)
    starts = np.arange(sum(sizes), len(x)).reshape(4, 4)
    return assemble(
        "spoken",
        (x, x[:, 0] % 3),
        Index.from_sizes(np.arange(sum(sizes)), np.array(sizes)),
        tested=Index.from_lists(list(starts)),
        classes=3,
        tokens=TOKENS,
        table=table,
    )


def of_ids():
    return models.build("char-lstm", (5,), 3, tokens=TOKENS, units=4)


def of_vectors():
    two_ways = Recurrent("gru", 3, biases=2, both_ways=True)
    return layered("vectors", (5, 2), 3, [two_ways, Dropout(0.3), Dense(3)])


VECTORS = np.random.default_rng(1).normal(size=(TOKENS, 2)).astype(np.float32)
LOCAL = LocalSGD(epochs=2, batch_size=4, learning_rate=0.1)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("data", "task"),
    [
        pytest.param(spoken(), of_ids(), id="ids"),
        pytest.param(spoken(table=VECTORS), of_vectors(), id="vectors"),
    ],
)
def test_backends_agree(data, task):
    start = task.init(Seed(0))
    one, other = sequential(data, task), vectorized(data, task)
    here, there = (fed.ask(data.clients, fit, Seed(1), start=start, local=LOCAL) for fed in (one, other))
    ours, theirs = (tree.flatten_rows(got["params"]) for got in (here, there))
    way = np.linalg.norm(ours - tree.flatten(start)[None])
    assert way > 0
    assert np.linalg.norm(ours - theirs) <= 1e-5 * way
    for part in ("test", "fit"):
        scores = [fed.scoring().ask(data.clients, score, Seed(1), part=part, params=start) for fed in (one, other)]
        np.testing.assert_allclose(scores[0]["loss"], scores[1]["loss"], rtol=1e-5)


@pytest.mark.exhaustive
def test_a_table_of_vectors_is_never_sent():
    task = of_vectors()
    traffic = []
    for rows in (TOKENS, 1000):
        table = np.zeros((rows, 2), np.float32)
        table[:TOKENS] = VECTORS
        data = assemble("words", (spoken().x, spoken().y), spoken().fit, tested=spoken().test, tokens=rows, table=table)
        fed = vectorized(data, task)
        fed.ask(data.clients, fit, Seed(1), start=task.init(Seed(0)), local=LOCAL)
        traffic.append((fed.traffic.total("down"), fed.traffic.total("up")))
    assert traffic[0] == traffic[1]


def test_bytes_do_not_depend_on_the_number_of_threads():
    data, task = spoken(), of_ids()
    sent = {"start": task.init(Seed(0)), "local": LOCAL}
    one, two = (vectorized(data, task, threads=n).ask(data.clients, fit, Seed(1), **sent)["params"] for n in (1, 2))
    assert tree.same(one, two)


@pytest.mark.slow
def test_a_cycle_of_characters_is_learned():
    # After 0 comes 1, after 1 comes 2, after 2 comes 0: the last character determines the next; guessing is right in
    # 1/3.
    x = (np.arange(8)[None] + np.arange(60)[:, None]) % 3
    data = assemble("cycle", (x.astype(np.uint8), (x[:, -1] + 1) % 3), Index.from_lists([np.arange(60)]), tokens=3)
    task = models.build("char-lstm", (8,), 3, tokens=3, units=8)
    fed = vectorized(data, task)
    local = LocalSGD(epochs=60, batch_size=10, learning_rate=0.8)
    trained = fed.ask(data.clients, fit, Seed(0), start=task.init(Seed(0)), local=local)["params"]
    got = fed.scoring().ask(data.clients, score, Seed(0), part="test", params=tree.row(trained, 0))
    assert got["correct"].tolist() == [6]  # a tenth of 60


# ------------------------------------------------------------------------------------------------ invalid input


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options", "text"),
    [
        ("lstm", (25,), 2, {}, r"lstm takes sequences of vectors, \(time, features\), .* the data have \(25,\)"),
        ("lstm", TWEET, 3, {}, "lstm is a binary classifier, the data have 3 classes; use bilstm or bigru"),
        ("rnn", TWEET, None, {}, "rnn is a classifier, but the data have regression targets"),
        ("bigru", TWEET, None, {}, "bigru is a classifier, but the data have regression targets"),
        ("char-lstm", TWEET, 80, {}, r"char-lstm takes sequences of character ids, \(time,\); the data have"),
        ("char-lstm", WINDOW, 80, {"units": 0}, "char-lstm.units must be a whole number from 1 to 1000000, got 0"),
        ("char-lstm", WINDOW, 80, {"biases": 3}, "char-lstm.biases must be 1 or 2, got 3"),
        (
            "char-lstm",
            WINDOW,
            80,
            {"tokens": True},
            "char-lstm.tokens must be a whole number from 1 to 1000000",
        ),
        (
            "char-lstm",
            WINDOW,
            80,
            {"normalize": abs},
            "char-lstm.normalize must be none, because its inputs are token ids",
        ),
    ],
)
def test_invalid_input_is_rejected(name, shape, classes, options, text):
    with pytest.raises(SpecError, match=text):
        models.build(name, shape, classes, **options)


def test_a_model_for_numbers_rejects_ids_and_a_model_for_ids_rejects_numbers():
    with pytest.raises(SpecError, match="Model mclr takes numbers, but the inputs are ids of 6 tokens; choose"):
        vectorized(spoken(), models.mclr((5,), 3))
    task = models.build("char-lstm", (5,), 3, tokens=6, units=2)
    with pytest.raises(SpecError, match="Model char-lstm takes integer token ids, but the inputs are float32"):
        task.check(np.zeros((2, 5), np.float32), np.zeros(2, int))
    with pytest.raises(SpecError, match="has the tokens 0 to 5, the data have ids from 0 to 6; give it more tokens"):
        task.check(np.array([[0, 1, 2, 3, 6]]), np.zeros(1, int))
