"""An entry becomes runs: fragments are merged, variants and baselines get specs of their own, seeds start at 100."""

import re

import pytest

from coterie.data import files
from coterie.errors import SpecError
from coterie.reproduce import identity
from coterie.reproduce.fragments import merged
from coterie.reproduce.loading import entry, parse
from coterie.reproduce.planning import plan, plan_all
from coterie.runs.spec import Spec


def cells(planned):
    return {(cell.row, cell.column, cell.variant): cell for cell in planned.cells}


def test_later_fragments_take_precedence_and_a_new_name_discards_the_settings_of_the_old_one():
    parts = [{"method": {"name": "ifca", "clusters": 3}, "run": {"rounds": 5}}, {"run": {"seed": 1}}]
    assert merged(parts) == {"method": {"name": "ifca", "clusters": 3}, "run": {"rounds": 5, "seed": 1}}
    assert merged([*parts, {"method": {"clusters": 4}}])["method"] == {"name": "ifca", "clusters": 4}
    assert merged([*parts, {"method": "fedavg"}])["method"] == {"name": "fedavg"}


def test_each_seed_from_100_is_a_run_with_its_own_draw_of_the_data(tiny):
    found = cells(plan(tiny))["easy", "FedAvg", "as printed"].runs
    assert [run.spec.run.seed for run in found] == [100, 101]
    assert len({run.key for run in found}) == 2


def test_a_cell_that_the_program_does_otherwise_has_two_variants(tiny):
    found = cells(plan(tiny))
    assert list(found) == [
        ("easy", "FedAvg", "as printed"),
        ("easy", "IFCA", "as printed"),
        ("easy", "IFCA", "as coded"),
    ]
    printed, coded = (found["easy", "IFCA", each].spec.method.options for each in ("as printed", "as coded"))
    assert printed == {"clusters": 2}
    assert coded == {"clusters": 2, "agg": "first_only"}


def test_a_cell_may_have_no_variant_as_coded(tiny_text):
    one = parse("tiny", tiny_text + '\n[[cells]]\nrow = "easy"\ncolumn = "IFCA"\ncoded = false\n')
    assert {variant for _, _, variant in cells(plan(one))} == {"as printed"}


def test_quick_runs_some_cells_with_its_own_settings(tiny):
    (cell,) = plan(tiny, quick=True).cells
    assert (cell.column, cell.spec.run.rounds, len(cell.runs)) == ("FedAvg", 2, 1)


def test_a_maximum_of_rounds_shortens_longer_runs_and_their_baselines_only():
    shortened = plan(entry("flexcfl-fig6"), max_rounds=120)
    runs = [run for cell in shortened.cells for run in (*cell.runs, *cell.baselines)]
    assert {cell.spec.run.rounds for cell in shortened.cells} == {120}
    assert {run.spec.run.rounds for run in runs} <= {120}
    assert shortened.name == "flexcfl-fig6-120-rounds"
    longer = plan(entry("flexcfl-fig6"), max_rounds=1000)
    assert {cell.spec.run.rounds for cell in longer.cells} == {300}


def test_a_shortened_run_is_evaluated_in_its_last_round(tiny_text):
    one = parse("tiny", tiny_text + "\n[[cells]]\nrow = 'easy'\ncolumn = 'IFCA'\nspec.run = { evaluate_every = 3 }\n")
    assert cells(plan(one))["easy", "IFCA", "as printed"].spec.run.evaluate_every == 3
    assert cells(plan(one, max_rounds=2))["easy", "IFCA", "as printed"].spec.run.evaluate_every == 2


def test_patterns_choose_cells_and_all_must_match(tiny):
    assert [cell.variant for cell in plan(tiny, only=["ifca", "coded"]).cells] == ["as coded"]
    nothing = (
        r"No cell of tiny has a row, column or variant that matches CFL. Rows of tiny: easy; columns: FedAvg, IFCA"
    )
    with pytest.raises(SpecError, match=nothing):
        plan_all([tiny], only=["CFL"])


def test_a_pattern_stands_at_the_start_of_a_word(tiny):
    assert {cell.column for cell in plan(tiny, only=["avg"]).cells} == set()  # not in the middle, as MNIST in FEMNIST
    assert {cell.column for cell in plan(tiny, only=["*avg"]).cells} == {"FedAvg"}
    assert {cell.column for cell in plan(tiny, only=["fed"]).cells} == {"FedAvg"}
    assert {cell.variant for cell in plan(tiny, only=["printed"]).cells} == {"as printed"}


@pytest.mark.parametrize("pattern", ["", " ", "FedAvg|", "|FedAvg", "FedAvg||IFCA"])
def test_an_empty_part_of_a_pattern_is_refused(tiny, pattern):
    with pytest.raises(SpecError, match="has an empty part, which would match every cell"):
        plan_all([tiny], only=[pattern])


def test_entries_without_a_cell_that_matches_are_left_out(tiny, tiny_text):
    other = parse("other", tiny_text.replace('name = "easy"', 'name = "hard"'))
    assert [each.entry.name for each in plan_all([tiny, other], only=["hard"])] == ["other"]
    assert [each.entry.name for each in plan_all([tiny, other])] == ["tiny", "other"]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "tiny"),
        ({"seeds": 2}, "tiny"),  # as in the entry
        ({"seeds": 1}, "tiny-1-seed"),
        ({"quick": True}, "tiny-quick"),
        ({"quick": True, "seeds": 3}, "tiny-quick-3-seeds"),
        ({"max_rounds": 2}, "tiny-2-rounds"),
        ({"only": ["FedAvg", "as printed"]}, "tiny-fedavg-as-printed"),
    ],
)
def test_parts_of_a_table_have_folders_of_their_own(tiny, options, name):
    assert plan(tiny, **options).name == name


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ({}, "coterie reproduce tiny"),
        ({"seeds": 2}, "coterie reproduce tiny"),  # as in the entry
        ({"quick": True, "seeds": 3}, "coterie reproduce tiny --quick --seeds 3"),
        (
            {"only": ["as printed", "FedAvg|IFCA"], "max_rounds": 2},
            "coterie reproduce tiny --only 'as printed' --only 'FedAvg|IFCA' --max-rounds 2",
        ),
    ],
)
def test_a_plan_has_the_command_that_runs_it(tiny, options, command):
    assert plan(tiny, **options).command == command


def test_patterns_that_look_alike_have_different_folders(tiny):
    names = {
        plan(tiny, only=[pattern]).name for pattern in ("FedAvg|IFCA", "FedAvg*IFCA", "FedAvg IFCA", "x" * 90, "x" * 91)
    }
    assert len(names) == 5
    assert all(re.fullmatch(r"[a-z0-9.-]{1,75}", name) for name in names)


def test_a_pattern_may_have_alternatives(tiny):
    chosen = plan(tiny, only=["fedavg|ifca", "as printed"]).cells
    assert {(cell.column, cell.variant) for cell in chosen} == {("FedAvg", "as printed"), ("IFCA", "as printed")}


def test_a_pattern_that_is_a_name_does_not_choose_longer_names(tiny_text):
    more = """
[[rows]]
name = "easy, as coded but for the mean"
published = ["", "60.0"]

[[columns]]
name = "IFCA-MIG"
spec.method = "ifca-mig"
"""
    wide = tiny_text.replace('"60.0 ± 1.5"]', '"60.0 ± 1.5", "70.0"]')
    one = parse("tiny", wide + more.replace('["", "60.0"]', '["", "60.0", ""]'))

    def chosen(*only):
        return {(cell.row, cell.column, cell.variant) for cell in plan(one, only=only).cells}

    longer = "easy, as coded but for the mean"
    assert chosen("ifca", "EASY") == {("easy", "IFCA", "as printed"), ("easy", "IFCA", "as coded")}
    assert chosen("ifca*", "easy", "as printed") == {("easy", name, "as printed") for name in ("IFCA", "IFCA-MIG")}
    assert chosen("as coded") == {(row, "IFCA", "as coded") for row in ("easy", longer)}
    assert {row for row, _, _ in chosen("but for")} == {longer}


def test_a_value_that_is_not_defined_is_an_error_that_names_the_cell(tiny_text):
    one = parse("tiny", tiny_text.replace('"$k"', '"$m"'))
    with pytest.raises(SpecError, match=r"tiny: easy, IFCA: No value 'm' for a setting of a spec\. Known: k"):
        plan(one)


def test_a_baseline_that_names_its_method_has_none_of_the_settings_of_the_cell(tiny_text):
    text = tiny_text.replace('measure = "last_weighted"', 'measure = "improvement"\nbaseline.method = "ifca"')
    found = cells(plan(parse("tiny", text)))["easy", "IFCA", "as coded"]
    assert found.runs[0].spec.method.options == {"clusters": 2, "agg": "first_only"}
    assert found.baselines[0].spec.method.options == {}


def test_a_measure_that_compares_needs_a_baseline(tiny_text):
    with pytest.raises(SpecError, match="the measure of cell 'easy', 'FedAvg' needs a baseline"):
        plan(parse("tiny", tiny_text.replace('"last_weighted"', '"improvement"')))


def test_cells_without_data_have_no_runs_and_say_what_to_download(tiny_text, monkeypatch, tmp_path):
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path)
    text = tiny_text.replace('{ name = "blobs", clients = 8, samples = 20 }', '"cifar100-skew20"')
    found = plan(parse("tiny", text))
    assert not found.runs
    assert all("cifar-100-python.tar.gz into $COTERIE_DATA/cifar100" in cell.missing for cell in found.cells)


# --------------------------------------------------------------------------------------------------- names of runs


def key(**run):
    return identity.run_hash(Spec.from_dict({"data": "blobs", "run": run}))


def test_the_key_of_a_run_depends_on_its_settings_but_not_on_where_it_runs():
    assert key(rounds=5) != key(rounds=6)
    assert key(seed=100) != key(seed=101)
    assert key(rounds=5) == key(rounds=5, threads=2, checkpoint_every=1)


def test_a_default_that_is_written_out_does_not_change_the_key():
    assert key() == key(rounds=50)


def test_the_key_depends_on_the_sources_but_not_on_those_that_run_nothing(monkeypatch, tmp_path):
    def hashed(name: str, content: str) -> str:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
        monkeypatch.setattr(identity.coterie, "__path__", [str(tmp_path)])
        identity.sources_hash.cache_clear()
        return identity.sources_hash()

    try:
        first = hashed("methods/ifca.py", "a = 1")
        assert hashed("cli/app.py", "b = 1") == hashed("reports/view.py", "c = 1") == first
        assert hashed("methods/ifca.py", "a = 2") != first
    finally:
        identity.sources_hash.cache_clear()


def test_the_key_depends_on_the_size_of_the_data_files(monkeypatch, tmp_path):
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    keys = []
    for content in (b"subset", b"the whole set"):
        (tmp_path / "svhn.npz").write_bytes(content)
        keys.append(identity.run_hash(Spec.from_dict({"data": "svhn"})))
    assert keys[0] != keys[1]


def test_the_hash_of_a_spec_is_the_same_for_all_seeds():
    one, other = (Spec.from_dict({"data": "blobs", "run": {"seed": seed}}) for seed in (100, 101))
    assert identity.spec_hash(one) == identity.spec_hash(other)
    fixed = Spec.from_dict({"data": {"name": "blobs", "seed": 7}})
    assert identity.spec_hash(fixed) != identity.spec_hash(one)


def test_runs_that_cells_share_are_planned_once():
    # Two columns compare FedSim with FedAvg and FedProx, three show the last round of the same runs: with one seed and
    # one row, that is FedSim, FedAvg and FedProx in two variants each, FedAvg with uniform weights, and FedSim by round
    # robin.
    found = plan(entry("fedsim-table7"), seeds=1, only=["(0.5, 0.5)"])
    assert len(found.cells) == 10
    assert len(found.runs) == 8
