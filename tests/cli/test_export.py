"""coterie export: files that other programs can read."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from coterie import RunRecord


@pytest.fixture
def run(coterie, tiny):
    assert coterie("run", *tiny, "--method", "oracle", "--out", "here").exit_code == 0
    return RunRecord.read("here")


def test_all_models_are_exported_with_the_clients_of_each(coterie, run):
    done = coterie("export", "here")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("here.safetensors (8 arrays, ")
    arrays = load_file("here.safetensors")
    assert sorted(arrays) == [f"{j}/dense0/{leaf}" for j in range(4) for leaf in ("bias", "kernel")]
    np.testing.assert_array_equal(arrays["2/dense0/kernel"], run.models()["dense0"]["kernel"][2])
    with open("here.json", encoding="utf-8") as file:
        about = json.load(file)
    assert about["clients"] == {str(i): i % 4 for i in range(8)}
    assert about["classes"] == 4
    assert about["input_shape"] == [8, 8]
    assert about["normalize"] == {"mean": 0.0, "deviation": 255.0}
    assert about["arrays"]["0/dense0/kernel"] == {"shape": [4, 64], "dtype": "float32"}


def test_an_exported_model_predicts_like_the_record(coterie, run):
    from coterie.data import load

    x = load("blobs", clients=8, samples=20).x[:5]
    coterie("export", "here", "--client", "6", "-o", "six")
    arrays = load_file("six.safetensors")
    outputs = x.reshape(5, -1) / np.float32(255) @ arrays["dense0/kernel"].T + arrays["dense0/bias"]
    np.testing.assert_array_equal(outputs.argmax(axis=1), run.predict(x, client="6"))


def test_one_cluster_is_exported(coterie, run):
    done = coterie("export", "here", "--cluster", 3, "-o", "three.safetensors", "--json")
    about = json.loads(done.stdout)
    assert about["clusters"] == [3]
    assert about["clients"] == {"3": 3, "7": 3}
    assert sorted(about["arrays"]) == ["dense0/bias", "dense0/kernel"]
    assert (about["path"], about["description"]) == ("three.safetensors", "three.json")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--client", "66"], "Error: No client '66'. Did you mean '6'? Known: 0, 1, 2, 3, 4, 5, 6, 7\n"),
        (["--cluster", "9"], "Error: No client or cluster '9'. Known: "),
        (["--cluster", "1", "--client", "1"], "Error: --cluster and --client exclude each other; give one of them\n"),
        (["-o", "file/below"], "Error: file/below.safetensors cannot be written: Not a directory\n"),
    ],
)
def test_a_wrong_selection_or_path_is_an_error(args, message, coterie, run, tmp_path):
    (tmp_path / "file").write_text("")
    done = coterie("export", "here", *args)
    assert done.exit_code == 2
    assert done.stderr.startswith(message)


def test_a_note_says_that_clients_have_their_own_models(coterie, tiny):
    coterie("run", *tiny, "--method", "local", "--out", "alone")
    done = coterie("export", "alone")
    assert done.exit_code == 0
    assert done.stderr.startswith("Note: Each client of this run has its own model")


def test_an_unfinished_run_has_no_models(coterie, tiny, tmp_path):
    coterie("run", *tiny, "--out", "begun")
    for name in ("summary.json", "models.safetensors"):
        (tmp_path / "begun" / name).unlink()
    done = coterie("export", "begun")
    assert done.exit_code == 2
    assert "This run is not finished and has no models yet. Continue it with: coterie resume" in done.stderr


@pytest.mark.parametrize("existing", ["here.safetensors", "here.json"])
def test_existing_files_are_replaced_only_with_force(existing, coterie, run, tmp_path):
    (tmp_path / existing).write_text("precious")
    done = coterie("export", "here")
    assert done.exit_code == 2
    what = ", which would describe here.safetensors," if existing == "here.json" else ""
    assert done.stderr == f"Error: {existing}{what} exists; choose another file with -o, or replace it with --force\n"
    assert (tmp_path / existing).read_text() == "precious"
    assert len(list(tmp_path.glob("here.*"))) == 1
    assert coterie("export", "here", "--force").exit_code == 0
    assert len(load_file("here.safetensors")) == 8


@pytest.mark.parametrize("name", ["models.safetensors", "summary.safetensors"])
def test_files_of_a_record_are_never_replaced(name, coterie, run, tmp_path):
    before = {file: file.read_bytes() for file in (tmp_path / "here").glob("*.*") if file.is_file()}
    done = coterie("export", "here", "-o", f"here/{name}", "--force")
    assert done.exit_code == 2
    assert "is a file of a record; choose another file with -o" in done.stderr
    assert {file: file.read_bytes() for file in before} == before


def test_a_finished_record_without_its_models_says_which_file_is_missing(coterie, tiny, tmp_path):
    coterie("run", *tiny, "--out", "done")
    (tmp_path / "done" / "models.safetensors").unlink()
    done = coterie("export", "done")
    assert done.exit_code == 2
    assert "models.safetensors is missing from the record in done" in done.stderr


def test_a_link_in_the_place_of_the_output_is_replaced_and_not_followed(coterie, run, tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "here.safetensors").symlink_to(tmp_path / "victim")
    assert coterie("export", "here").exit_code == 2
    assert coterie("export", "here", "--force").exit_code == 0
    assert (tmp_path / "victim").read_text() == "precious"


def test_models_of_clusters_below_the_minimum_size_are_not_exported(coterie, tiny):
    # Each of the four true clusters has two of the eight clients.
    args = ["--method", "oracle", "--set", "privacy.min_cluster_size=3", "--out", "small"]
    assert coterie("run", *tiny, *args).exit_code == 0
    assert coterie("export", "small").exit_code == 0
    assert sorted(load_file("small.safetensors")) == ["fallback/dense0/bias", "fallback/dense0/kernel"]
    with open("small.json", encoding="utf-8") as file:
        about = json.load(file)
    assert (about["clusters"], about["clients"]) == ([], {})
    assert about["unassigned"] == [str(i) for i in range(8)]
    done = coterie("export", "small", "--cluster", 1)
    assert done.exit_code == 2
    assert "Cluster 1 has fewer than 3 clients (privacy.min_cluster_size)" in done.stderr
    assert coterie("export", "small", "--client", 0, "-o", "mine").exit_code == 0
    fallback = RunRecord.read("small").served["fallback"]["dense0"]["kernel"]
    np.testing.assert_array_equal(load_file("mine.safetensors")["dense0/kernel"], fallback)


def test_an_exported_model_is_read_again(coterie, run):
    from coterie import ServedModel
    from coterie.data import load

    x = load("blobs", clients=8, samples=20).x[:5]
    coterie("export", "here", "--client", "6", "-o", "six")
    np.testing.assert_array_equal(ServedModel.load("six.safetensors").predict(x), run.predict(x, client="6"))
    coterie("export", "here")
    found = ServedModel.load("here.safetensors", cluster=3).predict(x)
    np.testing.assert_array_equal(found, run.predict(x, cluster=3))


def test_numpy_and_torch_files_have_the_arrays_of_the_record(coterie, run):
    kernel = run.models()["dense0"]["kernel"]
    assert coterie("export", "here", "-o", "all.npz").exit_code == 0
    with np.load("all.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["2/dense0/kernel"], kernel[2])
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    assert coterie("export", "here", "--format", "torch", "--cluster", 1).exit_code == 0
    np.testing.assert_array_equal(torch.load("here.pt")["dense0.kernel"].numpy(), kernel[1])


def test_an_onnx_file_has_one_model(coterie, run):
    pytest.importorskip("onnx", reason="needs the extra onnx")
    runtime = pytest.importorskip("onnxruntime", reason="exports are checked by onnxruntime")
    from coterie.data import load

    done = coterie("export", "here", "-o", "all.onnx")
    assert done.exit_code == 2
    assert "An ONNX file has one model, the run has 4; choose --cluster or --client" in done.stderr
    assert coterie("export", "here", "-o", "one.onnx", "--client", "5").exit_code == 0
    x = load("blobs", clients=8, samples=20).x[:5]
    session = runtime.InferenceSession("one.onnx", providers=["CPUExecutionProvider"])
    found = session.run(["probabilities"], {"input": x.astype(np.float32)})[0]
    np.testing.assert_allclose(found, run.predict_proba(x, client="5"), atol=1e-5)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-o", "model.h5"], "Error: Files that end in '.h5' are not known; use one of .safetensors, .pt, "),
        (["-o", "a.npz", "--format", "torch"], "Error: A file that ends in '.npz' has the format numpy, not torch"),
        (["--format", "npz"], "Error: No format 'npz'."),
    ],
)
def test_an_unknown_format_or_ending_is_refused(args, message, coterie, run, tmp_path):
    before = sorted(tmp_path.iterdir())
    done = coterie("export", "here", *args)
    assert done.exit_code == 2
    assert done.stderr.startswith(message)
    assert sorted(tmp_path.iterdir()) == before
