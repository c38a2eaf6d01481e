"""Models as ONNX graphs, compared with onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import tree
from coterie.errors import SpecError
from coterie.models import MODELS, Normalize, build, from_functions
from coterie.runs.served_model import ServedModel
from coterie.seeds import Seed

#: Model → shape of one input and number of classes.
INPUTS = {
    "linear-regression": ((5,), None),
    "resnet9": ((32, 32, 3), 10),
    "resnet9-gn": ((32, 32, 3), 10),
    "cnn-femnist": ((28, 28), 5),
    "lenet5": ((28, 28), 5),
    "char-lstm": ((7,), 80),
    **{name: ((6, 5), 2) for name in ("lstm", "bilstm", "bigru", "rnn")},
}


def inputs_of(shape, tokens):
    rows = Seed(1).uniform(3 * int(np.prod(shape))).reshape(3, *shape)
    return (rows * tokens).astype(np.int64) if tokens else rows.astype(np.float32)


def moved(params):
    """The parameters, none of them 0 or 1, so that an array in the wrong place is noticed; variances stay positive."""
    return tree.map_paths(
        lambda path, leaf: (leaf + 0.1 + 0.05 * Seed(2).fold(path).uniform(leaf.size).reshape(leaf.shape)).astype(
            np.float32
        ),
        params,
    )


@pytest.mark.parametrize("name", MODELS)
def test_onnxruntime_computes_the_outputs_of_every_model(name):
    pytest.importorskip("onnx", reason="ONNX needs the extra onnx")
    runtime = pytest.importorskip("onnxruntime", reason="exports are checked by onnxruntime")
    from coterie.runs.onnx_export import to_onnx

    shape, classes = INPUTS.get(name, ((28, 28), 5))
    options = {"widths": (7, 6)} if name == "mlp" else {"units": 8} if name == "char-lstm" else {}
    normalize = None if name == "char-lstm" else Normalize(0.25, 2.0)
    task = build(name, shape, classes, normalize=normalize, **options)
    model = ServedModel(task, moved(task.init(Seed(0))))
    x = inputs_of(shape, task.tokens)
    session = runtime.InferenceSession(to_onnx(task, model.params), providers=["CPUExecutionProvider"])
    found = dict(zip([each.name for each in session.get_outputs()], session.run(None, {"input": x}), strict=True))
    if classes is None:
        np.testing.assert_allclose(found["prediction"], model.predict(x), rtol=1e-4, atol=1e-5)
        return
    wanted = model.outputs(x)
    np.testing.assert_allclose(found["logits"], wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(x), atol=1e-3)


def test_a_model_without_known_layers_is_refused():
    pytest.importorskip("onnx", reason="ONNX needs the extra onnx")
    from coterie.runs.onnx_export import to_onnx

    task = from_functions(lambda key: {"w": np.ones((2, 2))}, lambda params, x: x @ params["w"], (2,), 2)
    with pytest.raises(SpecError, match="its layers are not known"):
        to_onnx(task, task.init(Seed(0)))


def test_the_error_names_the_extra_if_onnx_is_missing(monkeypatch):
    import sys

    from coterie.runs.onnx_export import to_onnx

    monkeypatch.setitem(sys.modules, "onnx", None)
    task = build("mclr", (2,), 2)
    with pytest.raises(SpecError, match=r"pip install 'coterie\[onnx\]'"):
        to_onnx(task, task.init(Seed(0)))
