"""What is read off a module: parameters, statistics, draws, starts; and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie import tree
from coterie.errors import SpecError
from coterie.seeds import Seed

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'coterie[torch]'")
nn = torch.nn


class Own(nn.Module):
    """A parameter of its own beside a layer; says how it is drawn after that layer has been."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((1,), 7.0))
        self.dense = nn.Linear(2, 2)

    def reset_parameters(self):
        nn.init.constant_(self.scale, 3.0)
        nn.init.zeros_(self.dense.bias)

    def forward(self, x):
        return self.dense(x) * self.scale


class Lost(nn.Module):
    """A parameter that nobody knows how to draw."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.scale


class Counting(nn.Module):
    """Counts its calls in a buffer of whole numbers."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(2, 2)
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return self.dense(x)


class Named(nn.Module):
    """A layer with a name that is taken."""

    def __init__(self):
        super().__init__()
        self.stats = nn.Linear(2, 2)

    def forward(self, x):
        return self.stats(x)


class Functional(nn.Module):
    """Dropout that no list of layers shows."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(2, 2)

    def forward(self, x):
        return nn.functional.dropout(self.dense(x), 0.5, self.training)


def task_of(module, *, shape=(2,), classes=2, convert=False, **options):
    return coterie.torch.task(module, nn.CrossEntropyLoss(), shape=shape, classes=classes, convert=convert, **options)


@pytest.mark.parametrize("convert", [True, False])
def test_a_start_depends_on_its_seed_and_on_nothing_else(convert):
    torch.manual_seed(1)
    first = task_of(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)), convert=convert)
    second = task_of(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)), convert=convert)
    torch.manual_seed(2)
    one = first.init(Seed(5))
    torch.rand(3)
    assert tree.same(one, second.init(Seed(5)))
    assert not tree.same(one, second.init(Seed(6)))
    assert all(type(leaf) is np.ndarray and leaf.dtype == np.float32 for leaf in tree.leaves(one))


def test_neither_making_a_task_nor_drawing_a_start_touches_pytorchs_own_generator():
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    state = torch.get_rng_state()
    task_of(net).init(Seed(0))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_given_start_is_the_module_as_it_is_for_every_seed():
    net = nn.Sequential(nn.Linear(2, 2))
    task = task_of(net, start="given")
    assert tree.same(task.init(Seed(0)), task.init(Seed(1)))
    assert np.array_equal(task.init(Seed(0))["0"]["weight"], net[0].weight.detach().numpy())


def test_what_happens_to_the_module_later_does_not_reach_the_task():
    net = nn.Sequential(nn.Linear(2, 2))
    task = task_of(net, start="given")
    before = task.init(Seed(0))
    with torch.no_grad():
        net[0].weight.zero_()
    assert tree.same(task.init(Seed(0)), before)


def test_a_module_has_the_last_word_on_how_its_layers_are_drawn():
    start = task_of(Own()).init(Seed(0))
    assert start["scale"].tolist() == [3]
    assert start["dense"]["bias"].tolist() == [0, 0]
    assert start["dense"]["weight"].any()


def test_parameters_have_the_modules_names_and_layers_their_order():
    net = nn.Sequential()
    net.add_module("wide", nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    net.add_module("head", nn.Linear(3, 2, bias=False))
    task = task_of(net)
    # 2·3 + 3 and 3 + 3, with 3 + 3 statistics beside them; 3·2
    assert {path: leaf.shape for path, leaf in tree.paths(task.init(Seed(0)))} == {
        "head/weight": (2, 3),
        "wide/0/bias": (3,),
        "wide/0/weight": (3, 2),
        "wide/1/bias": (3,),
        "wide/1/stats/running_mean": (3,),
        "wide/1/stats/running_var": (3,),
        "wide/1/weight": (3,),
    }
    assert task.layers == ("wide", "head")
    assert task_of(net, convert=True).layers == ("wide", "head")
    assert task.name == "Sequential"


def test_parameters_that_need_no_gradient_are_neither_sent_nor_drawn():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    for value in (*net[0].parameters(), *net[1].parameters()):
        value.requires_grad_(False)
    net[1].running_mean.fill_(5)  # learned somewhere else
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(2))
        net[0].bias.zero_()
    task = task_of(net, convert="auto")
    start = task.init(Seed(0))
    assert sorted(start) == ["1", "2"]
    assert start["1"]["stats"]["running_mean"].tolist() == [5, 5]
    # The frozen layers: x - 5 over sqrt(1 + 1e-5), which is 0 at x = 5; the head's bias is left.
    assert np.allclose(task.outputs(start, np.full((1, 2), 5.0)), start["2"]["bias"], atol=1e-6)


def test_a_module_that_draws_is_found_out_whoever_draws():
    assert task_of(Functional()).random
    assert not task_of(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0))).random
    assert not task_of(nn.Sequential(nn.Linear(2, 2))).random


def test_tied_parameters_are_one():
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    second.weight = first.weight
    assert tree.size(task_of(nn.Sequential(first, nn.ReLU(), second)).init(Seed(0))) == 4


@pytest.mark.parametrize(
    ("module", "options", "text"),
    [
        ("mlp", {}, "takes a torch.nn.Module, got str"),
        (nn.ReLU(), {}, "Module ReLU has nothing to train"),
        (nn.Sequential(nn.Linear(3, 2)), {}, r"Module Sequential cannot take inputs of shape \(3, 2\): "),
        (nn.Sequential(nn.Linear(2, 5)), {}, r"a row of 2 logits for each of 3 inputs, shape \(3, 2\) in float32, got"),
        (nn.Sequential(nn.Linear(2, 2)), {"classes": None}, "must give a number for each of 3 inputs"),
        (nn.LSTM(2, 2), {}, "got tuple"),
        (nn.Sequential(nn.Linear(2, 2)).double(), {}, r"0\.weight of module Sequential is torch\.float64"),
        (nn.Sequential(nn.LazyLinear(2)), {}, "has no shape yet; call the module once"),
        (Named(), {}, "the name 'stats' is taken"),
        (Lost(), {}, "Nobody knows how to draw scale of module Lost: .* start='given'"),
        (Counting(), {}, "Training changes calls of module Counting: whole numbers have no mean"),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, momentum=None)), {}, r"Training changes 1\.num_batches_trac"),
        (nn.Sequential(nn.Linear(2, 2)), {"convert": "yes"}, "convert must be one of 'auto', True, False, got 'yes'"),
        (nn.Sequential(nn.Linear(2, 2)), {"start": "warm"}, "start must be one of 'drawn', 'given', got 'warm'"),
        (nn.Sequential(nn.Linear(2, 2)), {"channels": "last"}, r"channels='last' is for images, .* got \(2,\)"),
    ],
)
def test_what_cannot_be_a_task_is_refused_when_it_is_made(module, options, text):
    loss = nn.L1Loss() if options.get("classes", 2) is None else nn.CrossEntropyLoss()
    with pytest.raises(SpecError, match=text):
        coterie.torch.task(module, loss, **{"shape": (2,), "classes": 2, "convert": False, **options})


def test_a_module_without_reset_starts_as_given():
    assert task_of(Lost(), start="given").init(Seed(3))["scale"].tolist() == [1]
