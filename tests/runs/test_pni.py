"""PNI of a federation: compared with NumPy, zero for equal clients, growing with heterogeneity."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import data, metrics, models
from coterie.errors import SpecError
from coterie.models import Normalize
from coterie.runs.pni import pni
from coterie.runs.spec import Spec
from coterie.seeds import Seed

BLOBS = {"name": "blobs", "clients": 6, "samples": 30}


def spec(**sections):
    return Spec.of(sections)


def test_pni_is_computed_from_the_errors_of_random_models():
    found = pni(spec(data=BLOBS, run={"seed": 3}), draws=12)
    images = data.load("blobs", clients=6, samples=30, seed=3)
    task = models.mclr(images.shape, images.classes, normalize=Normalize(0.0, float(images.x.max())))
    rmse = np.zeros((12, 6))
    for draw in range(12):
        model = task.init(Seed(3).fold("pni", draw))["dense0"]
        for i, client in enumerate(images.clients):
            x, y = images.examples(client)
            answers = (x.reshape(len(x), -1) / images.x.max() @ model["kernel"].T + model["bias"]).argmax(axis=1)
            rmse[draw, i] = metrics.label_rmse(answers, y)
    values = [metrics.pni(row) for row in rmse]
    assert found["pni"]["mean"] == pytest.approx(np.mean([each.value for each in values]), rel=1e-5)
    assert found["pni"]["deviation"] == pytest.approx(np.std([each.value for each in values], ddof=1), rel=1e-4)
    assert found["scaled"]["mean"] == pytest.approx(np.mean([each.scaled for each in values]), rel=1e-5)
    mean = rmse.mean(axis=0)
    assert found["rmse"]["mean"] == pytest.approx(mean.mean(), rel=1e-5)
    assert found["rmse"]["lowest"] == {"client": images.clients[mean.argmin()], "rmse": pytest.approx(mean.min())}
    assert found["rmse"]["highest"] == {"client": images.clients[mean.argmax()], "rmse": pytest.approx(mean.max())}
    assert (found["clients"], found["draws"], found["model"]) == (6, 12, "mclr")


def test_progress_is_reported(monkeypatch):
    done = []
    pni(spec(data=BLOBS), draws=12, on_draw=done.append)
    assert done == [10, 12]
    monkeypatch.setattr("coterie.runs.pni.PARAMETERS_PER_PASS", 0)  # large models are evaluated one at a time
    done.clear()
    one_by_one = pni(spec(data=BLOBS), draws=3, on_draw=done.append)
    assert done == [1, 2, 3]
    monkeypatch.undo()
    assert one_by_one["pni"]["mean"] == pytest.approx(pni(spec(data=BLOBS), draws=3)["pni"]["mean"], rel=1e-6)


def test_pni_is_zero_for_equal_clients_and_clients_without_examples_are_left_out(tmp_path):
    draws = Seed(0).fold("x").generator()
    x, y = draws.normal(size=(20, 3)).astype(np.float32), draws.integers(0, 3, 20)
    for name in ("one", "two", "three"):
        np.savez(tmp_path / f"{name}.npz", x=x, y=y)
    found = pni(spec(data={"name": str(tmp_path), "test_share": 0.0}), draws=5)
    assert found["pni"] == {"mean": 0, "deviation": 0}
    assert found["clients"] == 3
    other = tmp_path / "others"
    other.mkdir()
    np.savez(other / "full.npz", x=x, y=y)
    np.savez(other / "more.npz", x=x, y=(y + 1) % 3)
    np.savez(other / "empty.npz", x=x[:0], y=y[:0])
    found = pni(spec(data={"name": str(other), "test_share": 0.0}), draws=1)
    assert found["clients"] == 2
    assert found["pni"]["mean"] > 0
    assert found["pni"]["deviation"] is None


@pytest.mark.slow
def test_pni_grows_with_the_differences_between_inputs():
    # Figure 10 of the paper: PNI grows with β for any α, and is close to 0 for IID clients.
    for alpha in (0.0, 1.0):
        found = [pni(spec(data={"name": "synthetic", "alpha": alpha, "beta": beta}), draws=100) for beta in (0, 0.5, 1)]
        values = [each["pni"]["mean"] for each in found]
        assert values == sorted(values)
    iid = pni(spec(data="synthetic-iid"), draws=100)
    assert iid["pni"]["mean"] < 0.25 * values[0]


def test_pni_works_for_regression():
    assert pni(spec(data={"name": "regression", "clients": 4}), draws=2)["model"] == "linear-regression"


def test_too_few_models_or_clients_are_rejected():
    with pytest.raises(SpecError, match=r"^PNI needs at least 1 random model, got 0$"):
        pni(spec(data=BLOBS), draws=0)
    with pytest.raises(SpecError, match=r"^PNI needs at least 2 clients with training examples; blobs has 1$"):
        pni(spec(data={"name": "blobs", "clients": 1, "clusters": 1}), draws=1)
