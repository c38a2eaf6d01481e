"""Estimates of time and traffic."""

from __future__ import annotations

import importlib
import sys
import time
from types import SimpleNamespace

import pytest

import coterie
from coterie.errors import SpecError
from coterie.runs.estimate import _Clock, estimate
from coterie.runs.spec import Spec

#: No other test uses this image size, so these shapes are not compiled yet.
SPEC = {
    "data": {"name": "blobs", "clients": 8, "samples": 20, "side": 7},
    "run": {"rounds": 4, "clients_per_round": 4, "evaluate_every": 4},
}


@pytest.mark.exhaustive
def test_compilation_is_counted_once_and_only_in_the_estimate_that_compiled():
    # All four rounds of the run are measured, so the estimated total cannot exceed the time of the call.
    begun = time.perf_counter()
    first = estimate(SPEC)
    took = time.perf_counter() - begun
    parts = first["seconds"]
    assert parts["compile"] > 0
    assert parts["total"] <= took + 0.01
    added = sum(parts[key] for key in ("set_up", "preparing", "compile")) + 4 * parts["round"] + parts["scoring"]
    assert parts["total"] == pytest.approx(added, abs=0.02)
    again = estimate(Spec.of(SPEC))["seconds"]
    assert again["compile"] == 0
    assert again["total"] < parts["total"]


def test_laps_exclude_compilation_and_sum_it_up(monkeypatch):
    now = {"time": 10.0, "compiled": 100.0}
    module = importlib.import_module("coterie.runs.estimate")  # in `coterie.runs`, the function has that name
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now["time"]))
    monkeypatch.setattr(module, "compilations", lambda: SimpleNamespace(seconds=now["compiled"]))
    clock = _Clock()
    now.update(time=15.0, compiled=103.0)  # five seconds, three of them compiling
    assert clock.lap() == 2
    now.update(time=16.0, compiled=105.0)  # in one second, two threads compiled for a second each
    assert clock.lap() == 0
    now.update(time=20.0)
    assert clock.lap() == 4
    assert clock.compiled == 3 + 1


def test_traffic_is_extrapolated_to_all_rounds():
    short, long = (estimate(Spec.of({**SPEC, "run": {**SPEC["run"], "rounds": rounds}})) for rounds in (4, 40))
    assert {key: 10 * count for key, count in short["traffic"].items()} == long["traffic"]


@pytest.mark.exhaustive
def test_traffic_is_that_of_the_number_of_groups_that_fedgroup_chooses():
    spec = {"data": "blobs", "method": "fedgroup", "run": {"rounds": 6, "evaluate_every": 6}}
    run = coterie.run(spec).summary
    assert run["clusters"]["count"] == 4
    found = estimate(spec)
    assert found["traffic"] == {way: run["traffic"][way] for way in ("down_bytes", "up_bytes")}


def test_a_spec_may_be_a_dict_a_file_or_a_spec(tmp_path):
    file = tmp_path / "spec.toml"
    file.write_text(Spec.of(SPEC).to_toml())
    found = [coterie.estimate(spec) for spec in (SPEC, Spec.of(SPEC), str(file), file)]
    assert all(each["spec"] == found[0]["spec"] for each in found)
    assert all(each["traffic"] == found[0]["traffic"] for each in found)


def test_preparation_between_rounds_is_not_counted_as_a_round():
    # FL+HC runs one round of FedAvg, clusters in a preparation step, and goes on with rounds.
    method = {"name": "flhc", "warm_rounds": 1}
    assert estimate({**SPEC, "method": method})["tried_rounds"] == 4


def test_without_the_module_resource_the_memory_is_unknown(monkeypatch):
    # Windows does not have the module.
    monkeypatch.setitem(sys.modules, "resource", None)
    spec = {"data": {"name": "blobs", "clients": 4, "samples": 20}, "run": {"rounds": 1, "clients_per_round": 2}}
    assert estimate(spec)["peak_rss_bytes"] is None
    assert coterie.run(spec).summary["peak_rss_bytes"] is None


def test_more_clusters_than_clients_are_refused_before_anything_is_run():
    spec = {**SPEC, "method": {"name": "ifca", "clusters": 999_999_999}}
    with pytest.raises(SpecError, match=r"method\.clusters must be at most 8, .* got 999999999; give fewer"):
        estimate(spec)
