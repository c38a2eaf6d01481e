"""Whole figures: sizes, panels, legends and files."""

from __future__ import annotations

import logging
import re
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install 'coterie[figures]'")

from coterie.errors import SpecError
from coterie.reports import figure, save
from coterie.reports.figures import KINDS
from coterie.reports.figures.drawn import drawn
from coterie.reports.figures.style import look

ANSWERS = [{"a": (0, 5), "b": (1, 7)}, {"a": (0, 9), "b": (1, 8)}]
DATA = {"data": {"name": "digits"}}
FEDAVG = {"method": {"name": "fedavg"}}


def two_methods_on_two_data_sets(write):
    return [
        write(ANSWERS, name="1"),
        write(ANSWERS, name="2", spec=FEDAVG),
        write(ANSWERS, name="3", spec=DATA),
        write(ANSWERS, name="4", spec={**DATA, **FEDAVG}),
    ]


def test_a_panel_per_data_set_and_a_row_per_quantity_with_one_legend(write):
    made = figure(two_methods_on_two_data_sets(write), quantities=["primary", "train_loss"], width="two", height=3)
    assert made.get_size_inches().tolist() == [7.16, 3]
    assert [axes.get_ylabel() for axes in made.axes] == ["test accuracy (%)", "", "training loss", ""]
    assert [axes.get_xlabel() for axes in made.axes] == ["", "", "round\n(a) blobs", "round\n(b) digits"]
    (legend,) = made.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ifca", "fedavg"]
    assert not any(axes.get_title() for axes in made.axes)


def test_a_method_looks_the_same_in_every_panel(write):
    runs = two_methods_on_two_data_sets(write)
    made = figure(runs[1:])  # fedavg alone, then ifca and fedavg
    first, second = made.axes
    by_label = {line.get_label(): line.get_color() for line in second.lines}
    assert first.lines[0].get_color() == by_label["fedavg"] != by_label["ifca"]


def test_looks_differ_without_color():
    assert len({(str(look(n).line), look(n).marker) for n in range(44)}) == 44
    assert len({(look(n).color, str(look(n).line), look(n).marker) for n in range(308)}) == 308


def test_panels_that_are_not_needed_are_hidden(write):
    runs = [write(ANSWERS, name=str(n), spec={"data": {"name": "blobs", "clients": n}}) for n in (4, 8, 12)]
    made = figure(runs, columns=2)
    assert [axes.get_visible() for axes in made.axes] == [True, True, True, False]
    assert len(drawn(made)) == 3


def test_runs_that_are_drawn_one_by_one_are_named_by_method_and_seed(write):
    evidence = {0: {"clients": ["a", "b"], "losses": np.array([[0.1, 0.9], [0.8, 0.2]])}}
    runs = [write(ANSWERS[:1], name=str(s), spec={"run": {"seed": s}}, evidence=evidence) for s in range(2)]
    assert [axes.get_xlabel() for axes in figure(runs, "map").axes] == [
        "cluster 0\n(a) seed 0",
        "cluster 0\n(b) seed 1",
    ]


def test_panels_of_discrepancy_have_the_same_limits(write):
    low = write(ANSWERS, name="low", lines=[{"discrepancy": 0.5}] * 2)
    high = write(ANSWERS, name="high", spec=DATA, lines=[{"discrepancy": 2.0}] * 2)
    made = figure([low, high], "discrepancy")
    assert made.axes[0].get_ylim() == made.axes[1].get_ylim()
    assert made.axes[2].get_ylim() == made.axes[3].get_ylim()


def test_labels_are_replaced_and_may_be_formulas(write):
    made = figure(write(ANSWERS), labels={"ifca": r"IFCA-$\eta_g$"})
    assert made.axes[0].lines[0].get_label() == r"IFCA-$\eta_g$"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "curve"}, "No kind 'curve'. Did you mean 'curves'?"),
        ({"width": "three"}, "No width 'three'. Known: one, two"),
        ({"height": 0.1}, "must be between 0.5 and 20 inches, got 0.1"),
        ({"columns": 0}, "at least 1 column of panels, got 0"),
        ({"font": "comic"}, "No font 'comic'. Known: sans, serif"),
    ],
)
def test_wrong_settings_are_refused(given, message, write):
    with pytest.raises(SpecError, match=re.escape(message)):
        figure(write(ANSWERS), **given)


def record_of_everything(write):
    """A record from which every kind of figure but the relation can be drawn."""
    scores = np.array([[3.0, 1.0], [-3.0, -1.0]])
    search = {"clients": ["a", "b"], "labels": np.array([0, 1]), "scores": {"1": 0.5, "2": 0.75}}
    return write(
        ANSWERS,
        spec={"method": {"name": "fedsim", "variance": 1.0}, "shift": {"name": "swap_all"}},
        lines=[{}, {"shifted": ["a"]}],
        evidence={0: search, 1: {"clients": ["a", "b"], "scores": scores}},
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "relation"])
@pytest.mark.parametrize("font", ["sans", "serif"])
def test_every_kind_is_written_with_embedded_truetype_fonts(kind, font, write, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):  # missing glyphs, layouts without room
        made = figure(record_of_everything(write), kind, font=font)
        content = save(made, tmp_path / "figure.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert b"/FontFile2" in content
    assert b"/Type3" not in content
    assert not caplog.messages


@pytest.mark.parametrize(("ending", "start"), [("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_the_same_records_give_the_same_bytes_without_a_date(ending, start, write, tmp_path):
    run = record_of_everything(write)
    files = [save(figure(run), tmp_path / f"{n}.{ending}") for n in range(2)]
    first, second = (file.read_bytes() for file in files)
    assert first.startswith(start)
    assert first == second
    assert b"CreationDate" not in first
    assert b"dc:date" not in first


def test_text_of_svg_files_is_outlines_unless_it_is_asked_for(write, tmp_path):
    made = figure(write(ANSWERS))
    assert "<text" not in save(made, tmp_path / "outlines.svg").read_text()
    text = save(made, tmp_path / "text.svg", svg_text=True).read_text()
    assert re.search(r"<text[^>]*>test accuracy \(%\)</text>", text)


def test_unknown_endings_and_folders_that_do_not_exist_are_errors(write, tmp_path):
    made = figure(write(ANSWERS))
    with pytest.raises(SpecError, match=r"Files that end in '.jpg' are not known; use one of .pdf, .svg, .png"):
        save(made, tmp_path / "figure.jpg")
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match="cannot be written: Not a directory"):
        save(made, tmp_path / "file" / "figure.pdf")


def test_axes_of_a_subfigure_are_saved_as_the_whole_figure(write, tmp_path):
    from matplotlib.figure import Figure

    from coterie.reports import curves

    whole = Figure()
    left, _ = whole.subfigures(1, 2)
    ax = curves(write(ANSWERS), left.add_subplot())
    assert save(ax, tmp_path / "whole.png", dpi=50).read_bytes().startswith(b"\x89PNG")


def test_numbers_on_axes_keep_their_size_when_the_user_saves_the_figure(write):
    from coterie.reports import curves

    ax = curves(write(ANSWERS))
    ax.figure.canvas.draw()
    assert {text.get_size() for text in ax.get_xticklabels()} == {6.5}


def test_drawing_uses_no_pyplot(write, tmp_path):
    code = (
        "import sys; from coterie.reports import curves, save\n"
        f"save(curves({str(write(ANSWERS))!r}), {str(tmp_path / 'figure.pdf')!r})\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_without_matplotlib_the_error_names_the_extra(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SpecError, match=r"Figures need matplotlib: pip install 'coterie\[figures\]'"):
        figure(write(ANSWERS))


def test_no_module_hides_a_function_of_the_same_name():
    from coterie import reports

    assert all(callable(getattr(reports, name)) for name in reports.__all__)
