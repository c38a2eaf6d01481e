"""New data of a run that goes on: `coterieReport.update` shows them and leaves the reader where they are."""

from __future__ import annotations

POINTS = "document.querySelector('#figure-score .line').dataset.points"


def test_a_new_round_appears(open_page, samples):
    page = open_page(samples.page(samples.run(rounds=10))).page
    assert page.evaluate(POINTS) == "11"
    page.evaluate("data => coterieReport.update(data)", samples.page(samples.run(rounds=11)))
    assert page.evaluate(POINTS) == "12"


def test_place_focus_and_choices_stay(open_page, samples):
    page = open_page(samples.page(samples.run(60, 10))).page
    page.locator("#clients input").fill("client-0")
    page.locator("#clients thead th", has_text="Loss").get_by_role("button").click()
    page.locator("#figure-score summary").click()
    page.get_by_role("button", name="cluster 2", exact=True).click()
    field = page.locator("#clients input")
    field.focus()
    field.scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    top = field.bounding_box()["y"]
    page.evaluate("data => coterieReport.update(data)", samples.page(samples.run(60, 11)))
    assert abs(page.locator("#clients input").bounding_box()["y"] - top) < 2
    assert page.locator("#clients input").input_value() == "client-0"
    assert page.evaluate("document.activeElement.dataset.key") == "search:clients"
    assert page.locator("#clients thead th", has_text="Loss").get_attribute("aria-sort") == "ascending"
    assert page.locator("#figure-score details").get_attribute("open") is not None
    assert page.get_by_role("button", name="cluster 2", exact=True).get_attribute("aria-pressed") == "false"
    assert page.locator("#figure-per-cluster .line").count() == 3
