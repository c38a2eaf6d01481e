"""Comparisons and records as text, data frames and HTML."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

import coterie
from coterie.runs.comparison import COLUMNS, Comparison, comparison_of
from coterie.runs.record import RunRecord

HOSTILE = "<script>alert(1)</script>|a_b&\\"


def row(method, **values):
    names = [*COLUMNS, *(f"{name}_deviation" for name in COLUMNS)]
    return {"method": method, "seeds": 2, **dict.fromkeys(names), **values}


def comparison(other=HOSTILE):
    first = row("fedavg", last_ten=0.5, last_ten_deviation=0.01, last_ten_coverage=1.0, down_bytes=2_000_000.0)
    second = row(other, last_ten=0.75, last_ten_deviation=0.02, last_ten_coverage=1.0, down_bytes=500_000.0)
    test = {"difference": 0.25, "t_test": 0.01, "t_test_holm": 0.02, "wilcoxon": 0.25, "no_p": None}
    records = {"fedavg": [RunRecord({}, [])] * 2, other: [RunRecord({}, [])] * 2}
    return Comparison(records, [first, second], {other: test}, "fedavg")


def test_markdown_has_means_deviations_and_p_in_the_columns_with_values():
    assert comparison("ifca").to_markdown() == (
        "| method | accuracy % | MB down | p |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| fedavg | 50.0 ± 1.0 | 2.00 | – |\n"
        "| ifca | 75.0 ± 2.0 | 0.50 | 0.020 |\n"
    )


def test_markdown_shows_the_metric_that_was_tested():
    # The headline is the log loss; the accuracy is known as well, but p is not about it.
    names = ("log_loss", "log_loss_worst_tenth", "log_loss_deviation", "log_loss_coverage")
    table = [
        row("fedavg", last_ten=0.5, **dict(zip(names, (1.25, 2.5, 0.125, 1.0), strict=True))),
        row("ifca", last_ten=0.75, **dict(zip(names, (0.75, 1.5, 0.25, 1.0), strict=True))),
    ]
    records = {"fedavg": [RunRecord({}, [])], "ifca": [RunRecord({}, [])]}
    assert Comparison(records, table, {}, "fedavg", "log_loss").to_markdown() == (
        "| method | log_loss | worst 10 % of clients |\n"
        "| --- | ---: | ---: |\n"
        "| fedavg | 1.25 ± 0.125 | 2.5 |\n"
        "| ifca | 0.75 ± 0.25 | 1.5 |\n"
    )


def test_a_method_with_a_model_per_client_has_no_adjusted_rand_index():
    table = [row("local", last_ten=0.5, adjusted_rand=0.0), row("ifca", last_ten=0.75, adjusted_rand=0.5)]
    records = {"local": [RunRecord({"clusters": {"adapted": True}}, [])], "ifca": [RunRecord({}, [])]}
    found = Comparison(records, table, {}, "local")
    assert found.to_markdown().splitlines()[2:] == ["| local | 50.0 | – |", "| ifca | 75.0 | 0.50 |"]
    assert found.table[0]["adjusted_rand"] == 0  # the table itself is not changed


def test_markdown_escapes_names():
    last = comparison().to_markdown().splitlines()[-1]
    assert last.startswith(r"| &lt;script>alert(1)&lt;/script>\|a_b&amp;\\ | 75.0")


def test_scores_that_read_the_same_are_all_the_best_and_costs_are_not():
    # 75.04 and 75.01 % both read 75.0; of the adjusted Rand indices 0.5 is the highest.
    table = [
        row("fedavg", last_ten=0.5, adjusted_rand=0.25, down_bytes=1e6),
        row("ifca", last_ten=0.7504, adjusted_rand=0.5, down_bytes=1e6),
        row("cfl", last_ten=0.7501, adjusted_rand=0.25, down_bytes=1e6),
    ]
    records = {each["method"]: [RunRecord({}, [])] for each in table}
    lines = Comparison(records, table, {}, "fedavg").to_latex().splitlines()[4:7]
    assert lines == [
        r"fedavg & 50.0 & 0.25 & 1.00 \\",
        r"ifca & \textbf{75.0} & \textbf{0.50} & 1.00 \\",
        r"cfl & \textbf{75.0} & 0.25 & 1.00 \\",
    ]


def test_the_lowest_loss_is_the_best_but_the_highest_adjusted_rand_index():
    table = [row("fedavg", test_loss=1.5, adjusted_rand=0.5), row("ifca", test_loss=0.5, adjusted_rand=0.25)]
    records = {"fedavg": [RunRecord({}, [])], "ifca": [RunRecord({}, [])]}
    lines = Comparison(records, table, {}, "fedavg", "test_loss").to_latex().splitlines()[4:6]
    assert lines == [r"fedavg & 1.5 & \textbf{0.50} \\", r"ifca & \textbf{0.5} & 0.25 \\"]


def test_a_single_method_is_not_the_best():
    only = Comparison({"ifca": [RunRecord({}, [])]}, [row("ifca", last_ten=0.5)], {}, "ifca")
    assert "textbf" not in only.to_latex()


def test_latex_is_a_tabular_with_escaped_names():
    assert comparison("ifca_%&").to_latex() == (
        "\\begin{tabular}{lrrr}\n"
        "\\toprule\n"
        "method & accuracy \\% & MB down & p \\\\\n"
        "\\midrule\n"
        "fedavg & 50.0 $\\pm$ 1.0 & 2.00 & -- \\\\\n"
        "ifca\\_\\%\\& & \\textbf{75.0 $\\pm$ 2.0} & 0.50 & 0.020 \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
    )


def test_csv_and_frame_have_all_columns_in_full_precision():
    found = comparison()
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [each["method"] for each in rows] == ["fedavg", HOSTILE]
    assert (rows[1]["last_ten"], rows[1]["t_test_holm"], rows[0]["t_test_holm"]) == ("0.75", "0.02", "")
    frame = found.to_frame()
    assert frame.loc[HOSTILE, "difference"] == 0.25
    assert set(frame.columns) == set(rows[0]) - {"method"}


def test_the_coverage_is_shown_if_it_is_below_1():
    found = comparison("ifca")
    found.table[1]["last_ten_coverage"] = 0.5
    assert "| coverage % |" in found.to_markdown()


def test_the_seconds_of_a_run_are_without_loading_its_data():
    # The first run of a comparison loads the data, 2 s, for the others, which need 0.1 s to find them in memory.
    def records(total, setup):
        return [RunRecord({"seconds": {"total": total, "setup": setup}, "accuracy": {"weighted_last_ten": 0.5}}, [])]

    found = comparison_of({"fedavg": records(3.0, 2.0), "ifca": records(1.6, 0.1)})
    assert [row["seconds"] for row in found.table] == pytest.approx([1.0, 1.5])


def test_a_comparison_has_a_short_repr():
    assert repr(comparison("ifca")) == "Comparison(fedavg, ifca; seeds: 2, headline: last_ten)"


@pytest.mark.parametrize(
    "shown",
    [
        comparison(),
        RunRecord({"method": HOSTILE, "data": HOSTILE, "accuracy": {"weighted": 0.5}}, [], Path("/<b>")),
        RunRecord({}, [{}], Path("/<b>")),
        coterie.data.from_arrays({"<b>": ([[0.0], [1.0]], [0, 1])}, name=HOSTILE),
    ],
    ids=["comparison", "record", "unfinished record", "data"],
)
def test_html_for_notebooks_is_escaped(shown):
    page = shown._repr_html_()
    assert "<table>" in page
    assert "<script>" not in page
    assert "<b>" not in page.replace("<div><b>", "")  # the title


def test_html_of_a_record_has_its_figures():
    summary = {"method": "ifca", "data": "digits", "rounds": 60, "accuracy": {"weighted": 0.91234}}
    page = RunRecord(summary, [])._repr_html_()
    assert "<b>ifca on digits</b>" in page
    assert "<tr><th>accuracy, weighted</th><td>0.9123</td></tr>" in page
    assert "<tr><th>path</th><td>not written</td></tr>" in page


def test_data_have_a_short_repr():
    data = coterie.data.from_arrays(
        {"a": ([[0.0, 1.0]] * 5, [0, 1, 0, 1, 0]), "b": ([[1.0, 1.0]] * 5, [1, 1, 0, 0, 1])}
    )
    text = repr(data)
    assert text.startswith(f"FederatedData({data.name!r}: clients 2, training examples ")
    assert text.endswith("input shape (2,), classes 2)")
