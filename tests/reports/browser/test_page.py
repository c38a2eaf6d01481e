"""The page of a run: it loads nothing, shows everything that the data have, and says what they do not have."""

from __future__ import annotations

import re

import pytest

SAMPLES = {
    "run": lambda s: s.page(s.run()),
    "drift": lambda s: s.page(s.run(drift=True)),
    "no true clusters": lambda s: s.page(s.run(truth=False)),
    "one client": lambda s: s.page(s.run(1, 5, 1)),
    "failed": lambda s: s.page(s.failed()),
    "many clients": lambda s: s.page(s.run(2000, 5, 12)),
    "seven methods": lambda s: s.comparison(),
    "22 methods, one seed": lambda s: s.comparison(22, seeds=1),
    "no runs": lambda s: s.page(),
}

#: Charts whose table has one row for each mark; the others have one number for each mark.
BY_ROW = {"to-target", "map-of-clients", "per-megabyte", "movements", "client-wins", "against-bytes", "against-seconds"}

COUNT = """figure => [...figure.querySelectorAll('svg.chart .mark')]
    .reduce((all, mark) => all + Number(mark.dataset.points ?? 1), 0)"""


NOWHERE = """[...document.querySelectorAll('svg.chart, svg.chart *')].flatMap(e => [...e.attributes])
    .filter(a => !['href', 'aria-label'].includes(a.name) && /NaN|undefined|Infinity/.test(a.value)).map(a => a.name)"""


@pytest.mark.parametrize("name", SAMPLES)
def test_opened_from_disk_it_draws_every_chart_without_errors_and_requests(open_page, samples, name):
    opened = open_page(SAMPLES[name](samples))
    opened.draw_all()
    plots = opened.page.locator(".plot")
    assert opened.page.locator(".plot > svg.chart").count() == plots.count()
    assert (plots.count() == 0) == (name in {"failed", "no runs"})
    # Coordinates that are no numbers would be drawn nowhere.
    assert opened.page.evaluate(NOWHERE) == []


@pytest.mark.parametrize("name", ["drift", "many clients", "seven methods"])
def test_every_chart_draws_as_many_values_as_its_table_has(open_page, samples, name):
    opened = open_page(SAMPLES[name](samples))
    opened.draw_all()
    checked = 0
    for figure in opened.page.locator("figure").all():
        title = figure.locator("h3").inner_text()
        key = figure.get_attribute("id").removeprefix("figure-")
        lines = read_csv(opened.download(f"Download as CSV: {title}"))
        marks = figure.evaluate(COUNT)
        if key == "distances":
            assert marks == 600**2 if name == "many clients" else 40**2
            assert [len(line) for line in lines] == [1 + len(lines[1:])] * len(lines)
        elif key in BY_ROW:
            assert marks == len(lines) - 1 > 0, key
        else:
            assert marks == sum(is_number(cell) for line in lines[1:] for cell in line[1:]) > 0, key
        checked += 1
    assert checked > 4


def read_csv(path) -> list[list[str]]:
    import csv

    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", text) is not None


def test_numbers_on_the_page_are_those_of_the_data(open_page, samples):
    data = samples.page(samples.run())
    opened = open_page(data)
    page = opened.page
    assert page.locator(".figures dd .big").all_inner_texts()[:3] == ["92.8\u00a0%", "3.4\u00a0MB", "40"]
    lines = read_csv(opened.download("Download as CSV: Accuracy over rounds"))
    column = lines[0].index("all examples")
    assert [float(line[column]) for line in lines[1:]] == data["runs"][0]["curves"]["primary"]
    # Within a cluster every distance is 40/255 of 2.0, between clusters 210/255 of it.
    distances = read_csv(opened.download("Download as CSV: Distances, ordered by cluster"))
    for i, line in enumerate(distances[1:]):
        expected = [40 / 255 * 2 if i == j else 210 / 255 * 2 for j in range(4)]
        assert [float(cell) for cell in line[1:]] == pytest.approx(expected)


def test_a_ring_marks_exactly_the_clients_outside_of_their_true_cluster(open_page, samples):
    with_truth = open_page(samples.page(samples.run()))
    with_truth.draw_all()
    plot = "#figure-map-of-clients .plot"
    assert with_truth.page.locator(f"{plot} .ring").count() == 1
    painted = open_page(samples.page(samples.run(2000, 5, 4)))
    painted.draw_all()
    assert painted.page.locator(f"{plot} image").get_attribute("data-rings") == "1"
    without = open_page(samples.page(samples.run(truth=False)))
    without.draw_all()
    assert without.page.locator(f"{plot} .ring").count() == 0
    assert without.page.get_by_role("button", name="True cluster", exact=True).count() == 0


def test_moves_and_drift_are_marked(open_page, samples):
    opened = open_page(samples.page(samples.run(drift=True)))
    opened.draw_all()
    page = opened.page
    assert page.locator("#figure-movements .ribbon.moved").count() == 2
    assert page.locator("#figure-movements .plot .drift-mark").count() == 1  # one of the two ribbons
    rows = page.locator("#clusters .block tbody tr")
    assert rows.count() == 2
    assert "cluster 0" in rows.first.inner_text()
    assert page.locator("#figure-score .event").count() == 1
    assert page.locator("#drift").count() == 1


def test_what_a_failed_run_lacks_is_said_in_sentences(open_page, samples):
    page = open_page(samples.page(samples.failed())).page
    assert "Only 1 of 8 clients replied" in page.locator(".notice.failed").inner_text()
    for section in ("curves", "clusters", "map", "matrix", "labels", "clients", "cost"):
        assert len(page.locator(f"#{section} .nothing").first.inner_text()) > 20
    assert "lost or rejected, and no" not in page.locator("#faults").inner_text()


def test_a_run_that_ended_early_says_how_to_continue_it(open_page, samples):
    run = {**samples.run(), "status": "interrupted", "resume": "coterie resume 'runs/my run'"}
    notice = open_page(samples.page(run)).page.locator(".notice.interrupted")
    assert notice.inner_text() == "This run was interrupted. Continue it with: coterie resume 'runs/my run'"


def test_changed_settings_are_marked_and_can_be_shown_alone(open_page, samples):
    page = open_page(samples.page(samples.run())).page
    rows = page.locator("#settings tbody tr")
    assert rows.count() == 2
    assert page.locator("#settings tr.changed").inner_text().startswith("run.rounds")
    page.get_by_role("button", name="Changed (1)").click()
    assert rows.count() == 1
    assert page.locator("#settings pre").inner_text() == "coterie run --method fedgroup --rounds 20"


def test_the_command_is_copied_or_selected(open_page, samples):
    opened = open_page(samples.page(samples.run()))
    opened.page.get_by_role("button", name="Copy the command").click()
    said = opened.page.locator("#settings .said")
    said.get_by_text(re.compile("Copied|Selected")).wait_for()


def test_a_thousand_clients_and_300_rounds_are_interactive_within_two_seconds(open_page, samples, tmp_path):
    opened = open_page(samples.page(samples.run(1000, 300, 12)))
    # Loading, drawing what is in the window, and the answer to a first key.
    opened.page.locator("#figure-score .plot").evaluate("plot => plot.focus({ preventScroll: true })")
    opened.page.keyboard.press("ArrowLeft")
    opened.page.locator("#tooltip:not([hidden])").wait_for()
    assert opened.page.evaluate("performance.now()") < 2000
    assert (tmp_path / "page0.html").stat().st_size < 5_000_000


def test_charts_far_below_are_drawn_when_they_come_near(open_page, samples):
    page = open_page(samples.page(samples.run())).page
    chart = page.locator("#figure-distances svg.chart")
    assert chart.count() == 0
    page.locator("#matrix").scroll_into_view_if_needed()
    chart.wait_for()


def test_the_policy_of_the_page_allows_no_request(open_page, samples):
    opened = open_page(samples.page(samples.run()))
    refused = opened.page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')")
    assert refused == "refused"
    assert any("Content Security Policy" in error for error in opened.errors)
    opened.errors.clear()


def test_numbers_are_rounded_as_python_rounds_them(open_page, samples):
    values = [0.8925, 0.9845, 0.00125, 0.5, 0.0005, -0.0004, -0.1235, 1.0, 12345.67895, 0.99949999]
    run = samples.run()
    run["figures"] = [{"label": "share", "value": value, "format": "percent", "note": ""} for value in values]
    page = open_page(samples.page(run)).page
    expected = [f"{100 * value:,.1f}".replace("-0.0", "0.0").replace("-", "−") + "\u00a0%" for value in values]
    assert page.locator("#overview .figures .big").all_inner_texts() == expected
