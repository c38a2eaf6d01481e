"""coterie pni."""

from __future__ import annotations

import json

import pytest

from coterie.runs.pni import pni
from coterie.runs.spec import Spec

BLOBS = ["blobs", "--set", "data.clients=6", "--set", "data.samples=20", "--draws", "4"]


@pytest.fixture
def expected():
    return pni(Spec.of({"data": {"name": "blobs", "clients": 6, "samples": 20}}), draws=4)


def test_the_json_document_is_the_result_of_the_library(coterie, expected):
    done = coterie("pni", *BLOBS, "--json")
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout) == expected


def test_the_output_shows_the_index_the_errors_and_an_interpretation(coterie, expected):
    done = coterie("pni", *BLOBS)
    assert done.exit_code == 0, done.stderr
    title, _, *lines = done.stdout.splitlines()
    assert title == "blobs with mclr, seed 0: 6 clients, 4 random models"
    assert lines[0].split() == ["PNI", f"{expected['pni']['mean']:.4g}", "±", f"{expected['pni']['deviation']:.4g}"]
    assert lines[1].startswith(f"scaled  {expected['scaled']['mean']:.4g} ± ")
    low, high = expected["rmse"]["lowest"]["client"], expected["rmse"]["highest"]["client"]
    assert f"(client {low})" in lines[2]
    assert lines[2].rstrip().endswith(f"(client {high})")
    share = 100 * expected["scaled"]["mean"] / expected["rmse"]["mean"]
    assert f"Two clients differ by about {share:.0f} % of the average RMSE." in done.stdout


def test_model_seed_and_settings_are_passed_on(coterie):
    done = coterie("pni", *BLOBS, "--model", "mlp", "--set", "model.widths=[5]", "--seed", 7, "--json")
    assert done.exit_code == 0, done.stderr
    spec = {"data": {"name": "blobs", "clients": 6, "samples": 20}, "model": {"name": "mlp", "widths": [5]}}
    assert json.loads(done.stdout) == pni(Spec.of({**spec, "run": {"seed": 7}}), draws=4)


def test_help_explains_the_index_and_its_limits(coterie):
    done = coterie("pni", "--help")
    assert done.exit_code == 0
    text = " ".join(done.stdout.split())
    for sentence in (
        "Every client evaluates the same random models on its training examples",
        "0 if they are equal, larger for more heterogeneous data.",
        "Compare only the scaled value, and only between data sets with the same classes.",
        "a low PNI does not mean that one model is enough.",
    ):
        assert sentence in text
    assert done.stdout.partition("Examples:")[2].count("coterie pni ") >= 3


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["blops"], 2, "Error: No data set 'blops'. Did you mean 'blobs'?"),
        (["blobs", "--draws", 0], 2, "Error: PNI needs at least 1 random model, got 0\n"),
        (["blobs", "--model", "mlpp"], 2, "Error: No model 'mlpp'. Did you mean 'mlp'?"),
        (["blobs", "--set", "data.cleints=3"], 2, "Error: No setting 'cleints' of data set blobs."),
        (["some/where.csv"], 3, "Error: "),
    ],
)
def test_wrong_input_is_an_error(args, code, message, coterie):
    done = coterie("pni", *args)
    assert done.exit_code == code
    assert done.stderr.startswith(message)
    assert done.stdout == ""
