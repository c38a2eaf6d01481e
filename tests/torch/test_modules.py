"""Properties of modules: parameters, statistics, random numbers, initial values; and invalid modules."""

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
    """A module with its own parameter, which it initializes after its layer."""

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
    """A parameter without reset_parameters."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.scale


class Counting(nn.Module):
    """Counts its calls in an integer buffer."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(2, 2)
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return self.dense(x)


class Named(nn.Module):
    """A layer with a reserved name."""

    def __init__(self):
        super().__init__()
        self.stats = nn.Linear(2, 2)

    def forward(self, x):
        return self.stats(x)


class Functional(nn.Module):
    """Dropout inside forward, not as a layer."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(2, 2)

    def forward(self, x):
        return nn.functional.dropout(self.dense(x), 0.5, self.training)


def task_of(module, *, shape=(2,), classes=2, convert=False, **options):
    return coterie.torch.task(module, nn.CrossEntropyLoss(), shape=shape, classes=classes, convert=convert, **options)


@pytest.mark.parametrize("convert", [True, False])
def test_an_initial_model_depends_only_on_the_seed(convert):
    torch.manual_seed(1)
    first = task_of(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)), convert=convert)
    second = task_of(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)), convert=convert)
    torch.manual_seed(2)
    one = first.init(Seed(5))
    torch.rand(3)
    assert tree.same(one, second.init(Seed(5)))
    assert not tree.same(one, second.init(Seed(6)))
    assert all(type(leaf) is np.ndarray and leaf.dtype == np.float32 for leaf in tree.leaves(one))


def test_creating_a_task_and_its_initial_models_does_not_change_pytorchs_generator():
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    state = torch.get_rng_state()
    task_of(net).init(Seed(0))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_given_start_is_the_module_itself_for_every_seed():
    net = nn.Sequential(nn.Linear(2, 2))
    task = task_of(net, start="given")
    assert tree.same(task.init(Seed(0)), task.init(Seed(1)))
    assert np.array_equal(task.init(Seed(0))["0"]["weight"], net[0].weight.detach().numpy())


def test_later_changes_of_the_module_do_not_affect_the_task():
    net = nn.Sequential(nn.Linear(2, 2))
    task = task_of(net, start="given")
    before = task.init(Seed(0))
    with torch.no_grad():
        net[0].weight.zero_()
    assert tree.same(task.init(Seed(0)), before)


def test_a_module_may_override_the_initial_values_of_its_layers():
    start = task_of(Own()).init(Seed(0))
    assert start["scale"].tolist() == [3]
    assert start["dense"]["bias"].tolist() == [0, 0]
    assert start["dense"]["weight"].any()


def test_parameters_have_the_names_of_the_module_and_layers_are_in_its_order():
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


def test_parameters_without_gradient_are_neither_sent_nor_drawn():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    for value in (*net[0].parameters(), *net[1].parameters()):
        value.requires_grad_(False)
    net[1].running_mean.fill_(5)  # pre-trained
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(2))
        net[0].bias.zero_()
    task = task_of(net, convert="auto")
    start = task.init(Seed(0))
    assert sorted(start) == ["1", "2"]
    assert start["1"]["stats"]["running_mean"].tolist() == [5, 5]
    # The frozen layers: x - 5 over sqrt(1 + 1e-5), which is 0 at x = 5; only the bias of the head remains.
    assert np.allclose(task.outputs(start, np.full((1, 2), 5.0)), start["2"]["bias"], atol=1e-6)


def test_use_of_random_numbers_is_detected():
    assert task_of(Functional()).random
    assert not task_of(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0))).random
    assert not task_of(nn.Sequential(nn.Linear(2, 2))).random


def test_tied_parameters_are_counted_once():
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    second.weight = first.weight
    assert tree.size(task_of(nn.Sequential(first, nn.ReLU(), second)).init(Seed(0))) == 4


@pytest.mark.parametrize(
    ("module", "options", "text"),
    [
        ("mlp", {}, "takes a torch.nn.Module, got str"),
        (nn.ReLU(), {}, "Module ReLU has no trainable parameters"),
        (nn.Sequential(nn.Linear(3, 2)), {}, r"Module Sequential failed with inputs of shape \(3, 2\): "),
        (nn.Sequential(nn.Linear(2, 5)), {}, r"must return 2 logits per input, shape \(3, 2\) in float32, got"),
        (nn.Sequential(nn.Linear(2, 2)), {"classes": None}, "must return one number per input"),
        (nn.LSTM(2, 2), {}, "got tuple"),
        (nn.Sequential(nn.Linear(2, 2)).double(), {}, r"0\.weight of module Sequential is torch\.float64"),
        (nn.Sequential(nn.LazyLinear(2)), {}, "has no shape yet; call the module once"),
        (Named(), {}, "the name 'stats' is reserved"),
        (Lost(), {}, "No layer initializes scale of module Lost: .* start='given'"),
        (Counting(), {}, "Training changes the integer buffer calls of module Counting: integers cannot be averaged"),
        (
            nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, momentum=None)),
            {},
            r"Training changes the integer buffer 1\.num_batches_tracked",
        ),
        (nn.Sequential(nn.Linear(2, 2)), {"convert": "yes"}, "convert must be one of 'auto', True, False, got 'yes'"),
        (nn.Sequential(nn.Linear(2, 2)), {"start": "warm"}, "start must be one of 'drawn', 'given', got 'warm'"),
        (nn.Sequential(nn.Linear(2, 2)), {"channels": "last"}, r"channels='last' is for images, .* got \(2,\)"),
    ],
)
def test_an_invalid_module_is_rejected(module, options, text):
    loss = nn.L1Loss() if options.get("classes", 2) is None else nn.CrossEntropyLoss()
    with pytest.raises(SpecError, match=text):
        coterie.torch.task(module, loss, **{"shape": (2,), "classes": 2, "convert": False, **options})


def test_a_module_without_reset_parameters_can_start_as_given():
    assert task_of(Lost(), start="given").init(Seed(3))["scale"].tolist() == [1]
