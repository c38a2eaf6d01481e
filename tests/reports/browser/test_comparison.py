"""The page of a comparison."""

from __future__ import annotations


def test_the_table_is_sorted_by_score_and_marks_the_best(open_page, samples):
    page = open_page(samples.comparison()).page
    rows = page.locator("#table tbody tr")
    assert rows.count() == 7
    assert rows.first.locator("td").first.inner_text().startswith("92.8 ± 0.5\u00a0%")
    assert rows.first.locator(".best").count() == 2
    assert page.locator("#table .best").count() == 2


def test_clear_differences_are_counted(open_page, samples):
    page = open_page(samples.comparison()).page
    assert page.locator("#tests .note").first.inner_text() == "3 of 6 comparisons show a clear difference."
    assert page.locator("#tests tbody strong").count() == 3


def test_without_any_test_the_reason_is_said_once(open_page, samples):
    data = samples.comparison(seeds=1)
    for test in data["comparison"]["tests"]:
        test |= {"p": None, "p_adjusted": None, "significant": False, "why": "a test needs at least two seeds"}
    page = open_page(data).page
    assert page.locator("#tests .note").first.inner_text() == (
        "There are no p-values: a test needs at least two seeds."
    )
    assert page.locator("#tests thead th").all_inner_texts() == ["Method", "Against", "Difference (points)"]


def test_wins_and_losses_of_any_two_methods(open_page, samples):
    data = samples.comparison()
    scores = data["comparison"]["client_wins"]["scores"]
    opened = open_page(data)
    page = opened.page
    page.get_by_label("Method", exact=True).select_option("cfl")
    page.get_by_label("Against", exact=True).select_option("ifca")
    pairs = list(zip(scores["cfl"], scores["ifca"], strict=True))
    won, lost = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    assert won + lost == 40
    expected = f"cfl is better for {won} of 40 clients, ifca for {lost}."
    assert page.locator("#wins .verdict").inner_text() == expected
    page.get_by_label("Against", exact=True).select_option("cfl")
    assert page.locator("#wins .nothing").inner_text() == "Choose two different methods."


def test_with_many_methods_the_best_are_in_color_and_others_can_be_chosen(open_page, samples):
    opened = open_page(samples.comparison(22))
    opened.draw_all()
    page = opened.page
    figure = page.locator("#figure-all-scores")
    lines = figure.locator("svg .line")
    assert lines.count() == 22
    colors = lines.evaluate_all("lines => lines.map(line => line.getAttribute('stroke'))")
    colored = [color for color in colors if color != "var(--faint)"]
    assert len(colored) == len(set(colored)) == 7
    figure.get_by_role("button", name="method21", exact=True).click()
    assert figure.locator("svg .line:not([stroke='var(--faint)'])").count() == 8
    assert figure.locator("svg text.name", has_text="method21").count() == 1


def test_a_method_that_did_not_reach_the_target_in_every_seed_says_so(open_page, samples):
    opened = open_page(samples.comparison())
    opened.draw_all()
    values = opened.page.locator("#figure-to-target svg .value").all_text_contents()
    assert sum("2 of 3 seeds" in value for value in values) == 1
    assert values[0].startswith("14 rounds, ")  # mean of 13, 14 and 15


def test_a_run_of_the_comparison_is_opened_from_its_row(open_page, samples):
    opened = open_page(samples.comparison())
    page = opened.page
    assert page.locator("#run-curves").count() == 0
    page.get_by_role("button", name="Open the runs of ifca").click()
    assert page.locator("#run-overview h2").inner_text() == "ifca, seed 0"
    assert page.locator("nav a[href='#run-curves']").count() == 1
    page.get_by_label("Run", exact=True).select_option("cfl-2")
    assert page.locator("#run-overview h2").inner_text() == "cfl, seed 2"
    page.get_by_label("Run", exact=True).select_option("")
    assert page.locator("#run-curves").count() == 0
