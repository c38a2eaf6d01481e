"""Tables from records alone."""

from __future__ import annotations

import pytest

from coterie.errors import RecordError, SpecError
from coterie.reports import table

FEDAVG = {"method": {"name": "fedavg"}}


def runs(write):
    # fedavg: 50 and 70 %, mean 60, deviation √(10² + 10²) = 14.1.
    # ifca: 90 and 80 %, mean 85, deviation √(5² + 5²) = 7.1.
    return [
        write([{"a": (0, 5)}], name="fedavg-0", spec=FEDAVG),
        write([{"a": (0, 7)}], name="fedavg-1", spec={**FEDAVG, "run": {"seed": 1}}),
        write([{"a": (0, 8)}], name="ifca-1", spec={"run": {"seed": 1}}),
        write([{"a": (0, 9)}], name="ifca-0"),
    ]


def test_latex_has_means_deviations_and_the_best_in_bold(write):
    lines = table(runs(write)).splitlines()
    assert lines[0].startswith(r"\begin{tabular}{lrr")
    assert lines[4].startswith(r"fedavg & 60.0 $\pm$ 14.1 & ")
    assert lines[5].startswith(r"ifca & \textbf{85.0 $\pm$ 7.1} & ")


def test_markdown_and_csv_have_the_labels_that_are_given(write):
    folders = runs(write)
    assert "| FedAvg | 60.0 ± 14.1 |" in table(folders, "markdown", labels={"fedavg": "FedAvg"})
    header, first, *_ = table(folders, "csv").splitlines()
    # Seeds are paired whatever the order of the folders: the differences are 0.9 - 0.5 and 0.8 - 0.7, their mean 0.25.
    last = dict(zip(header.split(","), table(folders, "csv").splitlines()[2].split(","), strict=True))
    assert first.startswith("fedavg,2,")
    assert float(last["difference"]) == pytest.approx(0.25)


def test_runs_that_cannot_be_compared_are_refused(write):
    folders = runs(write)
    other = write([{"a": (0, 5)}], name="other", spec={"data": {"name": "digits"}})
    with pytest.raises(SpecError, match="same model and drift; got blobs; digits"):
        table([*folders, other])
    going = write([{"a": (0, 5)}], name="going", spec={"method": {"name": "local"}}, status=None)
    with pytest.raises(RecordError, match=r"is not finished .*; continue it with: coterie resume"):
        table([*folders, going])
    with pytest.raises(SpecError, match=r"No format 'tex'. "):
        table(folders, "tex")
