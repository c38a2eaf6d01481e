"""Runs with compressed updates: every method, interrupted runs, faults, and combinations that are refused."""

from __future__ import annotations

import pytest

import coterie
from coterie.errors import SpecError
from coterie.federation import Compression
from coterie.methods import METHODS
from coterie.runs.build import build
from coterie.runs.spec import Spec

SPEC = {
    "data": {"name": "digits", "clients": 8, "partition": "inverted", "clusters": 2},
    "local": {"epochs": 1},
    "run": {"rounds": 4, "clients_per_round": 5},
}
TOP_K = {"updates": "top-k", "fraction": 0.05}

#: Settings with which a method ends within a few rounds.
SETTINGS = {"flhc": {"warm_rounds": 1}, "srfca": {"init_steps": 5}}

#: Methods whose clients send no update of a model that they were sent: nothing, or their own models.
UNCOMPRESSED = {"local", "fedsoft"}
QUICK = ("fedavg", "ifca")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.exhaustive) for name in METHODS]
)
def test_every_method_runs_and_sends_less(name):
    up = {}
    for updates in ("none", "top-k"):
        plain = {**SPEC, "method": {"name": name, **SETTINGS.get(name, {})}, "compression": {"updates": updates}}
        session = build(Spec.from_dict(plain)).session
        for step in session.steps(2):
            assert not step.skipped
        up[updates] = session.traffic.total("up")
    assert up["top-k"] == up["none"] if name in UNCOMPRESSED else up["top-k"] < up["none"]


@pytest.mark.slow
@pytest.mark.parametrize("compression", [{"updates": "int8"}, TOP_K], ids=["int8", "top-k"])
@pytest.mark.parametrize("method", ["fedavg", "ifca"])
def test_an_interrupted_run_resumes_to_the_same_bytes(method, compression, tmp_path):
    spec = {**SPEC, "method": method, "compression": compression, "faults": {"drop": 0.2}}

    def stop(row):
        if row["t"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        coterie.run(spec, out=tmp_path / "stopped", on_round=stop)
    stopped, whole = coterie.resume(tmp_path / "stopped"), coterie.run(spec, out=tmp_path / "whole")
    read = [(record.path / "models.safetensors").read_bytes() for record in (stopped, whole)]
    assert read[0] == read[1]
    assert stopped.summary["traffic"] == whole.summary["traffic"]


def test_a_record_has_the_settings(tmp_path):
    record = coterie.run({**SPEC, "run": {"rounds": 1}, "compression": TOP_K}, out=tmp_path / "run")
    assert Spec.of(record.path / "spec.toml").compression == Compression(**TOP_K)
    # 650 parameters: ⌈32.5⌉ = 33 entries of 8 bytes from each of 8 clients.
    assert record.summary["traffic"]["by_purpose"]["train"]["up"] == 8 * 33 * 8


def test_the_settings_are_reached_from_the_command_line():
    assert Spec().with_settings(["compression.updates=top-k", "compression.fraction=0.2"]).compression.fraction == 0.2
    with pytest.raises(SpecError, match=r"No setting 'fractoin'.* Did you mean 'fraction'"):
        Spec.from_dict({"compression": {"fractoin": 0.1}})


def test_noise_on_models_that_were_sent_compressed_is_refused():
    with pytest.raises(SpecError, match=r"a compressed reply cannot carry such a model; use sign-flip"):
        build(Spec.from_dict({**SPEC, "attack": {"name": "noise"}, "compression": TOP_K}))


@pytest.mark.parametrize("rule", ["median", "trimmed-mean"])
def test_rules_that_drop_entries_that_few_clients_send_are_refused_with_top_k(rule):
    plain = {**SPEC, "aggregation": {"rule": rule}}
    with pytest.raises(SpecError, match=rf"aggregation\.rule = '{rule}' drops the entries .* or int8"):
        build(Spec.from_dict({**plain, "compression": TOP_K}))
    session = build(Spec.from_dict({**plain, "compression": {"updates": "int8"}})).session
    assert not session.step().skipped
