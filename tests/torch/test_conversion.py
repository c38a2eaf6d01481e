"""Converted modules: the same outputs, the same rounds, and parameters back to PyTorch."""

from __future__ import annotations

import copy

import jax
import numpy as np
import pytest

import coterie
from coterie import tree
from coterie.clients import LocalSGD, fit
from coterie.errors import SpecError
from coterie.federation import Mean, Sequential, Server, Vectorized
from coterie.seeds import Seed

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'coterie[torch]'")
nn = torch.nn
# PyTorch warns that such kernels are slower.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")

IMAGE = (2, 9, 9)
NETS = {
    "dense": lambda: nn.Sequential(nn.Flatten(), nn.Linear(162, 8), nn.Tanh(), nn.Linear(8, 3, bias=False)),
    # 9 → 9 → 4 (the ninth row is dropped) → 2, so that the flattened image has 2·2 places of 6 channels.
    "convolutions": lambda: nn.Sequential(
        nn.Sequential(nn.Conv2d(2, 4, 4, padding="same"), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False), nn.GroupNorm(3, 6)),
        nn.Sequential(nn.Flatten(), nn.Sigmoid(), nn.Identity(), nn.Linear(24, 5), nn.ReLU(), nn.Linear(5, 3)),
    ),
    # 9 → 7 → 3 places per side
    "batch norms": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4, momentum=0.3), nn.ReLU(), nn.MaxPool2d((2, 2)), nn.Flatten(),
        nn.Linear(36, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3),
    ),
}  # fmt: skip


def images(n=23):
    draw = np.random.default_rng(0)
    return draw.normal(size=(n, *IMAGE)).astype(np.float32), draw.integers(0, 3, n)


def both(net, shape=IMAGE, **options):
    """The converted task, and the task that PyTorch runs."""
    return [
        coterie.torch.task(net, nn.CrossEntropyLoss(), shape=shape, classes=3, convert=convert, **options)
        for convert in (True, False)
    ]


def moved(net, params, start):
    """An update with PyTorch's names, including statistics, as one vector."""
    made = [coterie.torch.load(copy.deepcopy(net), each).state_dict() for each in (params, start)]
    names = [name for name in made[0] if "num_batches" not in name]
    return torch.cat([(made[0][name] - made[1][name]).flatten() for name in names]).numpy()


@pytest.mark.parametrize("name", NETS)
def test_outputs_equal_those_of_the_module(name):
    net = NETS[name]()
    layers, called = both(net)
    x, _ = images()
    params = layers.init(Seed(1))
    coterie.torch.load(net, params).eval()
    wanted = net(torch.from_numpy(x)).detach().numpy()
    assert np.abs(wanted).max() > 0.1
    assert np.allclose(layers.outputs(params, x), wanted, atol=1e-5)  # sums of up to 162 terms below 1, in float32
    assert np.allclose(called.outputs(called.init(Seed(1)), x), wanted, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_a_round_gives_the_same_model_as_pytorch(name):
    net = NETS[name]()
    x, y = images(60)
    data = coterie.data.from_arrays({str(i): (x[i::4], y[i::4]) for i in range(4)}, test={}, classes=3)
    updates = []
    for task, federation in zip(both(net), (Vectorized, Sequential), strict=True):
        start = task.init(Seed(2))
        server = Server(federation(data, task))
        local = LocalSGD(epochs=2, batch_size=5, learning_rate=0.1)
        got = server.ask(server.clients, fit, Seed(1), start=start, local=local, reduce=Mean())
        updates.append(moved(net, tree.row(got.means()[0], 0), start))
    assert np.linalg.norm(updates[1]) > 0.01
    assert np.linalg.norm(updates[0] - updates[1]) <= 1e-4 * np.linalg.norm(updates[1])


def test_images_with_channels_last_give_the_same_outputs():
    net = NETS["convolutions"]()
    x, _ = images()
    first, last = both(net), both(net, (9, 9, 2), channels="last")
    for one, other in zip(first, last, strict=True):
        params = one.init(Seed(0))
        assert np.array_equal(one.outputs(params, x), other.outputs(params, x.transpose(0, 2, 3, 1)))
    flat = both(NETS["dense"](), (9, 9, 2), channels="last")
    outputs = [task.outputs(task.init(Seed(0)), x.transpose(0, 2, 3, 1)) for task in flat]
    assert np.allclose(*outputs, atol=1e-6)


def test_an_image_without_a_channel_axis_gets_one():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    x = np.random.default_rng(0).normal(size=(5, 4, 4)).astype(np.float32)
    layers, called = both(net, (4, 4), channels="last")
    wanted = coterie.torch.load(net, layers.init(Seed(0)))(torch.from_numpy(x[:, None])).detach()
    assert np.allclose(layers.outputs(layers.init(Seed(0)), x), wanted, atol=1e-6)
    assert np.allclose(called.outputs(called.init(Seed(0)), x), wanted, atol=1e-6)


def test_kernels_are_transposed_and_columns_follow_the_flattened_image():
    net = nn.Sequential(nn.Conv2d(3, 2, 1, bias=False), nn.Flatten(), nn.Linear(4, 1, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(torch.arange(6.0).reshape(2, 3, 1, 1))
        net[2].weight.copy_(torch.tensor([[10.0, 11, 20, 21]]))  # places 0, 1 of channel 1, then those of channel 2
    task = coterie.torch.task(net, nn.MSELoss(), shape=(3, 1, 2), classes=None, start="given")
    params = task.init(Seed(0))
    assert params["0"]["kernel"].tolist() == [[[[0, 1, 2]]], [[[3, 4, 5]]]]
    assert params["2"]["kernel"].tolist() == [[10, 20, 11, 21]]  # both channels of place 0, then of place 1
    blank = nn.Sequential(nn.Conv2d(3, 2, 1, bias=False), nn.Flatten(), nn.Linear(4, 1, bias=False))
    assert torch.equal(coterie.torch.load(blank, params)[2].weight, net[2].weight)


def test_the_derivative_of_relu_at_zero_is_that_of_pytorch():
    net = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))
    task = coterie.torch.task(net, nn.MSELoss(), shape=(1,), classes=None, convert=True)
    params = {
        "0": {"kernel": np.ones((1, 1), np.float32), "bias": np.zeros(1, np.float32)},
        "2": {"kernel": np.ones((1, 1), np.float32), "bias": np.zeros(1, np.float32)},
    }
    black, one = np.zeros((1, 1), np.float32), np.ones(1, np.float32)
    grads = jax.grad(lambda at: task.losses(at, black, one).sum())(params)
    # (0 - 1)² has the derivative -2 in the last bias, and 0 through the ReLU at 0.
    assert grads["2"]["bias"].tolist() == [-2]
    assert grads["0"]["bias"].tolist() == [0]


def test_dropout_is_active_only_in_training():
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(50, 3), nn.Dropout(0.5))
    task = coterie.torch.task(net, nn.CrossEntropyLoss(), shape=(50,), classes=3, convert=True)
    params, x, weight = task.init(Seed(0)), np.ones((4, 50), np.float32), np.ones(4, np.float32)
    assert task.random
    plain = np.asarray(task.outputs(params, x))
    assert np.allclose(plain, x @ params["1"]["kernel"].T + params["1"]["bias"], atol=1e-5)
    one, again, other = (np.asarray(task.training_outputs(params, x, jax.random.key(n), weight)[0]) for n in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_a_single_layer_is_converted():
    net = nn.Linear(2, 3)
    layers, called = both(net, (2,))
    x = np.array([[1.0, 2.0]], np.float32)
    wanted = coterie.torch.load(net, layers.init(Seed(0)))(torch.from_numpy(x)).detach()
    assert np.allclose(layers.outputs(layers.init(Seed(0)), x), wanted, atol=1e-6)
    assert (layers.layers, called.layers) == (("layer",), ("weight", "bias"))


class Bent(nn.Sequential):
    """A subclass of Sequential with its own forward."""

    def forward(self, x):
        return -super().forward(x)


def hooked():
    net = nn.Sequential(nn.Linear(2, 3))
    net[0].register_forward_hook(lambda *_: None)
    return net


def frozen():
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3))
    net[0].weight.requires_grad_(False)
    return net


TWICE = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("module", "shape", "reason"),
    [
        (nn.Sequential(nn.Linear(2, 3), nn.Softplus()), (2,), "layer '1' is Softplus"),
        (nn.Sequential(nn.Sequential(nn.Linear(2, 3), nn.GELU())), (2,), "layer '0.1' is GELU"),
        (Bent(nn.Linear(2, 3)), (2,), "it is Bent"),
        (hooked(), (2,), "layer '0' is Linear with hooks"),
        (frozen(), (2,), "layer '0' is Linear with parameters that are not trained"),
        (nn.Sequential(TWICE, TWICE, nn.Linear(2, 3)), (2,), "layer '1' is Linear used twice"),
        (nn.Sequential(nn.Linear(2, 3), nn.GroupNorm(1, 3)), (2,), "layer '1' is GroupNorm on vectors"),
        (nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, eps=1e-3)), (2,), "layer '1' is BatchNorm1d with eps=0.001"),
        (nn.Sequential(nn.Linear(3, 1), nn.Flatten()), (3, 3), "its first layer takes vectors, its inputs have 2 axes"),
        (
            nn.Sequential(nn.Conv2d(1, 1, (1, 2)), nn.Flatten(), nn.Linear(2, 3)),
            (1, 2, 2),
            "layer '0' is Conv2d that is not square: (1, 2)",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 1, 2, dilation=2), nn.Flatten(), nn.Linear(1, 3)),
            (1, 3, 3),
            "layer '0' is Conv2d with dilation=(2, 2)",
        ),
        (
            nn.Sequential(nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(1, 3)),
            (1, 2, 2),
            "layer '0' is MaxPool2d with stride=1",
        ),
        (
            nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1, 3)),
            (1, 2, 2),
            "layer '1' is Flatten without a layer that sets the channels before it",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten(), nn.BatchNorm1d(8), nn.Linear(8, 3)),
            (1, 2, 2),
            "layer '2' is BatchNorm1d on images",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 2, 1), nn.Linear(2, 2), nn.Flatten(), nn.Linear(8, 3)),
            (1, 2, 2),
            "layer '1' is Linear on images",
        ),
    ],
)
def test_a_module_that_cannot_be_converted_raises_the_reason_or_runs_in_pytorch(module, shape, reason):
    make = {"shape": shape, "classes": 3}
    with pytest.raises(SpecError) as caught:
        coterie.torch.task(module, nn.CrossEntropyLoss(), convert=True, **make)
    assert f"cannot be converted: {reason}. With convert='auto' PyTorch runs it" in str(caught.value)
    task = coterie.torch.task(module, nn.CrossEntropyLoss(), start="given", **make)
    x = np.random.default_rng(0).normal(size=(4, *shape)).astype(np.float32)
    wanted = module.eval()(torch.from_numpy(x)).detach()
    assert np.allclose(task.outputs(task.init(Seed(0)), x), wanted, atol=1e-6)
