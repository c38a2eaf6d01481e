"""Complete runs with PyTorch modules, and loading of trained parameters."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie import tree
from coterie.errors import SpecError
from coterie.seeds import Seed

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'coterie[torch]'")
nn = torch.nn


def net():
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2))


def two_clusters():
    """Six clients in two true clusters: the left half of an image is bright for one label, which differs by cluster."""
    draw = np.random.default_rng(0)
    arrays = {}
    for client in range(6):
        y = draw.integers(0, 2, 14)
        x = draw.normal(size=(14, 1, 4, 4)).astype(np.float32)
        x[np.arange(14), :, :, :2] += 3.0 * (y == client % 2)[:, None, None, None]
        arrays[f"client {client}"] = (x, y)
    return coterie.data.from_arrays(arrays, test_share=0.3, truth=[client % 2 for client in range(6)])


def task_of(convert):
    return coterie.torch.task(net(), nn.CrossEntropyLoss(), shape=(1, 4, 4), classes=2, convert=convert)


CONVERTED, CALLED = task_of(True), task_of(False)


def record_of(task, method, backend, rounds=2, **options):
    run = {"rounds": rounds, "clients_per_round": 6, "backend": backend, "checkpoint_every": 1}
    spec = {"method": method, "local": {"epochs": 2, "batch_size": 5, "learning_rate": 0.1}, "run": run}
    return coterie.run(spec, data=two_clusters(), task=task, **options)


def in_pytorch(record):
    """All models of a record as rows of PyTorch parameters."""
    bank = record.models()
    made = [coterie.torch.load(net(), bank, row=row) for row in range(tree.rows(bank))]
    return np.stack([torch.cat([value.flatten() for value in one.state_dict().values()]).numpy() for one in made])


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        {"name": "ifca", "clusters": 2},
        {"name": "fedgroup", "clusters": 2},
        {"name": "perfedavg", "variant": "hf"},
    ],
    ids=lambda method: method["name"],
)
def test_methods_give_the_same_record_with_converted_layers_and_with_pytorch(method):
    by_layers = record_of(CONVERTED, method, "vectorized")
    by_pytorch = record_of(CALLED, method, "sequential")
    assert by_pytorch.summary["status"] == "done"
    assert by_pytorch.summary["traffic"] == by_layers.summary["traffic"]
    assert [row.get("assignment") for row in by_pytorch.rounds] == [row.get("assignment") for row in by_layers.rounds]
    losses = [[row["loss"] for row in record.rounds if row.get("loss")] for record in (by_layers, by_pytorch)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    one, other = in_pytorch(by_layers), in_pytorch(by_pytorch)
    assert np.linalg.norm(one - other) <= 1e-5 * np.linalg.norm(other)


def test_ifca_finds_one_model_per_true_cluster():
    record = record_of(CONVERTED, {"name": "ifca", "clusters": 2, "restarts": 3}, "vectorized", rounds=8)
    assert record.summary["truth"]["adjusted_rand"] == 1
    assert record.summary["accuracy"]["weighted"] > 0.9
    module = coterie.torch.load(net(), record.models(), row=record.model_of("client 1"))
    x, y = two_clusters().examples("client 1", "test")
    guessed = module.eval()(torch.from_numpy(x)).argmax(dim=1).numpy()
    assert (guessed == y).mean() == 1


@pytest.mark.parametrize("task", [CONVERTED, CALLED], ids=["converted", "called"])
def test_a_module_from_a_record_predicts_like_the_record(task):
    record = record_of(task, {"name": "ifca", "clusters": 2}, "sequential", rounds=1)
    x, _ = two_clusters().examples("client 1", "test")
    given = net()
    before = {name: value.clone() for name, value in given.state_dict().items()}
    module = record.torch_module("client 1", module=given)
    assert not module.training
    logits = module(torch.from_numpy(x)).detach()
    model = record.model("client 1", task=task)
    np.testing.assert_allclose(logits.numpy(), model.outputs(x), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(record.predict(x, client="client 1", task=task), logits.argmax(dim=1).numpy())
    assert all(torch.equal(value, before[name]) for name, value in given.state_dict().items())  # not changed


@pytest.mark.slow
def test_a_run_with_pytorch_can_be_resumed(tmp_path):
    whole = record_of(CALLED, "fedavg", "sequential", rounds=3)

    class Stopped(Exception):
        pass

    def stop(row):
        if row["t"] == 1:
            raise Stopped

    with pytest.raises(Stopped):
        record_of(CALLED, "fedavg", "sequential", rounds=3, out=tmp_path / "run", on_round=stop)
    resumed = coterie.resume(tmp_path / "run", data=two_clusters(), task=CALLED)
    assert tree.same(resumed.models(), whole.models())


@pytest.mark.parametrize("task", [CONVERTED, CALLED], ids=["converted", "called"])
def test_a_loaded_module_has_the_outputs_of_the_task(task):
    bank = tree.stack([task.init(Seed(0)), task.init(Seed(1))])
    x = np.random.default_rng(0).normal(size=(5, 1, 4, 4)).astype(np.float32)
    for row in (0, 1):
        module = coterie.torch.load(net(), bank, row=row).eval()
        assert np.allclose(module(torch.from_numpy(x)).detach(), task.outputs(tree.row(bank, row), x), atol=1e-6)


@pytest.mark.parametrize("task", [CONVERTED, CALLED], ids=["converted", "called"])
def test_a_model_that_does_not_match_the_module_is_not_loaded(task):
    params = task.init(Seed(0))
    with pytest.raises(SpecError, match=r"of the module has shape .* for a bank of models, select one with row=…"):
        coterie.torch.load(net(), tree.stack([params, params]))
    other = nn.Sequential(nn.Linear(16, 2))
    with pytest.raises(SpecError, match=r"The model has the arrays \['0/.*module Sequential has \['0\.bias', "):
        coterie.torch.load(other, params)


def test_data_that_do_not_match_are_rejected_before_the_run():
    data = coterie.data.from_arrays({"a": (np.zeros((4, 4, 4), np.float32), np.array([0, 1, 0, 1]))})
    with pytest.raises(
        SpecError, match=r"shape \(1, 4, 4\), the data have \(4, 4\); create .* shape=\(4, 4\), .* channels='last'"
    ):
        coterie.run({}, data=data, task=CONVERTED)
