"""A trained model as an object: predictions, files, models of one's own, tables."""

from __future__ import annotations

import json
import types

import numpy as np
import pytest

import coterie
from coterie import RunRecord, ServedModel
from coterie.data.preprocessing import Column, Preprocessing
from coterie.errors import DataError, RecordError, SpecError
from coterie.models import Normalize, Task, build
from coterie.runs.joining import save_model
from coterie.runs.model_files import facts_of_recipe

SPEC = {
    "data": {"name": "blobs", "clients": 8, "samples": 20},
    "method": {"name": "oracle"},
    "run": {"rounds": 1, "clients_per_round": 8},
}


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return coterie.run(SPEC, out=tmp_path_factory.mktemp("runs") / "here")


@pytest.fixture(scope="module")
def x():
    return coterie.data.load("blobs", clients=8, samples=20).x[:30]


def linear(**about) -> ServedModel:
    """Two inputs, two classes; the logits are the inputs themselves."""
    task = build("mclr", (2,), 2)
    params = {"dense0": {"kernel": np.eye(2, dtype=np.float32), "bias": np.zeros(2, np.float32)}}
    return ServedModel(task, params, {**facts_of_recipe(task.recipe), **about})


def test_probabilities_are_the_softmax_of_the_outputs():
    # softmax(0, ln 3) = (1, 3) / 4
    x = np.array([[0.0, np.log(3.0)], [0.0, 0.0]])
    np.testing.assert_allclose(linear().predict_proba(x), [[0.25, 0.75], [0.5, 0.5]], atol=1e-6)
    np.testing.assert_array_equal(linear().predict(x), [1, 0])  # ties go to the lowest class


def test_large_outputs_do_not_overflow():
    np.testing.assert_array_equal(linear().predict_proba(np.array([[1e4, -1e4]])), [[1.0, 0.0]])


def test_no_rows_give_no_predictions():
    assert linear().predict(np.zeros((0, 2))).shape == (0,)
    assert linear().predict_proba(np.zeros((0, 2))).shape == (0, 2)


def test_inputs_with_nan_are_rejected():
    with pytest.raises(DataError, match="NaN or infinite in row 1"):
        linear().predict(np.array([[0.0, 1.0], [np.nan, 0.0]]))


def test_the_model_of_a_record_predicts_like_the_record(record, x):
    model = record.model("6")
    np.testing.assert_array_equal(model.predict(x), record.predict(x, client="6"))
    np.testing.assert_array_equal(record.predict_proba(x, cluster=2).argmax(axis=1), model.predict(x))  # 6 mod 4
    assert (model.about["client"], model.about["cluster"], model.about["method"]) == ("6", 2, "oracle")


def test_a_saved_model_is_read_again(record, x, tmp_path):
    file = record.model("6").save(tmp_path / "six")
    assert file.name == "six.safetensors"
    for path in (file, tmp_path / "six.json", tmp_path / "six"):
        np.testing.assert_array_equal(ServedModel.load(path).predict_proba(x), record.predict_proba(x, client="6"))


def test_the_model_that_a_client_received_is_read(tmp_path, x):
    task = build("mclr", (8, 8), 4, normalize=Normalize(0.0, 255.0))
    params = task.init(coterie.seeds.Seed(3))
    delivered = types.SimpleNamespace(run="r", task=task.recipe, about={"method": "ifca"}, cluster=1, params=params)
    file, about = save_model(delivered, tmp_path)
    assert about == json.loads(file.with_suffix(".json").read_text())
    wanted = np.asarray(task.outputs(params, x)).argmax(axis=1)
    np.testing.assert_array_equal(ServedModel.load(tmp_path / "r").predict(x), wanted)


def test_files_that_are_no_model_are_rejected(tmp_path):
    with pytest.raises(RecordError, match=r"There is no file .*none.safetensors"):
        ServedModel.load(tmp_path / "none.safetensors")
    linear().save(tmp_path / "a")
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(RecordError, match=r"does not describe a model: it lacks model"):
        ServedModel.load(tmp_path / "a")
    with pytest.raises(SpecError, match=r"ends in .safetensors, got 'a.onnx'"):
        linear().save(tmp_path / "a.onnx")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({}, "This run has 4 models; choose one with client=… or cluster=…"),
        ({"client": "1", "cluster": 1}, "client and cluster exclude each other"),
        ({"client": 1}, "client must be the id of a client, a text, got 1; for a cluster: cluster=1"),
    ],
)
def test_one_client_or_one_cluster_is_chosen(choice, message, record, x):
    with pytest.raises(SpecError, match=message):
        record.predict(x, **choice)


def test_a_run_with_one_model_needs_no_choice(x):
    record = coterie.run({**SPEC, "method": "fedavg"})
    np.testing.assert_array_equal(record.predict(x), record.predict(x, client="0"))


def own_task(name: str) -> Task:
    return coterie.models.from_functions(
        lambda key: {"w": np.ones((64, 4), np.float32)},
        lambda params, x: x.reshape(len(x), -1) @ params["w"],
        (8, 8),
        4,
        name=name,
    )


@pytest.mark.parametrize("name", ["mine", "mclr"])
def test_a_model_of_ones_own_predicts_with_its_task(name, x, tmp_path):
    task = own_task(name)
    coterie.run(SPEC, task=task, out=tmp_path / "own")
    record = RunRecord.read(tmp_path / "own")
    with pytest.raises(RecordError, match=f"Model '{name}' is not one of Coterie's own.*task=task"):
        record.predict(x, client="0")
    wanted = (x.reshape(len(x), -1).astype(np.float32) @ record.models()["w"][0]).argmax(axis=1)
    np.testing.assert_array_equal(record.predict(x, client="0", task=task), wanted)
    file = record.model("0", task=task).save(tmp_path / "own-model")
    with pytest.raises(RecordError, match=r"give the task that the run used: ServedModel.load\("):
        ServedModel.load(file)
    np.testing.assert_array_equal(ServedModel.load(file, task=task).predict(x), wanted)


def test_a_task_with_other_parameters_is_rejected(record, x):
    with pytest.raises(RecordError, match="The parameters are not those of model mine: dense0/bias has shape"):
        record.predict(x, client="0", task=own_task("mine"))


def test_class_names_are_predicted():
    named = linear(class_names=["ill", "well"])
    assert named.predict(np.array([[1.0, 0.0], [0.0, 1.0]])).tolist() == ["ill", "well"]


def test_columns_are_found_by_name():
    named = linear(features=["age", "weight"])
    table = {"weight": [1.0, 0.0], "age": [0.0, 1.0]}  # in another order
    np.testing.assert_array_equal(named.predict(table), [1, 0])
    with pytest.raises(DataError, match=r"no column 'age', which the model needs. Did you mean 'ages'"):
        named.predict({"ages": [1.0], "weight": [0.0]})
    with pytest.raises(DataError, match="does not know the column 'height'; it takes age, weight"):
        named.predict({**table, "height": [1.0, 2.0]})
    with pytest.raises(DataError, match="Column 'age' must hold numbers"):
        named.predict({"age": ["old"], "weight": ["1"]})


def test_a_data_frame_and_a_csv_file_are_tables(tmp_path):
    pandas = pytest.importorskip("pandas", reason="data frames need the extra table")
    frame = pandas.DataFrame({"weight": [1.0, 0.0], "age": [0.0, 1.0]})
    frame.to_csv(tmp_path / "new.csv", index=False)
    named = linear(features=["age", "weight"])
    for table in (frame, tmp_path / "new.csv", str(tmp_path / "new.csv")):
        np.testing.assert_array_equal(named.predict(table), [1, 0])


def test_recorded_preprocessing_is_applied():
    columns = (Column("b", "number", 0.0), Column("a", "number", 1.0))
    plain = Preprocessing(columns).to_dict()
    # The model takes (b, a) and predicts the larger one; a is missing in the second row and becomes 1.
    table = {"a": np.array([1.0, np.nan]), "b": np.array([0.0, 0.5])}
    assert linear(preprocessing=plain).predict(table).tolist() == [1, 1]


def test_a_regression_has_no_probabilities():
    task = build("linear-regression", (2,), None, bias=False)
    model = ServedModel(task, {"linear": {"kernel": np.array([1.0, 2.0], np.float32)}})
    np.testing.assert_allclose(model.predict(np.array([[1.0, 1.0], [0.5, 0.0]])), [3.0, 0.5])
    with pytest.raises(SpecError, match="has no class probabilities"):
        model.predict_proba(np.zeros((1, 2)))
