"""Differences, standard errors and claims, computed by hand; measures on hand-made records."""

import math
from dataclasses import replace

import numpy as np
import pytest

from coterie.reproduce.claims import check
from coterie.reproduce.loading import parse
from coterie.reproduce.measures import MEASURES, over_rounds
from coterie.reproduce.planning import plan
from coterie.reproduce.results import CellResult, EntryResult, evaluate
from coterie.reproduce.running import Probe
from coterie.reproduce.schema import Claim
from coterie.reproduce.table import result_cells, to_markdown, verdict_text
from coterie.runs.record import RunRecord


def record(*scores, coverage=None, **summary):
    """A record with these weighted accuracies, one per round; the mean over clients is 0.1 lower."""
    covered = coverage or [1.0] * len(scores)
    rows = [
        {"t": t, "stage": "train", "coverage": share, "accuracy": {"weighted": score, "mean": score - 0.1}}
        for t, (score, share) in enumerate(zip(scores, covered, strict=True))
    ]
    return RunRecord({"coverage": 1.0, **summary}, rows)


def measured(name, *records, **options):
    return MEASURES[name].of(*records, **options)


def test_difference_and_standard_error_over_seeds(tiny):
    # Published 60.0. Mean (58 + 60 + 65) / 3 = 61, so +1. Deviations -3, -1, 4: variance 26 / 2 = 13, and the standard
    # error is √13 / √3 = 2.0817.
    cell = plan(tiny).cells[1]
    found = CellResult(cell, (58.0, 60.0, 65.0))
    assert found.mean == 61
    assert found.difference == 1
    assert found.standard_error == pytest.approx(math.sqrt(13 / 3))


def test_one_seed_has_no_standard_error_and_a_seed_without_a_value_leaves_no_mean(tiny):
    cell = plan(tiny).cells[1]
    assert CellResult(cell, (58.0,)).standard_error is None
    assert CellResult(cell, (58.0, None)).mean is None


def test_the_best_round_is_chosen_among_those_in_which_every_client_has_a_model():
    found = measured("best_weighted", record(0.9, 0.7, 0.8, coverage=[0.5, 1, 1]))
    assert (found.value, found.coverage) == (pytest.approx(80), 1)


def test_without_full_coverage_the_best_round_shows_its_coverage():
    found = measured("best_weighted", record(0.9, 0.7, coverage=[0.5, 0.8]))
    assert (found.value, found.coverage) == (pytest.approx(90), 0.5)


def test_the_best_round_of_the_current_models_is_found_where_a_run_scores_others():
    late = record(0.9, 0.7, 0.8)
    for line, (score, coverage) in zip(late.rounds, [(0.95, 0.5), (0.6, 1), (0.85, 1)], strict=True):
        line["current_models"] = {"coverage": coverage, "accuracy": {"weighted": score}}
    found = measured("best_weighted_of_current_models", late)
    assert (found.value, found.coverage) == (pytest.approx(85), 1)
    assert measured("best_weighted", late).value == pytest.approx(90)
    # A run that scores the current models has no second scores.
    assert measured("best_weighted_of_current_models", record(0.9, 0.7)).value == pytest.approx(90)


def test_measures_over_rounds():
    one = record(0.2, 0.9, 0.6)
    assert measured("median_weighted", one).value == pytest.approx(60)
    assert measured("rounds_to", one, target=60).value == 2
    assert measured("rounds_to", one, target=95).value is None


def test_a_curve_has_converged_when_it_stays_near_its_final_value():
    # Mean client accuracies 0.5, 0.8, 0.7, 0.8, …; the mean of the last ten is 0.8, and 95 % of it is 0.76: the third
    # round is below, so that the curve stays above from the fourth round on.
    scores = [0.6, 0.9, 0.8, *[0.9] * 10]
    assert measured("converged", record(*scores), share=0.95).value == 4


def test_the_improvement_is_a_mean_over_rounds_with_the_deviation_over_rounds():
    # Seed 1 gains 10 and 30 points, seed 2 gains 30 and 10: means 20 and 20. Averaged over seeds the gain is 20 in both
    # rounds, so that its deviation over rounds is 0. With the first seed alone it is 10.
    ours, others = [record(0.5, 0.7), record(0.7, 0.5)], [record(0.4, 0.4), record(0.4, 0.4)]
    gains = [measured("improvement", *pair).value for pair in zip(ours, others, strict=True)]
    assert gains == pytest.approx([20, 20])
    assert over_rounds(ours, others) == pytest.approx(0, abs=1e-12)
    assert over_rounds(ours[:1], others[:1]) == pytest.approx(10)


def test_gains_and_traffic_are_relative_to_the_baseline():
    one = record(0.5, 0.8, traffic={"down_bytes": 90, "up_bytes": 36})
    other = record(0.6, 0.7, traffic={"down_bytes": 60, "up_bytes": 40})
    assert measured("gain_of_best", one, other).value == pytest.approx(10)
    assert measured("traffic_ratio", one, other).value == pytest.approx(1.26)


def test_the_correlation_is_over_all_pairs_of_clients(tmp_path, monkeypatch):
    # Embeddings 0, 1 and 3 on a line: EDC distances 1, 3, 2 of the pairs ab, ac, bc. MADC twice as large plus one: 1.
    points = np.array([[0.0], [1.0], [3.0]])
    twice = 2 * np.abs(points - points.T) + 1
    evidence = {
        "edc": {"embedding": points, "clients": list("abc")},
        "madc": {"distances": twice, "clients": list("abc")},
    }
    monkeypatch.setattr(RunRecord, "evidence", lambda self, step: evidence[self.summary["which"]])
    found = measured("correlation", record(0.5, which="edc"), record(0.5, which="madc"))
    assert found.value == pytest.approx(1)


# ------------------------------------------------------------------------------------------------------------ claims

MEANS = {("a", "x"): 1.0, ("a", "y"): 2.0, ("b", "x"): 3.0, ("b", "y"): 2.5}


@pytest.fixture
def grid(tiny_text):
    start, _, rest = tiny_text.partition("[[columns]]")
    rest = rest[rest.index("[quick_run]") :].replace('columns = ["FedAvg"]', "")
    lines = "".join(
        f'[[{kind}s]]\nname = "{name}"\n' for kind, name in zip(["column"] * 2 + ["row"] * 2, "xyab", strict=True)
    )
    return parse("grid", start + lines + rest)


@pytest.mark.parametrize(
    ("claim", "holds"),
    [
        (Claim("", "at_least", low=1), True),
        (Claim("", "at_least", low=1.5), False),
        (Claim("", "between", rows=("b",), low=2.5, high=3), True),
        (Claim("", "at_most", columns=("y",), high=2), False),
        (Claim("", "rising", rows=("a",)), True),
        (Claim("", "rising"), False),  # row b falls from 3 to 2.5
        (Claim("", "falling", rows=("b",)), True),
        (Claim("", "rising", along="rows"), True),
        (Claim("", "highest", best="b"), True),  # 3 > 1 and 2.5 > 2
        (Claim("", "highest", best="y"), False),
        (Claim("", "at_least", rows=("c",), low=1), None),  # nothing was measured
    ],
)
def test_a_claim_holds_for_every_row_or_column_or_not_at_all(grid, claim, holds):
    assert check(claim, MEANS, grid).holds is holds


@pytest.mark.parametrize(
    ("claim", "outcome"),
    [
        # Of the four cells b, x is missing. Row a rises; columns have one value each, and are not compared.
        (Claim("", "rising"), "holds for the cells that were measured (2 of 4)"),
        (Claim("", "falling"), "does not hold"),
        (Claim("", "at_least", low=1), "holds for the cells that were measured (3 of 4)"),
        (Claim("", "at_least", low=1, rows=("a",)), "holds"),
        (Claim("", "highest", best="b"), "holds for the cells that were measured (2 of 4)"),
    ],
)
def test_a_claim_about_cells_of_which_some_are_missing_says_how_many_were_measured(grid, claim, outcome):
    known = {place: value for place, value in MEANS.items() if place != ("b", "x")}
    assert f": {outcome}. Values: " in verdict_text(check(claim, known, grid))


@pytest.mark.parametrize(
    ("claim", "errors", "within_error"),
    [
        (Claim("", "rising"), {}, False),  # row b falls by 0.5
        (Claim("", "rising"), {("b", "x"): 0.3, ("b", "y"): 0.3}, False),  # √(0.3² + 0.3²) = 0.42
        (Claim("", "rising"), {("b", "x"): 0.3, ("b", "y"): 0.4}, True),  # √(0.3² + 0.4²) = 0.5
        (Claim("", "at_least", low=1.5), {("a", "x"): 0.5}, True),  # 1 is lower by 0.5
        (Claim("", "highest", best="y"), {("b", "y"): 0.4}, False),
        (Claim("", "highest", best="y"), {("b", "y"): 0.6}, True),
        (Claim("", "highest", best="b"), {("b", "y"): 0.4}, False),  # it holds: 3 > 1 and 2.5 > 2
        (Claim("", "highest", best="b"), {("b", "y"): 0.6}, True),  # by less than the error
    ],
)
def test_an_outcome_within_the_standard_errors_is_marked(grid, claim, errors, within_error):
    assert check(claim, MEANS, grid, errors).within_error is within_error


def test_the_values_of_a_claim_are_shown_with_their_standard_errors(grid):
    verdict = check(Claim("", "rising", rows=("a",)), MEANS, grid, {("a", "x"): 0.25})
    assert verdict.evidence == "1 ± 0.25, 2"


# ------------------------------------------------------------------------------------------------------------- tables


def test_the_table_has_published_measured_and_difference_of_both_variants(tiny):
    planned = plan(tiny)
    cells = (
        CellResult(planned.cells[0], (49.0, 51.0)),
        CellResult(planned.cells[1], (61.0, 61.0), coverage=0.975),
        CellResult(planned.cells[2], failure="the models are not finite"),
    )
    result = EntryResult(planned, cells, (), {"jax": "0.7"}, {}, 12.0)
    header, lines = result_cells(result)
    assert header == ["row", "column", "published", "as printed", "difference", "as coded", "difference"]
    # Mean 50, deviation √2, standard error √2 / √2 = 1.
    assert lines[0] == ["easy", "FedAvg", "50.0", "50.0 ± 1.0", "+0.0 ± 1.0", "–", "–"]
    assert lines[1][3:] == ["61.0 ± 0.0 (coverage 97.5 %)", "+1.0 ± 0.0", "failed", "–"]
    slightly_less = EntryResult(planned, (CellResult(planned.cells[0], (49.99, 49.99)),), (), {}, {}, 1.0)
    assert result_cells(slightly_less)[1][0][4] == "+0.0 ± 0.0"  # not -0.0
    text = to_markdown(result)
    assert "- Failed (easy, IFCA, as coded): the models are not finite" in text
    assert "One client per cluster is averaged." in text
    assert "Seeds 100, 101" in text
    assert planned.cells[0].spec_hash in text


def test_small_fractions_have_two_decimals_also_if_the_published_value_has_fewer(tiny_text):
    # 25 of 100 clients in the wrong cluster; the published value is 0.0.
    planned = plan(parse("tiny", tiny_text.replace('measure = "last_weighted"', 'measure = "misclustering"')))
    result = EntryResult(planned, (CellResult(planned.cells[1], (0.25, 0.25)),), (), {}, {}, 1.0)
    assert result_cells(result)[1][0][3] == "0.25 ± 0.00"


def test_the_texts_about_draws_of_one_data_set_are_all_named(tiny):
    planned = plan(tiny)
    outcomes = {
        key: Probe(
            {"pni": {"mean": 1.0}}, {"versions": {}, "data": "synthetic", "source": text, "seconds": {"total": 1}}
        )
        for key, text in zip(planned.runs, ["α = 0", "α = 1"] * len(planned.runs), strict=False)
    }
    probes = replace(planned, cells=tuple(replace(cell, measure={"name": "pni"}) for cell in planned.cells))
    assert dict(evaluate(probes, outcomes).sources) == {"synthetic": "α = 0; α = 1"}
