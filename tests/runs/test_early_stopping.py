"""The primary metric of lines, early stopping, and the best round."""

from __future__ import annotations

import pytest

from coterie.runs.early_stopping import EarlyStopping, best_rounds, primary_value


def line(t, validation, test=None, stage="train"):
    entry = None if validation is None else {"accuracy": {"weighted": validation}, "loss": 1.0, "metrics": {}}
    return {"t": t, "stage": stage, "accuracy": None if test is None else {"weighted": test}, "validation": entry}


def test_the_primary_metric_is_found_in_lines_and_validation_entries():
    row = {"accuracy": {"weighted": 0.5}, "test_loss": 2.0, "metrics": {"auroc": {"value": 0.7}}}
    assert [primary_value(row, name) for name in ("accuracy", "loss", "auroc", "ece")] == [0.5, 2.0, 0.7, None]
    assert primary_value({"accuracy": None, "loss": 3.0}, "loss") == 3.0
    assert primary_value({}, "accuracy") is None


def stops_after(values, patience, higher=True):
    stopping = EarlyStopping(patience, "accuracy", higher=higher)
    for t, value in enumerate(values):
        stopping.see(line(t, value))
        if stopping.stopped:
            return t
    return None


@pytest.mark.parametrize(
    ("values", "patience", "higher", "last"),
    [
        ([0.1, 0.5, 0.4, 0.5, 0.6], 2, True, 3),  # 0.4 and 0.5 are no better than 0.5
        ([0.1, 0.5, 0.4, 0.6, 0.5, 0.5], 2, True, 5),  # 0.6 starts the count again
        ([0.5, 0.4, 0.4, 0.4], 2, False, 3),
        ([0.5, 0.4, 0.3], 0, True, None),  # patience 0 never stops
        ([0.5, None, None], 2, True, None),  # without validation nothing is counted
    ],
)
def test_a_run_stops_after_evaluations_without_improvement(values, patience, higher, last):
    assert stops_after(values, patience, higher) == last


def test_evaluations_of_preparation_steps_do_not_count():
    stopping = EarlyStopping(1, "accuracy", higher=True, rows=[line(0, 0.5), line(-1, 0.1, stage="prepare")])
    assert not stopping.stopped
    stopping.see(line(1, 0.4))
    assert stopping.stopped


def test_the_best_round_is_chosen_on_validation_examples():
    rows = [line(0, 0.5, 0.9), line(1, 0.7, 0.6), line(2, 0.7, 0.8)]
    found = best_rounds(rows, [(0, 0), (1, 1), (2, 2)], "accuracy", higher=True)
    # Rounds 1 and 2 are equal: the first counts. On test examples round 0 would be chosen.
    assert found["best_round"] == {"t": 1, "step": 1, "metric": "accuracy", "validation": 0.7, "test": 0.6}
    assert found["best_round_on_test"] == {"t": 0, "metric": "accuracy", "test": 0.9}
    lowest = best_rounds(rows, [(0, 0), (1, 1), (2, 2)], "accuracy", higher=False)
    assert (lowest["best_round"]["t"], lowest["best_round_on_test"]["t"]) == (0, 1)


def test_without_scores_there_is_no_best_round():
    assert best_rounds([line(0, None)], [(0, 0)], "accuracy", higher=True) == {
        "best_round": None,
        "best_round_on_test": None,
    }
