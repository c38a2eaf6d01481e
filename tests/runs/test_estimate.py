"""What a run will cost, before it is run."""

from __future__ import annotations

import importlib
import time
from types import SimpleNamespace

import pytest

from coterie.runs.estimate import _Clock, estimate
from coterie.runs.spec import Spec

#: A side of its own, so that no other test has compiled for these images.
SPEC = {
    "data": {"name": "blobs", "clients": 8, "samples": 20, "side": 7},
    "run": {"rounds": 4, "clients_per_round": 4, "evaluate_every": 4},
}


def test_compiling_is_counted_once_and_only_what_this_estimate_compiled():
    # Four rounds are tried and four are asked for, so all that is added up has happened within the call.
    begun = time.perf_counter()
    first = estimate(Spec.of(SPEC))
    took = time.perf_counter() - begun
    parts = first["seconds"]
    assert parts["compile"] > 0
    assert parts["total"] <= took + 0.01
    added = sum(parts[key] for key in ("set_up", "preparing", "compile")) + 4 * parts["round"] + parts["scoring"]
    assert parts["total"] == pytest.approx(added, abs=0.02)
    again = estimate(Spec.of(SPEC))["seconds"]
    assert again["compile"] == 0
    assert again["total"] < parts["total"]


def test_a_lap_leaves_compiling_out_and_adds_it_up(monkeypatch):
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


def test_traffic_is_that_of_all_rounds():
    short, long = (estimate(Spec.of({**SPEC, "run": {**SPEC["run"], "rounds": rounds}})) for rounds in (4, 40))
    assert {key: 10 * count for key, count in short["traffic"].items()} == long["traffic"]
