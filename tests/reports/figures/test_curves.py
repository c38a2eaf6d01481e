"""Lines over rounds have the numbers of the record."""

from __future__ import annotations

import logging

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install 'coterie[figures]'")

from matplotlib.figure import Figure

from coterie.errors import RecordError, SpecError
from coterie.reports import curves

# Ten test examples each: (5 + 7) / 20 = 60 %, then (9 + 8) / 20 = 85 %.
ANSWERS = [{"a": (0, 5), "b": (1, 7)}, {"a": (0, 9), "b": (1, 8)}]


def test_the_line_of_a_run_has_its_accuracies_in_percent(write):
    ax = curves(write(ANSWERS))
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[1, 60], [2, 85]])
    assert ax.lines[0].get_label() == "ifca"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("round", "test accuracy (%)")


def test_seeds_are_one_line_with_a_band_of_one_standard_deviation(write):
    # Seed 0: 60 %, seed 1: (9 + 7) / 20 = 80 %. Mean 70, deviation √(10² + 10²) = 14.142...
    first = write(ANSWERS[:1], name="first")
    second = write([{"a": (0, 9), "b": (1, 7)}], name="second", spec={"run": {"seed": 1}})
    ax = curves([first, second])
    assert len(ax.lines) == 1
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[1, 70]])
    band = ax.collections[0].get_paths()[0].get_extents()
    np.testing.assert_allclose([band.y0, band.y1], [70 - 200**0.5, 70 + 200**0.5])


def test_without_a_band_only_the_line_is_drawn(write):
    runs = [write(ANSWERS, name=str(seed), spec={"run": {"seed": seed}}) for seed in range(2)]
    assert not curves(runs, band=False).collections


@pytest.mark.parametrize(
    ("quantity", "values", "label"),
    [
        ("train_loss", [2.0, 1.5], "training loss"),  # 2 - t / 2
        ("test_loss", [1.0, 0.9], "test loss"),
        ("discrepancy", [0.1, 0.1], "discrepancy"),
        ("worst_tenth", [50, 80], "test accuracy, worst tenth (%)"),
        ("coverage", [100, 100], "coverage (%)"),
        ("accuracy", [60, 85], "accuracy"),
    ],
)
def test_other_quantities_are_drawn_by_name(quantity, values, label, write):
    ax = curves(write(ANSWERS), quantity=quantity)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), values)
    assert ax.get_ylabel() == ("test accuracy (%)" if quantity == "accuracy" else label)


def test_the_horizontal_axis_can_be_megabytes_without_evaluation(write):
    # 100 bytes down and 50 up in each round
    ax = curves(write(ANSWERS), against="megabytes")
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [150e-6, 300e-6])
    assert ax.get_xlabel() == "traffic (MB)"


def test_a_run_without_the_quantity_is_left_out_with_a_warning(write, caplog):
    full = write(ANSWERS, name="full")
    bare = write(ANSWERS, name="bare", spec={"method": {"name": "local"}}, lines=[{"discrepancy": None}] * 2)
    with caplog.at_level(logging.WARNING):
        ax = curves([full, bare], quantity="discrepancy")
    assert [line.get_label() for line in ax.lines] == ["ifca"]
    assert caplog.messages == [f"{bare} has no discrepancy: its method does not measure it; it is left out"]
    with pytest.raises(RecordError, match="has no discrepancy: its method does not measure it"):
        curves(bare, quantity="discrepancy")


def test_unknown_names_are_errors_with_a_suggestion(write):
    run = write(ANSWERS)
    with pytest.raises(RecordError, match=r"No metric 'acuracy' .* Did you mean 'accuracy'?"):
        curves(run, quantity="acuracy")
    with pytest.raises(SpecError, match=r"No axis 'bytes'. Did you mean 'megabytes'?"):
        curves(run, against="bytes")


def test_given_axes_are_used_and_keep_their_style(write):
    figure = Figure()
    axes = figure.add_subplot()
    size = axes.xaxis.label.get_size()
    assert curves(write(ANSWERS), axes) is axes
    assert axes.xaxis.label.get_size() == size
    assert figure.axes == [axes]


def test_the_settings_of_matplotlib_are_those_of_before(write):
    import matplotlib

    before = dict(matplotlib.rcParams)
    curves(write(ANSWERS))
    assert dict(matplotlib.rcParams) == before
