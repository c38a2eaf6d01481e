"""Which runs are one line, which are one panel, and what they are called."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install 'coterie[figures]'")

from coterie.errors import RecordError, SpecError
from coterie.reports.figures.groups import groups_of, renamed
from coterie.runs.record import RunRecord

ANSWERS = [{"a": (0, 5)}]


def test_runs_that_differ_in_seed_and_technical_settings_are_one_group(write):
    runs = [
        write(ANSWERS, name="0"),
        write(ANSWERS, name="1", spec={"run": {"seed": 1, "threads": 1, "checkpoint_every": 3}}),
    ]
    (group,) = groups_of(runs)
    assert (group.label, group.panel, len(group.views)) == ("ifca", "", 2)


def test_runs_of_one_method_are_named_by_the_settings_that_differ(write):
    two = {"method": {"name": "ifca", "clusters": 2}}
    rates = {"method": {"name": "ifca", "clusters": 3}, "local": {"learning_rate": 0.5}}
    found = groups_of([write(ANSWERS, name="a", spec=two), write(ANSWERS, name="b", spec=rates)])
    # 0.03 is the default of this data set's learning rate
    default = found[0].views[0].spec["local"]["learning_rate"]
    assert [each.label for each in found] == [
        f"ifca, clusters 2, learning rate {default:g}",
        "ifca, clusters 3, learning rate 0.5",
    ]


def test_other_data_models_and_drift_are_panels_with_their_names(write):
    specs = {
        "plain": {},
        "mlp": {"model": {"name": "mlp"}},
        "drift": {"shift": {"name": "swap_all"}},
    }
    found = groups_of([write(ANSWERS, name=name, spec=spec) for name, spec in specs.items()])
    assert [each.panel for each in found] == ["mclr, no drift", "mlp, no drift", "mclr, swap all"]
    assert [each.label for each in found] == ["ifca"] * 3
    assert [each.place for each in found] == [0] * 3  # the same look in every panel


def test_one_setting_of_the_data_names_a_panel(write):
    runs = [write(ANSWERS, name=str(n), spec={"data": {"name": "blobs", "clients": n}}) for n in (8, 12)]
    assert [each.panel for each in groups_of(runs)] == ["clients 8", "clients 12"]


def test_a_mapping_gives_labels_and_a_folder_stands_for_its_records(write, tmp_path):
    write(ANSWERS, name="both/one")
    write(ANSWERS, name="both/two", spec={"run": {"seed": 1}})
    (group,) = groups_of({"Ours": tmp_path / "both"})
    assert (group.label, len(group.views)) == ("Ours", 2)


def test_dollar_signs_of_records_are_not_formulas(write):
    runs = [write(ANSWERS, name="a"), write(ANSWERS, name="b", spec={"data": {"name": "digits"}})]
    assert all("$" not in each.panel for each in groups_of(runs))
    from coterie.reports.figures.groups import plain

    assert plain("a$b") == "a\\$b"


def test_labels_replace_those_of_groups_and_unknown_ones_are_errors(write):
    groups = groups_of(write(ANSWERS))
    assert renamed(groups, {"ifca": "IFCA"})[0].label == "IFCA"
    with pytest.raises(SpecError, match=r"No method 'icfa' among the labels of these runs. Did you mean 'ifca'?"):
        renamed(groups, {"icfa": "IFCA"})


def test_what_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(RecordError, match="not written to a folder; run it with out="):
        groups_of(RunRecord({}, []))
    with pytest.raises(RecordError, match="There is no run to draw"):
        groups_of([])
    with pytest.raises(SpecError, match="Runs are records, their folders or views, got int"):
        groups_of(3)
    with pytest.raises(RecordError, match="There is no run"):
        groups_of(tmp_path / "nothing")
