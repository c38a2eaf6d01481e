"""The table of methods: names, settings, and methods of other packages."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from importlib.metadata import EntryPoint
from typing import Literal

import pytest

from coterie.clients import LocalSGD
from coterie.errors import SpecError
from coterie.methods import METHODS, build, descriptions, documentation, method_class, names, settings_of
from coterie.methods.fedavg import FedAvg
from coterie.methods.global_model import Global
from coterie.methods.ifca import IFCA
from coterie.methods.local import Local
from coterie.methods.oracle import Oracle
from coterie.methods.protocol import from_run
from coterie.runs.spec import method_types

GIVEN = {"truth": {"a": 0}, "rounds": 17, "clients_per_round": 2, "clients": 3}


@pytest.fixture
def elsewhere(monkeypatch):
    """`elsewhere(mine="package:Class")`: install entry points of other packages."""

    def install(**points):
        found = [EntryPoint(name, value, "coterie.methods") for name, value in points.items()]
        real = importlib.metadata.entry_points

        def entry_points(**options):
            return found if options == {"group": "coterie.methods"} else real(**options)

        monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)

    return install


def test_every_name_in_the_table_builds_its_class():
    for name in METHODS:
        assert type(build(name, LocalSGD(), GIVEN)) is method_class(name)
    assert method_class("fedavg") is FedAvg
    assert method_class("global") is Global


def test_names_are_sorted_and_include_the_table():
    assert names() == sorted(names())
    assert set(METHODS) <= set(names())


def test_an_unknown_method_is_an_error_with_a_suggestion():
    with pytest.raises(SpecError, match=r"^No method 'ifac'\. Did you mean 'ifca'\? Known: .*fedavg, .*ifca, .*oracle"):
        build("ifac", LocalSGD(), GIVEN)


def test_an_unknown_setting_is_an_error_with_a_suggestion():
    text = r"^No setting 'cluster' of method ifca\. Did you mean 'clusters'\? Known: agg, averaging, .*weights$"
    with pytest.raises(SpecError, match=text):
        build("ifca", LocalSGD(), GIVEN, cluster=3)
    with pytest.raises(SpecError, match=r"^No setting 'weights' of method global\. Known: none$"):
        build("global", LocalSGD(), GIVEN, weights="samples")


def test_local_settings_and_values_from_the_run_are_not_settings_of_a_method():
    assert list(settings_of(FedAvg)) == ["weights"]
    assert list(settings_of(Oracle)) == ["weights"]
    assert list(settings_of(Local)) == ["budget"]
    assert "clusters" in settings_of(IFCA)
    assert "local" not in settings_of(IFCA)
    with pytest.raises(SpecError, match=r"^No setting 'rounds' of method local\. Known: budget$"):
        build("local", LocalSGD(), GIVEN, rounds=3)


def test_values_from_the_run_are_filled_in():
    local = LocalSGD(epochs=3)
    assert build("local", local, GIVEN) == Local(local, rounds=17, clients_per_round=2, clients=3)
    assert build("oracle", local, GIVEN, weights="uniform") == Oracle(local, weights="uniform", truth={"a": 0})


def test_settings_reach_the_method():
    method = build("ifca", LocalSGD(learning_rate=0.5), GIVEN, clusters=3, weights="samples")
    assert (method.clusters, method.weights, method.local.learning_rate) == (3, "samples", 0.5)


def test_a_preset_has_its_own_documentation_and_the_class_of_its_method():
    assert descriptions()["fedgrouprox"].startswith("FedGrouProx: FedGroup with a proximal term")
    assert "Attributes:" not in documentation("fedgrouprox")
    assert documentation("fedgroup").startswith("FedGroup: ")
    preset, method = settings_of(method_class("fedgrouprox")), settings_of(method_class("fedgroup"))
    assert list(preset) == list(method)
    assert [name for name in method if preset[name].default != method[name].default] == ["mu"]


def test_settings_with_bounds_keep_their_plain_types():
    types = method_types("fedgroup")
    assert types["clusters"] == int | Literal["auto"]
    assert types["mu"] is float


@dataclasses.dataclass(frozen=True)
class Mine:
    """A method of another package."""

    local: LocalSGD
    strength: float = 1.0
    clients: int = from_run("clients")


def test_a_method_of_another_package_is_found_by_its_entry_point(elsewhere, monkeypatch):
    elsewhere(mine="mine_package:Mine")
    monkeypatch.setattr(EntryPoint, "load", lambda point: Mine)
    assert names() == sorted([*METHODS, "mine"])
    assert build("mine", LocalSGD(), GIVEN, strength=2.0) == Mine(LocalSGD(), 2.0, clients=3)
    with pytest.raises(SpecError, match=r"^No setting 'strenght' of method mine\. Did you mean 'strength'\?"):
        build("mine", LocalSGD(), GIVEN, strenght=2.0)
    with pytest.raises(SpecError, match=r"^No method 'mien'\. Did you mean 'mine'\?"):
        build("mien", LocalSGD(), GIVEN)


def test_an_entry_point_does_not_replace_a_method_of_the_table(elsewhere):
    elsewhere(fedavg="coterie.methods.global_model:Global", other="coterie.methods.global_model:Global")
    assert method_class("fedavg") is FedAvg
    assert method_class("other") is Global
    assert names().count("fedavg") == 1
