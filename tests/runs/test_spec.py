"""Spec, dicts, TOML and flags; defaults; unknown keys."""

from __future__ import annotations

import dataclasses
import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coterie
from coterie.clients import LocalSGD
from coterie.errors import SpecError
from coterie.federation import Faults
from coterie.methods import METHODS
from coterie.runs.resolve import fill_defaults, resolve
from coterie.runs.settings_conversion import parse_setting
from coterie.runs.spec import SECTIONS, RunSettings, Spec, method_options

share = st.floats(0, 1, allow_nan=False)
positive = st.floats(0, 1e6, allow_nan=False)
count = st.integers(1, 10**6)

local = st.fixed_dictionaries(
    {},
    optional={
        "epochs": count,
        "steps": st.integers(0, 10**6),
        "batch_size": st.integers(0, 512),
        "learning_rate": positive,
        "weight_decay": positive,
        "mu": positive,
        "momentum": st.floats(0, 0.999),
        "trainable_layers": st.lists(st.sampled_from(["dense0", "dense1"]), unique=True),
    },
)
run = st.fixed_dictionaries(
    {},
    optional={
        "rounds": count,
        "clients_per_round": st.integers(0, 1000),
        "seed": st.integers(0, 2**62),
        "sampler": st.sampled_from(["uniform", "sweep", "availability"]),
        "stragglers": share,
        "target": share,
        "threads": st.integers(0, 64),
    },
)
method = st.one_of(
    st.fixed_dictionaries({"name": st.sampled_from(["fedavg", "local", "global", "oracle"])}),
    st.fixed_dictionaries({"name": st.just("fedprox")}, optional={"mu": positive}),
    st.fixed_dictionaries(
        {"name": st.just("ifca")},
        optional={"clusters": count, "averaging": st.sampled_from(["models", "gradients"]), "balanced_share": share},
    ),
)
data = st.one_of(
    st.fixed_dictionaries({"name": st.just("blobs")}, optional={"clients": count, "noise": positive}),
    st.fixed_dictionaries({"name": st.just("synthetic")}, optional={"iid": st.booleans(), "alpha": share}),
    # A path may look like a TOML value.
    st.fixed_dictionaries({"name": st.sampled_from(["./1.5", "true/", './a "b"/ü', "../c d\\e", "./x=y"])}),
)
model = st.one_of(
    st.fixed_dictionaries({"name": st.sampled_from(["auto", "mclr"])}),
    st.fixed_dictionaries({"name": st.just("mlp")}, optional={"widths": st.lists(count, min_size=1, max_size=3)}),
)
plain = st.fixed_dictionaries({}, optional={"data": data, "model": model, "method": method, "local": local, "run": run})


@given(plain)
def test_a_spec_round_trips_through_dicts_and_toml(given_):
    spec = Spec.from_dict(given_)
    assert Spec.from_dict(spec.to_dict()) == spec
    assert Spec.from_dict(tomllib.loads(spec.to_toml())) == spec
    for section, values in given_.items():
        assert spec.to_dict()[section].items() >= values.items()


@given(plain)
def test_a_spec_round_trips_through_flags(given_):
    # JSON strings, numbers, booleans and lists are valid TOML.
    settings = [
        f"{section}.{key}={json.dumps(value, ensure_ascii=False)}"
        for section, values in given_.items()
        for key, value in values.items()
    ]
    assert Spec().with_settings(settings) == Spec.from_dict(given_)


@pytest.mark.parametrize(
    ("text", "value"),
    [("data.name=blobs", "blobs"), ("data.name = blobs", "blobs"), ('data.name="blobs"', "blobs")],
)
def test_a_flag_needs_no_quotes(text, value):
    assert Spec().with_settings([text]).data.name == value


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("run.rounds=3", ("run.rounds", 3)),
        (" local.learning_rate = 0.1 ", ("local.learning_rate", 0.1)),
        ("data.name=./1.5", ("data.name", "./1.5")),
        ('data.name="1.5"', ("data.name", "1.5")),
        ("data.name=./x=y", ("data.name", "./x=y")),
        ("data.ignore=[patient id, nr]", ("data.ignore", ["patient id", "nr"])),  # a shell removes quotes
        ("data.ignore=[]", ("data.ignore", [])),
        ("data.name=[a]b", ("data.name", "[a]b")),
        ("ifca.clusters=4", ("ifca.clusters", 4)),  # `compare` takes the name of a method instead of a section
    ],
)
def test_a_setting_on_the_command_line_becomes_a_path_and_a_value(text, pair):
    assert parse_setting(text) == pair


@pytest.mark.parametrize("text", ["rounds=3", "run.rounds", "run.=3", ".rounds=3", ""])
def test_a_setting_without_section_key_or_value_is_rejected(text):
    with pytest.raises(SpecError, match=r"--set takes section\.key=value, such as local\.learning_rate=0\.1, got"):
        parse_setting(text)


@given(plain)
def test_values_replace_settings_without_conversion_to_text(given_):
    values = {f"{section}.{key}": value for section, part in given_.items() for key, value in part.items()}
    assert Spec().with_values(values) == Spec.from_dict(given_)


def test_a_name_is_applied_before_the_other_settings_of_its_section():
    spec = Spec.from_dict({"method": {"name": "ifca", "clusters": 7}})
    changed = spec.with_values({"method.mu": 0.1, "method.name": "fedprox"})
    assert (changed.method.name, changed.method.options) == ("fedprox", {"mu": 0.1})


def test_a_new_name_drops_the_settings_of_the_old_one():
    spec = Spec.from_dict({"method": {"name": "ifca", "clusters": 7}})
    assert spec.with_settings(["method.name=ifca"]).method.options == {"clusters": 7}
    assert spec.with_settings(["method.name=fedavg"]).method.options == {}


@pytest.mark.parametrize("section", ["local", "run", "faults"])
def test_an_unknown_key_of_a_fixed_section_is_rejected_with_a_suggestion(section):
    kind = {"local": LocalSGD, "run": RunSettings, "faults": Faults}[section]
    for field in dataclasses.fields(kind):
        wrong = field.name + "x"
        with pytest.raises(SpecError, match=rf"No setting '{wrong}' in \[{section}\]\. Did you mean '{field.name}'\?"):
            Spec.from_dict({section: {wrong: 1}})


@pytest.mark.parametrize("name", [name for name in METHODS if method_options(name)])
def test_an_unknown_key_of_a_method_is_rejected_with_a_suggestion(name):
    for key in method_options(name):
        with pytest.raises(SpecError, match=rf"No setting '{key}x' of method {name}\. Did you mean '{key}'\?"):
            fill_defaults(Spec.from_dict({"method": {"name": name, f"{key}x": 1}}))


@pytest.mark.parametrize("section", SECTIONS)
def test_an_unknown_section_is_rejected_with_a_suggestion(section):
    with pytest.raises(SpecError, match=rf"No section of a spec '{section}s'\. Did you mean '{section}'\?"):
        Spec.from_dict({f"{section}s": {}})


def test_filled_defaults_are_visible():
    spec = fill_defaults(Spec.from_dict({"data": {"name": "blobs", "clients": 8}, "model": "mlp", "method": "ifca"}))
    shown = spec.to_dict()
    assert shown["data"]["clients"] == 8
    assert shown["data"]["noise"] == 0.1
    assert shown["model"]["widths"] == [128]
    assert shown["method"]["clusters"] == 4
    assert shown["local"] == {**dataclasses.asdict(LocalSGD()), "trainable_layers": []}
    assert fill_defaults(spec) == spec


def test_the_seed_of_the_run_is_the_default_seed_of_the_data():
    spec = Spec.from_dict({"data": "blobs", "run": {"seed": 5}})
    assert fill_defaults(spec).data.options["seed"] == 5
    assert fill_defaults(spec.with_settings(["data.seed=2"])).data.options["seed"] == 2


def test_a_relative_path_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    resolved = fill_defaults(Spec.from_dict({"data": "./mine.csv"}))
    assert resolved.data.name == str(tmp_path / "mine.csv")
    assert fill_defaults(resolved) == resolved


def test_integers_and_equal_floats_are_converted():
    spec = fill_defaults(Spec.from_dict({"data": {"name": "blobs", "clients": 8.0, "noise": 1}}))
    assert (spec.data.options["clients"], spec.data.options["noise"]) == (8, 1.0)
    assert isinstance(spec.data.options["noise"], float)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"name": "./mine.csv", "classes": "abc"}, "data.classes must be a whole number or nothing, got 'abc'"),
        ({"name": "./mine.csv", "classes": True}, "data.classes must be a whole number or nothing, got True"),
        ({"name": "blobs", "clients": "abc"}, "data.clients must be a whole number, got 'abc'"),
        (
            {"name": "blobs", "relation": "turned"},
            "data.relation must be one of 'rotated', 'inverted', .*, got 'turned'",
        ),
        ({"name": "femnist-200", "compat_prefix": 1}, "data.compat_prefix must be true or false, got 1"),
    ],
)
def test_options_of_data_have_the_types_of_their_loader(data, text):
    with pytest.raises(SpecError, match=text):
        fill_defaults(Spec.from_dict({"data": data}))


@pytest.mark.parametrize("classes", [3, None])
def test_an_optional_number_takes_a_number_or_none(classes):
    assert (
        fill_defaults(Spec.from_dict({"data": {"name": "./mine.csv", "classes": classes}})).data.options["classes"]
        == classes
    )


@pytest.mark.parametrize("method", ["fedavg", "ifca"])
def test_a_recorded_spec_runs_again_to_the_same_bytes(method, tmp_path):
    tiny = {"data": {"name": "blobs", "clients": 6, "samples": 20}, "run": {"rounds": 3, "seed": 4}, "method": method}
    first = coterie.run(tiny, out=tmp_path / "first")
    again = coterie.run(tmp_path / "first" / "spec.toml", out=tmp_path / "again")
    for name in ("spec.toml", "models.safetensors"):
        assert (first.path / name).read_bytes() == (again.path / name).read_bytes()
    for row, other in zip(first.rounds, again.rounds, strict=True):
        assert {**row, "seconds": 0} == {**other, "seconds": 0}


@pytest.mark.parametrize(("given", "kept"), [("gap", "gap"), ("1.5", 1.5), ("2", 2.0), ("inf", float("inf"))])
def test_a_setting_that_is_a_number_or_a_word_accepts_both(given, kept):
    spec = fill_defaults(Spec().with_settings(["method.name=srfca", f"method.threshold={given}"]))
    assert spec.method.options["threshold"] == kept
    assert Spec.from_dict(tomllib.loads(spec.to_toml())).method.options["threshold"] == kept
    with pytest.raises(SpecError, match=r"method\.threshold must be a number or .*gap.*, got 'wide'"):
        fill_defaults(Spec().with_settings(["method.name=srfca", "method.threshold=wide"]))


@pytest.mark.parametrize(
    ("data", "model", "clients_per_round"),
    [
        ({"name": "blobs", "clients": 8}, "mclr", 8),
        ({"name": "blobs", "clients": 12}, "mclr", 10),
        ({"name": "regression", "clients": 4}, "linear-regression", 4),
    ],
)
def test_a_resolved_spec_leaves_nothing_to_decide(data, model, clients_per_round):
    found = resolve(Spec.from_dict({"data": data, "run": {"seed": 3}}))
    assert found.spec.model.name == found.task.name == model
    assert found.spec.model.options["l2"] == 0.0
    assert found.spec.run.clients_per_round == clients_per_round
    assert found.spec.data.options["seed"] == 3
    assert len(found.about.trainable) == data["clients"]
    assert resolve(found.spec).spec == found.spec
    assert Spec.from_dict(tomllib.loads(found.spec.to_toml())).to_toml() == found.spec.to_toml()


def test_settings_of_the_default_model_are_checked():
    with pytest.raises(SpecError, match=r"No setting 'l3' of model mclr\. Known: l2, normalize"):
        resolve(Spec.from_dict({"data": {"name": "blobs", "clients": 4}, "model": {"name": "auto", "l3": 1.0}}))
