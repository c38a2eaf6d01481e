"""Settings of method objects: they are recorded, settings of the spec that would be ignored are refused."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.clients import LocalSGD
from coterie.errors import SpecError
from coterie.methods.fedavg import FedAvg
from coterie.runs.method_settings import MAX_ENTRIES, spec_of, with_settings_of
from coterie.runs.spec import Spec
from coterie.testing import tiny_data, tiny_task

RUN = {"rounds": 3, "clients_per_round": 2, "checkpoint_every": 1}
OBJECTS = {"task": tiny_task(), "data": tiny_data()}


@dataclass(frozen=True)
class Tuned(FedAvg):
    """FedAvg with settings of many types."""

    clusters: int = 4
    names: tuple[str, ...] = ("a", "b")
    limit: float | None = None
    warm: LocalSGD = field(default_factory=lambda: LocalSGD(epochs=3))
    rule: Callable[..., Any] = max
    table: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class NoLocal:
    """FedAvg with settings that are not in a field `local`."""

    rate: float = 0.1

    def __getattr__(self, name):
        return getattr(FedAvg(LocalSGD(epochs=1, learning_rate=self.rate)), name)


class NotADataclass:
    """FedAvg as an ordinary object."""

    def __init__(self, rate=0.1):
        self.inner = FedAvg(LocalSGD(epochs=1, learning_rate=rate))

    def __getattr__(self, name):
        return getattr(self.inner, name)


def recorded(folder):
    return tomllib.loads((folder / "spec.toml").read_text())


def run(spec, method, **more):
    return coterie.run({"run": RUN, **spec}, method=method, **OBJECTS, **more)


# ------------------------------------------------------------------------------------------------- settings of the spec


def test_a_local_setting_that_would_not_reach_the_object_is_refused():
    text = (
        "local.learning_rate = 0.5 of the spec differs from the method object FedAvg, which has 0.03; set it on the "
        "object, and remove it from the spec"
    )
    with pytest.raises(SpecError, match=re.escape(text)):
        run({"local": {"learning_rate": 0.5}}, FedAvg(LocalSGD()))


def test_a_default_that_the_spec_states_is_refused_too_if_the_object_has_another_value():
    with pytest.raises(SpecError, match=r"local\.learning_rate = 0\.03 of the spec differs"):
        run({"local": {"learning_rate": 0.03}}, FedAvg(LocalSGD(learning_rate=0.5)))


def test_settings_in_a_file_and_in_a_spec_object_are_refused_like_those_in_a_dict(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text("[local]\nepochs = 7\n")
    for source in (path, str(path), Spec.from_dict({"local": {"epochs": 7}})):
        with pytest.raises(SpecError, match=r"local\.epochs = 7 of the spec differs from the method object FedAvg"):
            coterie.run(source, method=FedAvg(LocalSGD()), **OBJECTS)


def test_a_method_of_the_spec_beside_an_object_is_refused():
    for given in ("ifca", {"name": "ifca", "clusters": 2}):
        with pytest.raises(SpecError, match=r"The spec has the method 'ifca', and the method object FedAvg was given"):
            run({"method": given}, FedAvg(LocalSGD()))


def test_a_setting_of_the_method_beside_an_object_is_refused():
    with pytest.raises(SpecError, match=r"method\.clusters = 2 of the spec would not reach the method object FedAvg;"):
        run({"method": {"clusters": 2}}, FedAvg(LocalSGD()))


@pytest.mark.parametrize("method", [NoLocal(), NotADataclass()], ids=["no field local", "not a dataclass"])
def test_local_settings_are_refused_if_the_object_has_none(method):
    name = type(method).__name__
    with pytest.raises(SpecError, match=rf"local\.epochs = 2 of the spec would not reach the method object {name}"):
        run({"local": {"epochs": 2}}, method)


def test_settings_that_the_object_has_too_are_accepted():
    given = {"local": {"learning_rate": 0.5, "epochs": 1, "trainable_layers": []}}
    spec = spec_of({"run": RUN, **given}, FedAvg(LocalSGD(epochs=1, learning_rate=0.5)))
    assert (spec.local.learning_rate, spec.local.epochs) == (0.5, 1)
    assert spec.run.rounds == 3


def test_a_local_section_that_is_no_table_gets_the_usual_message():
    with pytest.raises(SpecError, match=r"\[local\] must be a table of settings, got 3"):
        run({"local": 3}, FedAvg(LocalSGD()))


# ------------------------------------------------------------------------------------------------------- in the record


def test_the_record_has_the_real_settings_of_the_object(tmp_path):
    method = Tuned(LocalSGD(epochs=1, learning_rate=0.5, batch_size=8), clusters=3, table={"x": 1})
    record = run({}, method, out=tmp_path / "run")
    spec = recorded(tmp_path / "run")
    assert spec["local"]["learning_rate"] == 0.5
    assert (spec["local"]["epochs"], spec["local"]["batch_size"]) == (1, 8)
    assert spec["method"] == {
        "name": "Tuned",
        "class": f"{__name__}.Tuned",
        "clusters": 3,
        "names": ["a", "b"],
        "weights": "samples",
        "warm": {**spec["local"], "epochs": 3, "learning_rate": 0.03, "batch_size": 10},
        "rule": "builtins.max",
        "table": {"x": 1},
    }
    assert record.summary["method"] == "Tuned"


def test_an_object_without_local_settings_leaves_the_section_out(tmp_path):
    run({}, NoLocal(0.2), out=tmp_path / "run")
    spec = recorded(tmp_path / "run")
    assert "local" not in spec
    assert spec["method"] == {"name": "NoLocal", "class": f"{__name__}.NoLocal", "rate": 0.2}


def test_the_record_says_if_the_settings_are_not_known(tmp_path):
    run({}, NotADataclass(), out=tmp_path / "run")
    spec = recorded(tmp_path / "run")
    assert "local" not in spec
    assert spec["method"] == {
        "name": "NotADataclass",
        "class": f"{__name__}.NotADataclass",
        "settings": "not recorded: the method is not a dataclass",
    }


def test_arrays_and_large_mappings_are_recorded_by_hash():
    def entry(value):
        return with_settings_of(Spec(), Tuned(LocalSGD(), table=value)).method.options["table"]

    large = {f"client {i}": i for i in range(MAX_ENTRIES + 1)}
    assert re.fullmatch(r"sha256 [0-9a-f]{64}", entry(large))
    assert entry(large) == entry(dict(reversed(large.items())))
    assert entry(large) != entry({**large, "client 0": 9})
    assert entry(np.zeros(3)) != entry(np.ones(3))
    assert entry({"w": np.zeros(3)}) == {"w": entry(np.zeros(3))}
    assert entry(np.float32(0.5)) == 0.5
    assert entry({2, 1}) == [1, 2]
    assert entry(object()) == "builtins.object"


def test_a_field_called_name_does_not_replace_the_name_of_the_method():
    made = dataclasses.make_dataclass("Labeled", [("name", str, "mine")], bases=(NoLocal,), frozen=True)
    options = with_settings_of(Spec(), made()).method
    assert (options.name, options.options["name_"]) == ("Labeled", "mine")


def test_the_recorded_spec_runs_again_with_the_object(tmp_path):
    method = Tuned(LocalSGD(epochs=1, learning_rate=0.5))
    first = run({}, method, out=tmp_path / "run")
    again = coterie.run(tmp_path / "run" / "spec.toml", method=method, **OBJECTS)
    assert [row["loss"] for row in again.rounds] == [row["loss"] for row in first.rounds]
    with pytest.raises(SpecError, match=r"method\.clusters = 4 of the spec differs from the method object Tuned"):
        coterie.run(tmp_path / "run" / "spec.toml", method=dataclasses.replace(method, clusters=5), **OBJECTS)


# -------------------------------------------------------------------------------------------------------------- resume


class Interrupted(Exception):
    pass


def interrupted(folder, **objects):
    def stop(row):
        if row["t"] == 1:
            raise Interrupted

    with pytest.raises(Interrupted):
        coterie.run({"run": RUN}, out=folder, on_round=stop, **OBJECTS, **objects)
    return folder


def test_a_run_is_resumed_with_an_equal_object(tmp_path):
    folder = interrupted(tmp_path / "run", method=Tuned(LocalSGD(learning_rate=0.5)))
    whole = run({}, Tuned(LocalSGD(learning_rate=0.5)))
    resumed = coterie.resume(folder, method=Tuned(LocalSGD(learning_rate=0.5)), **OBJECTS)
    assert [row["loss"] for row in resumed.rounds] == [row["loss"] for row in whole.rounds]


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (Tuned(LocalSGD()), "local.learning_rate was 0.5 when the run began, and the method object Tuned has 0.03"),
        (Tuned(LocalSGD(learning_rate=0.5), clusters=5), "method.clusters was 4 when the run began"),
        (Tuned(LocalSGD(learning_rate=0.5), limit=1.0), "method.limit was None when the run began"),
        (FedAvg(LocalSGD(learning_rate=0.5)), "method.class was"),
    ],
    ids=["local", "method", "was None", "class"],
)
def test_a_run_is_not_resumed_with_other_settings(tmp_path, method, text):
    folder = interrupted(tmp_path / "run", method=Tuned(LocalSGD(learning_rate=0.5)))
    with pytest.raises(SpecError, match=re.escape(text)):
        coterie.resume(folder, method=method, **OBJECTS)


def test_a_run_with_an_object_is_not_resumed_without_it(tmp_path):
    folder = interrupted(tmp_path / "run", method=FedAvg(LocalSGD()))
    text = (
        "This run began with a method object of class coterie.methods.fedavg.FedAvg; continue it in Python, with an "
        "equal object: coterie.resume(path, method=...)"
    )
    with pytest.raises(SpecError, match=re.escape(text)):
        coterie.resume(folder, **OBJECTS)


def test_a_run_without_an_object_is_not_resumed_with_one(tmp_path):
    folder = interrupted(tmp_path / "run")
    with pytest.raises(SpecError, match=r"This run began with the method 'fedavg' of its spec, not with an object"):
        coterie.resume(folder, method=FedAvg(LocalSGD()), **OBJECTS)
