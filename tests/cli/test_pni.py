"""coterie pni: a number, how to read it, and help that teaches."""

from __future__ import annotations

import json

import pytest

from coterie.runs.pni import pni
from coterie.runs.spec import Spec

BLOBS = ["blobs", "--set", "data.clients=6", "--set", "data.samples=20", "--draws", "4"]


@pytest.fixture
def expected():
    return pni(Spec.of({"data": {"name": "blobs", "clients": 6, "samples": 20}}), draws=4)


def test_the_document_holds_what_was_measured(coterie, expected):
    done = coterie("pni", *BLOBS, "--json")
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout) == expected


def test_people_read_the_index_the_errors_and_what_to_make_of_them(coterie, expected):
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
    assert f"Two clients differ by about {share:.0f} % of the average error." in done.stdout


def test_model_seed_and_settings_reach_the_measure(coterie):
    done = coterie("pni", *BLOBS, "--model", "mlp", "--set", "model.widths=[5]", "--seed", 7, "--json")
    assert done.exit_code == 0, done.stderr
    spec = {"data": {"name": "blobs", "clients": 6, "samples": 20}, "model": {"name": "mlp", "widths": [5]}}
    assert json.loads(done.stdout) == pni(Spec.of({**spec, "run": {"seed": 7}}), draws=4)


def test_help_says_what_it_is_and_how_to_read_it(coterie):
    done = coterie("pni", "--help")
    assert done.exit_code == 0
    text = " ".join(done.stdout.split())
    for said in (
        "All clients are given the same random models.",
        "0 where random models err alike on all clients",
        "compare the scaled value, and only data with the same classes",
        "a low PNI does not say that one model is enough for all.",
    ):
        assert said in text
    assert done.stdout.partition("Examples:")[2].count("coterie pni ") >= 3


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["blops"], 2, "Error: No data set 'blops'. Did you mean 'blobs'?"),
        (["blobs", "--draws", 0], 2, "Error: PNI needs at least 1 random model, got 0\n"),
        (["blobs", "--model", "mlpp"], 2, "Error: No model 'mlpp'. Did you mean 'mlp'?"),
        (["blobs", "--set", "data.cleints=3"], 2, "Error: No setting of data set blobs 'cleints'."),
        (["some/where.csv"], 3, "Error: "),
    ],
)
def test_what_is_wrong_is_said(args, code, says, coterie):
    done = coterie("pni", *args)
    assert done.exit_code == code
    assert done.stderr.startswith(says)
    assert done.stdout == ""
