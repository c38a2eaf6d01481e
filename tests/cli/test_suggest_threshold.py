"""coterie suggest-threshold: the histogram, the suggestion and the command that uses it."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

#: Twelve clients in two clusters that are easy to separate.
TWO = ["--data", "blobs", "--set", "data.clients=12", "--set", "data.clusters=2", "--set", "data.samples=30"]
ONE = ["--set", "data.clients=1", "--set", "data.clusters=1"]
QUICK = [*TWO, "--set", "local.learning_rate=0.1", "--set", "method.init_steps=40"]


@pytest.fixture
def found(coterie):
    done = coterie("suggest-threshold", *QUICK, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_the_threshold_lies_in_the_gap_and_gives_the_clusters(found):
    assert found["gap"]["low"] < found["threshold"] < found["gap"]["high"]
    assert sorted(map(len, found["clusters"])) == [6, 6]
    assert found["truth"]["adjusted_rand"] == 1
    assert found["unassigned"] == []
    assert found["distance"] == "cross"
    assert len(f"{found['threshold']}") <= 6  # short enough to type


def test_the_histogram_counts_every_pair_once(found):
    assert found["distances"]["pairs"] == 12 * 11 // 2 == sum(bar["pairs"] for bar in found["histogram"])
    edges = [bar["from"] for bar in found["histogram"]] + [found["histogram"][-1]["to"]]
    assert (edges[0], edges[-1]) == pytest.approx((found["distances"]["min"], found["distances"]["max"]))
    assert np.allclose(np.diff(edges), (edges[-1] - edges[0]) / 20)


def test_the_printed_command_gives_these_clusters(coterie, found):
    shown = coterie("suggest-threshold", *QUICK)
    assert shown.exit_code == 0
    assert shown.stdout.startswith(
        "12 clients of blobs, 66 pairs. Distance: loss of each client's model on the other's examples."
    )
    assert len(re.findall(r"^ ?\d\S* – \d", shown.stdout, re.MULTILINE)) == 20
    assert shown.stdout.count("← threshold") == 1
    assert re.search(r"^clusters +2 \(6, 6 clients\); adjusted Rand index 1.00 against", shown.stdout, re.MULTILINE)
    assert re.search(rf"^noise floor +{found['noise_floor']:.4g}, the distance of a client", shown.stdout, re.MULTILINE)
    command = shown.stdout.splitlines()[-1].removeprefix("Run it: coterie ").split()
    threshold = f"method.threshold={found['threshold']}"
    assert command == ["run", *TWO[:2], "--method", "srfca", *QUICK[2:], "--set", threshold]
    done = coterie(*command, "--rounds", 4, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["clusters"]["sizes"] == [6, 6]


@pytest.mark.exhaustive
def test_the_threshold_and_the_rounds_of_a_spec_are_ignored(coterie, tmp_path):
    (tmp_path / "mine.toml").write_text(
        '[data]\nname = "blobs"\nclients = 8\nclusters = 2\nsamples = 30\n[local]\nlearning_rate = 0.1\n'
        '[run]\nrounds = 1\nseed = 3\n[method]\nname = "srfca"\nthreshold = 1e-9\ndistance = "l2"\n'
        "init_steps = 30\nrefines = 3\n"
    )
    done = coterie("suggest-threshold", "mine.toml", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["distance"], found["clients"], found["spec"]["run"]["seed"]) == ("l2", 8, 3)
    assert found["spec"]["method"]["init_steps"] == 30
    assert "mine.toml --method srfca --set method.threshold=" in coterie("suggest-threshold", "mine.toml").stdout


ONE_SHOT_IFCA = (
    '[data]\nname = "blobs"\nclients = 12\nclusters = 2\nsamples = 30\n[local]\nlearning_rate = 0.1\n'
    '[method]\nname = "oneshotifca"\ndistance = "l2"\ninit_steps = 30\nfirst_models = "random"\nmembers = 3\n'
)


@pytest.mark.exhaustive
def test_another_method_with_one_shot_keeps_its_settings_and_its_name(coterie, tmp_path):
    (tmp_path / "mine.toml").write_text(ONE_SHOT_IFCA)
    done = coterie("suggest-threshold", "mine.toml", "--set", "method.min_size=3", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    used = found["spec"]["method"]
    assert (found["method"], used["distance"], used["init_steps"], used["min_size"]) == ("oneshotifca", "l2", 30, 3)
    shown = coterie("suggest-threshold", "mine.toml", "--set", "method.min_size=3").stdout.splitlines()[-1]
    sets = f"--set method.min_size=3 --set method.threshold={found['threshold']}"
    assert shown == f"Run it: coterie run mine.toml --method oneshotifca {sets}"


@pytest.mark.exhaustive
def test_from_python_the_spec_may_have_any_method():
    from coterie.runs.spec import Spec
    from coterie.runs.threshold import suggest

    blobs = {"name": "blobs", "clients": 12, "clusters": 2, "samples": 30}
    local = {"learning_rate": 0.1}
    kept = {"name": "oneshotifca", "init_steps": 7, "first_models": "random", "threshold": 1e-9}
    found = suggest(Spec.of({"data": blobs, "local": local, "method": kept}))
    assert (found["method"], found["spec"]["method"]["init_steps"]) == ("oneshotifca", 7)
    other = suggest(Spec.of({"data": blobs, "local": local, "method": {"name": "ifca", "clusters": 3}}))
    assert (other["method"], other["spec"]["method"]["init_steps"]) == ("srfca", 250)


def test_help_teaches_by_examples(coterie):
    done = coterie("suggest-threshold", "--help")
    assert done.exit_code == 0
    assert done.stdout.partition("Examples:")[2].count("coterie suggest-threshold") >= 3
    assert "the histogram has two peaks" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--set", "method.thrshold=3"], "No setting 'thrshold' of method srfca. Did you mean 'threshold'?"),
        (["--data", "digitz"], "No data set 'digitz'. Did you mean 'digits'?"),
        (["--set", "method.min_size=0"], "method.min_size must be at least 1, got 0"),
        (["--set", "method.min_size=41"], "needs clusters of 41 clients with method.grouping = 'components', but"),
        (["--data", "blobs", *ONE], "ONE_SHOT compares clients with each other and needs at least 2, got 1"),
    ],
)
def test_wrong_input_is_an_error(args, message, coterie):
    done = coterie("suggest-threshold", *args)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
