"""Runs side by side."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.errors import RecordError
from coterie.reports.comparison_view import ClientPairs, ComparisonView, grouped
from coterie.reports.page.comparison_data import comparison_data
from coterie.reports.score_curves import PrimaryMetric
from coterie.reports.view import RunView

ACCURACY = PrimaryMetric("accuracy", "accuracy", greater_is_better=True, percent=True)


@pytest.fixture
def runs(write):
    """Two methods with two seeds each: fedavg 0.5 and 0.6; ifca 0.8 and 1.0 in the only round."""

    def one(method, seed, a, b):
        clusters = (0, 1) if method == "ifca" else (0, 0)
        answers = [dict(zip("ab", zip(clusters, (a, b), strict=True), strict=True))]
        return RunView.read(
            write(answers, name=f"{method}-{seed}", spec={"method": {"name": method}, "run": {"seed": seed}})
        )

    return [one("ifca", 1, 10, 10), one("ifca", 0, 9, 7), one("fedavg", 0, 4, 6), one("fedavg", 1, 6, 6)]


def test_runs_are_grouped_by_everything_but_the_seed(runs):
    found = grouped(runs)
    assert {label: [view.path.name for view in group] for label, group in found.items()} == {
        "ifca": ["ifca-0", "ifca-1"],
        "fedavg": ["fedavg-0", "fedavg-1"],
    }


def test_runs_of_one_method_are_told_apart_by_their_settings(write):
    views = [
        RunView.read(write([{"a": (0, 5)}], name=str(k), spec={"method": {"name": "ifca", "clusters": k}}))
        for k in (2, 3)
    ]
    assert list(grouped(views)) == ["ifca (clusters=2)", "ifca (clusters=3)"]


def test_the_reference_is_one_model_for_all(runs):
    view = ComparisonView.of(runs)
    assert list(view.groups) == ["fedavg", "ifca"]
    assert ComparisonView.of(runs, "ifca").reference == "ifca"
    with pytest.raises(RecordError, match=r"No method of this comparison 'ifac'[.] Did you mean 'ifca'"):
        ComparisonView.of(runs, "ifac")


def test_means_deviations_and_differences_over_seeds(runs):
    view = ComparisonView.of(runs)
    rows = {row["method"]: row for row in view.table}
    assert rows["ifca"]["last_ten"] == pytest.approx(0.9)
    # Deviation of 0.8 and 1.0: 0.1 · √2.
    assert rows["ifca"]["last_ten_deviation"] == pytest.approx(0.1 * 2**0.5)
    # Seed 0: 0.8 - 0.5, seed 1: 1.0 - 0.6.
    assert view.comparison.significance["ifca"]["difference"] == pytest.approx(0.35)
    curve = view.curves["ifca"]
    assert (curve.mean.tolist(), curve.round.tolist()) == (pytest.approx([0.9]), [1])
    assert curve.megabytes.tolist() == pytest.approx([150e-6])


def test_without_a_target_it_is_what_the_reference_reaches(runs):
    view = ComparisonView.of(runs)
    assert view.target == pytest.approx(0.55)
    assert {row.method: (row.rounds, row.bytes) for row in view.to_target} == {
        "fedavg": ([None, 1], [None, 150]),
        "ifca": ([1, 1], [150, 150]),
    }


def test_wins_and_losses_of_the_same_clients(runs):
    # ifca - fedavg. Seed 0: a 0.9 - 0.4, b 0.7 - 0.6. Seed 1: a and b 1.0 - 0.6. Four wins.
    pairs = ComparisonView.of(runs).client_pairs
    assert pairs.clients == ("a", "b", "a", "b")
    assert pairs.seeds == (0, 0, 1, 1)
    assert pairs.wins("ifca", "fedavg", ACCURACY) == (4, 0, 0)


def test_wins_losses_and_ties_of_three_clients():
    scores = {"x": np.array([0.5, 0.2, 0.3, np.nan]), "y": np.array([0.4, 0.9, 0.3, 1.0])}
    pairs = ClientPairs(tuple("abcd"), (0,) * 4, scores)
    assert pairs.wins("x", "y", ACCURACY) == (1, 1, 1)
    assert pairs.wins("x", "y", PrimaryMetric("loss", "loss", False, False)) == (1, 1, 1)


def test_unfinished_runs_are_left_out_and_named(runs, write):
    broken = RunView.read(write([{"a": (0, 5)}], name="broken", status="failed", summary={"reason": "too few"}))
    found = comparison_data(ComparisonView.of([*runs, broken]))
    assert [(each["name"], each["status"], each["reason"]) for each in found["excluded"]] == [
        ("broken", "failed", "too few")
    ]
    assert found["methods"] == ["fedavg", "ifca"]
    with pytest.raises(RecordError, match="None of these runs has finished"):
        ComparisonView.of([broken])


def test_methods_without_a_common_seed_are_compared_without_tests(runs):
    view = ComparisonView.of([runs[0], runs[2]])
    assert view.seeds == []
    assert view.comparison.significance["ifca"]["no_p"].startswith("clients or data are not those of the reference")
    assert view.client_pairs is None
    assert comparison_data(view)["client_wins"] is None


def test_runs_of_different_metrics_are_not_compared(runs, write):
    other = RunView.read(write([{"a": (0, 5)}], name="loss", spec={"run": {"primary_metric": "loss"}}))
    with pytest.raises(RecordError, match="is accuracy and loss"):
        ComparisonView.of([*runs, other])


def test_the_page_has_the_comparison_in_words_and_numbers(runs):
    found = comparison_data(ComparisonView.of(runs))
    assert found["headline"] == ["ifca has the best accuracy, 90.0 %; one model for all: 55.0 %."]
    cells = {row["method"]: row["cells"]["last_ten"] for row in found["table"]["rows"]}
    assert (cells["ifca"]["best"], cells["fedavg"]["best"]) == (True, False)
    (test,) = found["tests"]
    assert (test["a"], test["b"], test["n"]) == ("ifca", "fedavg", 2)
    # One-sided t-test of the differences 0.3 and 0.4: mean 0.35, standard error 0.05, t = 7 with one degree of freedom,
    # whose tail is 1/2 - arctan(7) / π.
    assert test["p"] == pytest.approx(0.5 - np.arctan(7) / np.pi, rel=1e-2)
    assert found["client_wins"]["pairs"] == [{"a": "fedavg", "b": "ifca", "wins": 0, "losses": 4, "ties": 0}]
    assert found["curves"]["fedavg"]["lower"] == pytest.approx([0.55 - 0.05 * 2**0.5], rel=1e-4)
