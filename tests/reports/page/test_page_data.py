"""The data of a page."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from coterie.reports.comparison_view import ComparisonView
from coterie.reports.page import run_parts
from coterie.reports.page.page_data import FORMAT, page_data, run_data
from coterie.reports.page.plain import number, quantized
from coterie.reports.page.summary_parts import MAX_CLUSTERS
from coterie.reports.view import RunView
from coterie.runs.client_facts import RecordedFacts

FOUR = {"a": (0, 10), "b": (1, 8), "c": (0, 6), "d": (1, 4)}
DISTANCES = np.array([[0, 6, 1, 6], [6, 0, 6, 2], [1, 6, 0, 6], [6, 2, 6, 0]], float)


def facts(truth=(0, 1, 0, 0)):
    labels = np.array([[5, 0, 1], [0, 2, 0], [3, 0, 0], [0, 0, 4]])
    return RecordedFacts(tuple("abcd"), labels.sum(axis=1), np.array(truth), labels)


@pytest.fixture
def run(write):
    evidence = {0: {"clients": list("abcd"), "labels": np.array([0, 1, 0, 1]), "distances": DISTANCES}}
    return run_data(RunView.read(write([FOUR, FOUR], facts=facts(), evidence=evidence)))


def test_a_page_has_one_run_and_is_json(write):
    data = page_data([RunView.read(write([FOUR]))])
    assert (data["format"], data["kind"], data["comparison"], data["live"]) == (FORMAT, "run", None, None)
    assert data["title"] == "ifca on blobs, seed 0"
    json.dumps(data, allow_nan=False)


def test_the_matrix_is_ordered_by_cluster_and_quantized(run):
    matrix = run["matrix"]
    assert sorted(matrix["order"][:2]) == [0, 2]
    assert matrix["cluster"] == [0, 0, 1, 1]
    values = np.frombuffer(base64.b64decode(matrix["values"]), np.uint8).reshape(4, 4)
    assert (matrix["min"], matrix["max"]) == (0, 6)
    # 1 of 6 is 42.5 of 255, 2 of 6 is 85.
    assert values[0].tolist() == [0, 42, 255, 255]
    assert values[3].tolist() == [255, 255, 85, 0]
    assert matrix["dendrogram"]["height"] == 6


def test_clients_are_columns_with_rings_and_labels(run):
    clients = run["clients"]
    assert clients["name"] == list("abcd")
    # Of cluster 1, b has true cluster 1 and d has 0; of a tie the lowest true cluster counts.
    assert clients["truth_matches"] == [True, False, True, True]
    assert clients["labels"] == ["0 ×5, 2 ×1", "1 ×2", "0 ×3", "2 ×4"]
    assert clients["score"] == [1, 0.8, 0.6, 0.4]
    assert clients["attacker"] is None


def test_labels_are_summed_per_cluster(run):
    assert run["labels"]["per_cluster"] == {"0": [8, 0, 1], "1": [0, 2, 4]}
    assert run["labels"]["classes"] == ["0", "1", "2"]


def test_movements_have_nodes_for_every_column(run):
    moves = run["movements"]
    assert moves["steps"] == [{"label": "round 1", "round": 1}, {"label": "round 2", "round": 2}]
    assert {"step": 1, "cluster": 0, "clients": 2} in moves["nodes"]
    assert {"step": 0, "from": 1, "to": 1, "clients": 2, "drifted": 0, "flagged": 0} in moves["links"]


def test_with_drift_map_and_matrix_say_that_their_values_may_be_older_than_the_clusters(write):
    evidence = {0: {"clients": list("abcd"), "labels": np.array([0, 1, 0, 1]), "distances": DISTANCES}}
    lines = [{}, {"shifted": ["a"]}]
    found = run_data(RunView.read(write([FOUR, FOUR], lines=lines, facts=facts(), evidence=evidence)))
    assert all("when a client was last clustered" in found[part]["note"] for part in ("map", "matrix"))


def test_the_map_points_to_the_rows_of_the_table(run):
    assert run["map"]["client"] == [0, 1, 2, 3]
    assert run["map"]["note"] is None


def test_many_points_are_counted_in_a_grid(monkeypatch, write):
    monkeypatch.setattr(run_parts, "MAX_POINTS", 3)
    losses = np.array([[0.0, 0.0], [9.0, 9.0], [0.0, 0.0], [9.0, 9.0]])
    folder = write([FOUR], evidence={0: {"clients": list("abcd"), "losses": losses}}, facts=facts())
    found = run_data(RunView.read(folder))["map"]
    # a and c: one cell, one cluster, one true cluster; b and d: one cell and cluster, two true clusters.
    assert found["aggregated"]
    assert sorted(found["count"]) == [1, 1, 2]
    assert "grid, 4 in all" in found["note"]


def test_many_rows_of_the_matrix_are_sampled_from_every_cluster(monkeypatch, write):
    monkeypatch.setattr(run_parts, "MAX_ROWS", 2)
    evidence = {0: {"clients": list("abcd"), "labels": np.array([0, 1, 0, 1]), "distances": DISTANCES}}
    found = run_data(RunView.read(write([FOUR], evidence=evidence)))["matrix"]
    assert set(found["cluster"]) == {0, 1}
    assert found["n"] < 4
    assert found["note"] == f"A sample of {found['n']} of 4 clients, from every cluster."


def test_of_many_clusters_the_largest_are_drawn(write):
    clients = {str(each): (each, 5) for each in range(MAX_CLUSTERS + 5)} | {"more": (MAX_CLUSTERS + 4, 5)}
    run = run_data(RunView.read(write([clients])))
    assert len(run["sizes"]["clusters"]) == MAX_CLUSTERS
    assert str(MAX_CLUSTERS + 4) in run["sizes"]["clusters"]
    assert run["sizes"]["note"] == f"The {MAX_CLUSTERS} largest of {MAX_CLUSTERS + 5} clusters are shown."
    others = [node for node in run["movements"]["nodes"] if node["cluster"] == run_parts.OTHERS]
    assert [node["clients"] for node in others] == [len(clients) - 1 - run_parts.MAX_MOVING]


def test_a_slim_run_has_nothing_per_client(write):
    run = run_data(RunView.read(write([FOUR])), slim=True)
    assert [run[key] for key in ("map", "matrix", "clients", "labels", "movements")] == [None] * 5
    assert run["curves"]["round"] == [1]


def test_runs_of_a_comparison_have_clients_unless_there_are_too_many(monkeypatch, write):
    views = [RunView.read(write([FOUR], name=str(seed), spec={"run": {"seed": seed}})) for seed in (0, 1)]
    found = page_data(views, ComparisonView.of(views))
    assert found["runs"][1]["clients"]["name"] == list("abcd")
    assert not any(each["help"] for each in found["runs"][1]["settings"])
    monkeypatch.setattr("coterie.reports.page.page_data.MAX_COMPARED", 7)
    assert [run["clients"] for run in page_data(views, ComparisonView.of(views))["runs"]] == [None, None]


def test_a_run_that_ended_early_has_the_command_that_continues_it(write):
    folder = write([FOUR], name="my run", status=None)
    assert run_data(RunView.read(folder))["resume"] == f"coterie resume '{folder}'"
    remote = write([FOUR], name="remote", status="failed", lines=[{"network": {}}])
    assert run_data(RunView.read(remote))["resume"] == f"coterie serve --resume {remote}"
    assert run_data(RunView.read(write([FOUR], name="done")))["resume"] == ""


def test_the_coverage_of_a_comparison_is_that_of_the_last_ten_rounds_and_left_out_if_complete(write):
    # Twelve rounds; in all but the last two the method has assigned a model to half of the clients: (8 · 0.5 + 2)/10.
    lines = [{"coverage": 0.5}] * 10 + [{"coverage": 1.0}] * 2
    half = RunView.read(write([FOUR] * 12, name="half", lines=lines))
    full = RunView.read(write([FOUR] * 12, name="full", spec={"method": {"name": "fedavg"}}))
    table = page_data([half, full], ComparisonView.of([half, full]))["comparison"]["table"]
    (coverage,) = (column for column in table["columns"] if column["label"] == "coverage")
    found = {row["method"]: row["cells"][coverage["key"]]["mean"] for row in table["rows"]}
    assert found == pytest.approx({"ifca": 0.6, "fedavg": 1.0})
    other = RunView.read(write([FOUR] * 12, name="other", spec={"method": {"name": "fedprox"}}))
    columns = page_data([full, other], ComparisonView.of([full, other]))["comparison"]["table"]["columns"]
    assert "coverage" not in [column["label"] for column in columns]


def test_a_run_that_failed_before_its_first_round_is_shown(write):
    run = run_data(RunView.read(write([], status="diverged", summary={"reason": "not finite"})))
    assert (run["status"], run["reason"]) == ("diverged", "not finite")
    assert [run[key] for key in ("map", "matrix", "clients", "movements")] == [None] * 4


def test_events_privacy_and_drift_come_from_the_lines(write):
    lines = [
        {"privacy": {"epsilon": 1.5, "delta": 0.01}},
        {"skipped": "no reply", "shifted": ["a"], "privacy": {"epsilon": 2.5, "delta": 0.01}},
    ]
    privacy = {"max_update_norm": 1.0, "noise_multiplier": 1.0, "min_cluster_size": 0}
    privacy |= {"epsilon": 2.5, "delta": 0.01, "not_covered": []}
    run = run_data(RunView.read(write([FOUR, FOUR], lines=lines, summary={"privacy": privacy})))
    assert [(each["round"], each["kind"]) for each in run["curves"]["events"]] == [(2, "shift"), (2, "skipped")]
    assert run["privacy"]["over_rounds"] == {"round": [1, 2], "epsilon": [1.5, 2.5]}
    assert run["privacy"]["words"].startswith("ε = 2.5 at δ = 0.01")
    assert run["drift"]["shifted"] == {"round": [2], "clients": [1]}
    assert run["faults"]["skipped"] == [{"round": 2, "reason": "no reply"}]


def test_settings_name_their_default_and_the_command_repeats_the_run(write):
    spec = {"method": {"name": "ifca", "clusters": 3}, "run": {"seed": 7}}
    run = run_data(RunView.read(write([FOUR], spec=spec)))
    changed = {f"{each['section']}.{each['key']}": each["value"] for each in run["settings"] if each["changed"]}
    assert changed["method.clusters"] == 3
    assert changed["run.seed"] == 7
    assert "data.seed" not in changed  # it follows run.seed
    assert "--clusters 3" in run["command"]
    assert "--seed 7" in run["command"]
    assert all(each["help"] for each in run["settings"] if each["section"] == "run")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (float("nan"), None),
        (float("inf"), None),
        (0.123456789, 0.12346),
        (3.0, 3),
        (7, 7),
        (1234567, 1234567),
    ],
)
def test_numbers_are_short_and_never_nan(value, expected):
    assert number(value) == expected


def test_a_constant_matrix_is_quantized_to_zero():
    content, low, high = quantized(np.full((2, 2), 4.0))
    assert (base64.b64decode(content), low, high) == (bytes(4), 4.0, 4.0)
