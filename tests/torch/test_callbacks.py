"""Modules that PyTorch runs inside the compiled loop: outputs, gradients, statistics, random numbers, threads."""

from __future__ import annotations

import copy
import threading

import jax
import numpy as np
import pytest

import coterie
from coterie import tree
from coterie.clients import LocalSGD, fit
from coterie.clients.local_training import plan
from coterie.errors import ClientFailed
from coterie.federation import Sequential, Server, Vectorized
from coterie.seeds import Seed

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'coterie[torch]'")
nn = torch.nn


class Net(nn.Module):
    """A skip connection, which cannot be converted, with batch normalization and an unused layer."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.again = nn.Conv2d(4, 4, 3, padding=1)
        self.spare = nn.Linear(2, 2)
        self.head = nn.Linear(4 * 6 * 6, 3)
        self.dropout = dropout

    def forward(self, x):
        h = torch.relu_(self.norm(self.conv(x)))
        h = nn.functional.dropout(h + self.again(h), self.dropout, self.training)
        return self.head(h.flatten(1))


def clients():
    draw = np.random.default_rng(0)
    # With 11, 9 and 13 examples in batches of 4, some batches are smaller.
    return coterie.data.from_arrays(
        {
            name: (draw.normal(size=(n, 2, 6, 6)).astype(np.float32), draw.integers(0, 3, n))
            for name, n in (("a", 11), ("b", 9), ("c", 13))
        },
        test={},
        classes=3,
    )


def task_of(module, **options):
    return coterie.torch.task(module, nn.CrossEntropyLoss(), shape=(2, 6, 6), classes=3, **options)


# Shared by the tests, to compile less.
PLAIN, DROPPING = task_of(Net()), task_of(Net(0.4))


def trained(task, federation=Sequential, **local):
    server = Server(federation(clients(), task))
    return server.ask(server.clients, fit, Seed(1), start=task.init(Seed(3)), local=LocalSGD(batch_size=4, **local))


def by_hand(client, local):
    """The same training as a plain PyTorch loop."""
    net = coterie.torch.load(Net(), PLAIN.init(Seed(3)))
    start = {name: value.detach().clone() for name, value in net.named_parameters()}
    optimizer = torch.optim.SGD(net.parameters(), local.learning_rate, local.momentum, weight_decay=local.weight_decay)
    x, y = (torch.from_numpy(array) for array in clients().examples(client, "fit"))
    for row in plan(len(y), Seed(1).fold("batches", client), 1.0, local=local)["local"].index:
        chosen = row[row >= 0]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[chosen]), y[chosen].long())
        pull = sum(((value - start[name]) ** 2).sum() for name, value in net.named_parameters())
        (loss + local.mu / 2 * pull).backward()
        optimizer.step()
    return net


@pytest.mark.slow
@pytest.mark.parametrize("local", [{}, {"momentum": 0.9, "mu": 0.1}])
def test_training_equals_a_plain_pytorch_loop(local):
    got = trained(PLAIN, epochs=2, learning_rate=0.1, **local)
    start = coterie.torch.load(Net(), PLAIN.init(Seed(3))).state_dict()
    for place, client in enumerate(got.clients):
        wanted = by_hand(client, LocalSGD(batch_size=4, epochs=2, learning_rate=0.1, **local)).state_dict()
        found = coterie.torch.load(Net(), got["params"], row=place).state_dict()
        names = [name for name in found if "num_batches" not in name]
        far = sum(float((found[name] - wanted[name]).square().sum()) for name in names)
        moved = sum(float((wanted[name] - start[name]).square().sum()) for name in names)
        assert moved > 0
        assert far <= 1e-5**2 * moved  # statistics included


def test_an_unused_layer_does_not_change():
    spare = PLAIN.init(Seed(3))["spare"]
    got = trained(PLAIN)["params"]["spare"]
    assert all(tree.same(tree.row(got, row), spare) for row in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("task", [PLAIN, DROPPING], ids=["plain", "dropout"])
def test_the_bytes_are_the_same_in_both_backends_and_with_any_number_of_threads(task):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        wanted = trained(task)["params"]
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        for threads in (1, 3):
            found = trained(task, lambda data, task, n=threads: Vectorized(data, task, threads=n))
            assert tree.same(found["params"], wanted)
    finally:
        torch.set_num_threads(before)


def test_dropout_depends_on_the_seed_and_is_active_only_in_training():
    assert (DROPPING.random, PLAIN.random) == (True, False)
    state = torch.get_rng_state()
    first = trained(DROPPING)["params"]
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    assert tree.same(trained(DROPPING)["params"], first)
    assert not tree.same(trained(PLAIN)["params"], first)
    x = clients().x[:5]
    outputs = (task.outputs(task.init(Seed(0)), x) for task in (DROPPING, PLAIN))
    assert np.array_equal(*outputs)


def line(**options):
    """Batch normalization of one number."""
    return coterie.torch.task(
        nn.Sequential(nn.BatchNorm1d(1, momentum=0.5)), nn.MSELoss(), shape=(1,), classes=None, convert=False, **options
    )


def test_the_module_sees_no_padding():
    task = line()
    x, weight = np.array([[1.0], [100.0], [3.0], [100.0]], np.float32), np.array([1.0, 0, 1, 0], np.float32)
    outputs, stats = task.training_outputs(task.init(Seed(0)), x, None, weight)
    # Of 1 and 3 the mean is 2 and the variance 1: outputs ∓1, up to the 1e-5 in the root. Running: half of 0 and 2;
    # half of 1 and 2, with the unbiased variance.
    assert np.asarray(outputs) == pytest.approx([-1, 0, 1, 0], abs=1e-5)
    assert np.asarray(stats["0"]["stats"]["running_mean"]).tolist() == [1]
    assert np.asarray(stats["0"]["stats"]["running_var"]).tolist() == [1.5]


def test_a_row_of_only_padding_changes_nothing():
    task, weight = line(), np.zeros(2, np.float32)
    start = task.init(Seed(0))

    def summed(params):
        outputs, stats = task.training_outputs(params, np.ones((2, 1), np.float32), None, weight)
        return outputs.sum(), stats

    (total, stats), grads = jax.jit(jax.value_and_grad(summed, has_aux=True))(start)
    assert total == 0
    assert tree.same(tree.host(stats["0"]["stats"]), start["0"]["stats"])
    assert not any(leaf.any() for leaf in tree.leaves(grads))


def test_a_module_may_change_its_inputs_in_place():
    task = coterie.torch.task(
        nn.Sequential(nn.ReLU(inplace=True), nn.Linear(1, 1)), nn.MSELoss(), shape=(1,), classes=None, convert=False
    )
    params = {"1": {"weight": np.ones((1, 1), np.float32), "bias": np.zeros(1, np.float32)}}
    # relu(-3) + -3, computed after it
    both = jax.jit(lambda x: task.outputs(params, x) + x[:, 0])
    assert np.asarray(both(np.array([[-3.0]], np.float32))).tolist() == [-3]


class Picky(nn.Linear):
    """Fails on a batch of two examples."""

    def __init__(self, fault=None):
        super().__init__(1, 1)
        self.fault = fault or ValueError("two is not a number of examples")

    def forward(self, x):
        if len(x) == 2:
            raise self.fault
        return super().forward(x)


def numbers(**sizes):
    """Clients with these numbers of examples of one feature."""
    given = {name: (np.arange(n, dtype=np.float32)[:, None], np.ones(n, np.float32)) for name, n in sizes.items()}
    return coterie.data.from_arrays(given, test={}, classes=None)


@pytest.mark.parametrize("federation", [Sequential, Vectorized])
def test_an_exception_in_a_module_fails_the_client_and_is_the_cause_of_the_error(federation):
    fault = ValueError("two is not a number of examples")
    task = coterie.torch.task(Picky(fault), nn.MSELoss(), shape=(1,), classes=None)
    server, start = Server(federation(numbers(a=3, b=5), task)), task.init(Seed(0))
    server.ask(["a"], fit, Seed(0), start=start, local=LocalSGD(batch_size=3))
    with pytest.raises(ClientFailed) as caught:
        server.ask(["a", "b"], fit, Seed(0), start=start, local=LocalSGD(batch_size=3))  # the last batch of 5 has two
    assert str(caught.value) == "Model Picky failed in 'fit' with ValueError: two is not a number of examples"
    assert str(caught.value.__cause__) == str(fault)
    assert task.fault() is None  # reported once
    server.ask(["a"], fit, Seed(0), start=start, local=LocalSGD(batch_size=3))


def test_an_exception_in_a_loss_is_reported():
    def loss(outputs, targets):
        if bool((targets < 0).any()):
            raise ArithmeticError("no root of a negative number")
        return (outputs - targets).square()

    task = coterie.torch.task(nn.Linear(1, 1), loss, shape=(1,), classes=None)
    data = coterie.data.from_arrays({"a": (np.ones((2, 1), np.float32), -np.ones(2, np.float32))}, test={})
    server = Server(Sequential(data, task))
    with pytest.raises(ClientFailed, match="Model Linear failed in 'fit' with ArithmeticError: no root of a negative"):
        server.ask(["a"], fit, Seed(0), start=task.init(Seed(0)), local=LocalSGD(batch_size=2))


def test_a_keyboard_interrupt_in_a_module_is_raised_as_such():
    task = coterie.torch.task(Picky(KeyboardInterrupt()), nn.MSELoss(), shape=(1,), classes=None)
    server = Server(Sequential(numbers(a=2), task))
    with pytest.raises(KeyboardInterrupt):
        server.ask(["a"], fit, Seed(0), start=task.init(Seed(0)), local=LocalSGD(batch_size=2))


def test_an_exception_outside_of_a_federation_keeps_its_text():
    task = coterie.torch.task(Picky(), nn.MSELoss(), shape=(1,), classes=None)
    with pytest.raises(Exception, match="two is not a number of examples"):
        task.outputs(task.init(Seed(0)), np.zeros((2, 1), np.float32))


def test_batch_normalization_of_one_example_equals_that_of_coteries_own_layer():
    # One number 4: its mean is 4, its variance 0, so that the output is the shift. Running, with a momentum of ½: half
    # of 0 and 4; half of 1 and 0. The gradient: 1 for the shift, 0 for the scale, whose factor is 4 - 4.
    results = []
    for convert in (True, False):
        task = coterie.torch.task(
            nn.Sequential(nn.BatchNorm1d(1, momentum=0.5)), nn.MSELoss(), shape=(1,), classes=None, convert=convert
        )
        start = tree.map(lambda leaf: leaf + np.float32(0), task.init(Seed(0)))
        start["0"]["bias" if not convert else "shift"] = np.array([7.0], np.float32)

        def summed(params, task=task):
            x, weight = np.array([[9.0], [4.0]], np.float32), np.array([0.0, 1.0], np.float32)
            outputs, stats = task.training_outputs(params, x, None, weight)
            return (outputs * weight).sum(), stats

        results.append(jax.jit(jax.value_and_grad(summed, has_aux=True))(start))
    for (total, stats), grads in results:
        assert float(total) == 7
        assert sorted(float(leaf[0]) for leaf in tree.leaves(stats)) == [0.5, 2.0]
        assert sorted(float(leaf[0]) for _, leaf in tree.paths(grads) if "stats" not in _) == [0.0, 1.0]


def test_a_last_batch_of_one_example_trains_like_the_converted_module():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    draw = np.random.default_rng(0)
    examples = {"a": (draw.normal(size=(5, 3)).astype(np.float32), draw.integers(0, 2, 5))}
    data = coterie.data.from_arrays(examples, test={}, classes=2)
    found = []
    for convert in (True, False):
        task = coterie.torch.task(
            net, nn.CrossEntropyLoss(), shape=(3,), classes=2, convert=convert, start="given", name=f"{convert}"
        )
        server = Server(Sequential(data, task))
        local = LocalSGD(epochs=3, batch_size=4, learning_rate=0.1)  # the last batch of 5 has one
        got = server.ask(["a"], fit, Seed(0), start=task.init(Seed(0)), local=local)["params"]
        found.append(coterie.torch.load(copy.deepcopy(net), got, row=0).state_dict())
    for name, value in found[0].items():
        assert torch.allclose(value, found[1][name], atol=1e-6), name


def test_token_ids_are_passed_as_integers():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.vectors = nn.Embedding(9, 4)
            self.cells = nn.GRU(4, 5, batch_first=True)
            self.head = nn.Linear(5, 3)

        def forward(self, x):
            return self.head(self.cells(self.vectors(x))[0][:, -1])

    task = coterie.torch.task(Words(), nn.CrossEntropyLoss(), shape=(7,), classes=3, tokens=9)
    params = task.init(Seed(0))
    x = np.random.default_rng(0).integers(0, 9, (5, 7))
    net = coterie.torch.load(Words(), params).eval()
    with torch.no_grad():
        assert np.allclose(task.outputs(params, x), net(torch.from_numpy(x)), atol=1e-6)


def test_many_parallel_loops_do_not_deadlock():
    # Arrays above 100 KB and more loops than XLA has threads: with `jax.pure_callback` they deadlock.
    task = coterie.torch.task(
        nn.Sequential(nn.Linear(64, 800), nn.Sigmoid(), nn.Linear(800, 1)),
        nn.MSELoss(),
        shape=(64,),
        classes=None,
        convert=False,
    )
    params = task.init(Seed(0))
    x = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)

    @jax.jit
    def descend(params):
        grad = jax.grad(lambda at: task.losses(at, x, np.zeros(8, np.float32)).sum())
        return jax.lax.fori_loop(0, 10, lambda _, at: tree.map(lambda w, g: w - 1e-3 * g, at, grad(at)), params)

    wanted = tree.host(descend(params))
    found = {}
    loops = [
        threading.Thread(target=lambda n=n: found.update({n: tree.host(descend(params))}), daemon=True)
        for n in range(8)
    ]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join(timeout=60)
    assert len(found) == 8
    assert all(tree.same(one, wanted) for one in found.values())
