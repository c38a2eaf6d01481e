"""--json prints exactly one JSON document to stdout."""

from __future__ import annotations

import inspect
import json
from typing import Annotated, Literal

import numpy as np
import pytest

from coterie.cli.about import setting, type_text
from coterie.methods import method_class
from coterie.runs.settings_help import doc_entries
from coterie.runs.spec import method_options

SUMMARY = {"method", "data", "model", "seed", "rounds", "accuracy", "coverage", "clusters", "truth", "traffic"} | {
    "discrepancy",
    "seconds",
    "peak_rss_bytes",
    "versions",
    "status",
}


def strict(text: str):
    def reject(name: str):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=reject)


def keys_of_design(summary: dict) -> None:
    assert set(summary) >= SUMMARY
    assert {"weighted", "mean", "worst_tenth", "weighted_best", "per_cluster"} <= set(summary["accuracy"])
    assert {"count", "sizes", "collapsed"} <= set(summary["clusters"])
    assert {"adjusted_rand", "misclustering"} <= set(summary["truth"])
    assert {"down_bytes", "up_bytes", "by_purpose"} <= set(summary["traffic"])
    assert {"total", "setup", "training", "evaluation", "clustering", "compile"} <= set(summary["seconds"])


def test_run(coterie, tiny):
    done = coterie("run", *tiny, "--json")
    assert done.exit_code == 0
    assert done.stderr == ""
    summary = strict(done.stdout)
    keys_of_design(summary)
    assert summary["path"] == "runs/blobs-fedavg-0"
    assert (summary["method"], summary["data"], summary["rounds"]) == ("fedavg", "blobs", 3)


def test_resume_of_a_finished_run_prints_its_summary_again(coterie, tiny):
    first = strict(coterie("run", *tiny, "--json", "--out", "here").stdout)
    again = strict(coterie("resume", "here", "--json").stdout)
    assert again == first


def test_compare(coterie, tiny):
    done = coterie("compare", *tiny, "--methods", "fedavg,oracle", "--seeds", 2, "--json")
    assert done.exit_code == 0
    found = strict(done.stdout)
    assert [run["method"] for run in found["runs"]] == ["fedavg", "fedavg", "oracle", "oracle"]
    assert [run["seed"] for run in found["runs"]] == [0, 1, 0, 1]
    for summary in found["runs"]:
        keys_of_design(summary)
    assert [row["method"] for row in found["table"]] == ["fedavg", "oracle"]
    assert (found["reference"], found["headline"]) == ("fedavg", "last_ten")
    assert set(found["significance"]["oracle"]) == {
        "difference", "t_test", "t_test_holm", "wilcoxon", "no_p", "improvement", "improvement_deviation"
    }  # fmt: skip
    assert found["conclusion"].startswith("The clients form 4 clusters. One model for all clients reaches ")


@pytest.mark.parametrize("what", ["methods", "models"])
def test_a_list_maps_names_to_descriptions(what, coterie):
    found = strict(coterie(what, "--json").stdout)
    assert all(isinstance(line, str) and line for line in found.values())


def test_the_list_of_data_says_which_files_are_on_disk(coterie):
    found = strict(coterie("data", "--json").stdout)
    assert found["digits"]["available"] is True
    assert found["mnist-powerlaw"]["available"] is False
    assert found["mnist-powerlaw"]["needs"] == ["mnist.npz"]
    assert {"description", "clients", "samples", "classes", "source"} <= set(found["mnist-powerlaw"])


@pytest.mark.exhaustive
def test_every_listed_name_has_a_page(coterie):
    for what in ("methods", "data", "models"):
        for name in strict(coterie(what, "--json").stdout):
            done = coterie(what, name, "--json")
            assert done.exit_code == 0, done.output
            page = strict(done.stdout)
            assert page["text"]
            assert all({"key", "default", "type", "means"} == set(each) for each in page["settings"])


def test_the_page_of_a_data_set_describes_its_contents(coterie, tmp_path):
    # Two clients of ten examples each, one of them for testing.
    for client in ("a", "b"):
        np.savez(tmp_path / f"{client}.npz", x=np.zeros((10, 3), np.float32), y=np.arange(10) % 4)
    holds = strict(coterie("data", tmp_path, "--json").stdout)["holds"]
    assert (holds["clients"], holds["classes"], holds["shape"], holds["clusters"]) == (2, 4, [3], None)
    assert holds["examples"] == {"fit": 18, "test": 2}
    planted = strict(coterie("data", "blobs", "--json").stdout)["holds"]
    assert planted["clusters"] == {"0": 10, "1": 10, "2": 10, "3": 10}
    assert strict(coterie("data", "mnist", "--json").stdout)["holds"] is None, (
        "showing a page must not download the data"
    )


def test_a_setting_has_a_default_a_type_and_a_description(coterie):
    page = strict(coterie("methods", "fedprox", "--json").stdout)
    assert "arXiv:1812.06127" in page["text"]
    (mu,) = [each for each in page["settings"] if each["key"] == "method.mu"]
    assert (mu["default"], mu["type"]) == (method_options("fedprox")["mu"], "number")
    assert mu["means"] in " ".join((inspect.getdoc(method_class("fedprox")) or "").split())
    assert {"samples, uniform"} == {each["type"] for each in page["settings"] if each["key"] == "method.weights"}
    assert "local.learning_rate" in {each["key"] for each in page["shared"]}


@pytest.mark.exhaustive
def test_the_page_of_a_method_measures_other_settings(coterie):
    # IFCA sends all k models to each client of the cohort and receives one.
    default, more = (
        strict(coterie("methods", "ifca", *args, "--json").stdout)["card"]["round"]
        for args in ([], ["--set", "method.clusters=6"])
    )
    assert default == {"train": [4.0, 1.0]}
    assert more == {"train": [6.0, 1.0]}


def test_the_page_of_a_method_with_defaults_runs_nothing(coterie, monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("the card was measured")

    monkeypatch.setattr("coterie.runs.method_card.measure_card", fail)
    assert coterie("methods", "fedavg").exit_code == 0
    assert coterie("methods", "fedavg", "--set", "method.weights=uniform").exit_code == 1


def test_estimate(coterie, tiny):
    cost = strict(coterie("estimate", *tiny, "--json").stdout)
    assert cost["seconds"]["total"] > 0
    assert set(cost["traffic"]) == {"down_bytes", "up_bytes"}
    assert cost["peak_rss_bytes"] > 0


def test_non_finite_numbers_become_null(coterie, tiny):
    # One step of rate 1e37 leaves finite weights of about 1e37; the summed loss of 32 test examples overflows.
    done = coterie("run", *tiny, "--json", "--set", "local.learning_rate=1e37", "--set", "local.steps=1")
    assert done.exit_code == 0, done.stderr
    assert strict(done.stdout)["test_loss"] is None


def test_descriptions_come_from_the_docstring():
    class Thing:
        """A thing.

        Attributes:
            first: A number that
                needs two lines.
            second: Short.

        More text: not an entry.
        """

    assert doc_entries(Thing, "Attributes") == {"first": "A number that needs two lines.", "second": "Short."}
    assert doc_entries(Thing, "Args") == {}


def test_types_are_described_in_words():
    assert type_text(int | Literal["auto"]) == "whole number or auto"
    assert type_text(tuple[int, ...]) == "list: whole number"
    assert type_text(Annotated[float, "at least 0"]) == "number"
    assert setting("a.b", bool, inspect.Parameter.empty, "").default == "required"
