"""Printed pages: paper does not scroll, so no table may be wider than it."""

from __future__ import annotations

import pytest

#: Width between the margins of 13 mm (49 px), at 96 px per inch: Letter and A4.
WIDTHS = {"Letter": 816 - 2 * 49, "A4": 794 - 2 * 49}

PAGES = {
    "7 methods, 3 seeds": lambda s: s.comparison(wide=True),
    "22 methods, 1 seed": lambda s: s.comparison(22, seeds=1, wide=True),
    "22 methods, 2 seeds": lambda s: s.comparison(22, seeds=2, suffix="-restarts=5", wide=True),
    "run with drift": lambda s: s.page(s.run(drift=True)),
    "hostile names": lambda s: s.page(s.run(drift=True, names=s.HOSTILE)),
}

#: Cells of tables that are cut at the right edge of the paper, or whose text is wider than they are.
CUT = """[...document.querySelectorAll('table.data')].filter(table => table.offsetParent)
    .flatMap(table => [...table.querySelectorAll('th, td')]).filter(cell => cell.offsetParent)
    .filter(cell => cell.getBoundingClientRect().right > innerWidth + 1 || cell.scrollWidth > cell.clientWidth + 1)
    .map(cell => cell.textContent.slice(0, 40))"""


@pytest.mark.parametrize("name", PAGES)
def test_no_column_of_a_table_is_cut_on_paper(open_page, samples, name):
    page = open_page(PAGES[name](samples)).page
    assert page.locator("table.data:visible").count() > 0
    page.emulate_media(media="print")
    for paper, width in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(CUT) == [], paper


def test_a_printed_table_of_methods_has_all_columns_but_the_buttons(open_page, samples):
    page = open_page(samples.comparison(wide=True)).page
    headers = page.locator("#table thead th:visible")
    assert headers.count() == 13  # method, 2 + 9 columns, buttons
    page.emulate_media(media="print")
    assert headers.count() == 12
    assert "Runs" not in headers.all_inner_texts()


def test_a_printed_table_has_a_hundred_rows_and_says_if_there_are_more(open_page, samples):
    page = open_page(samples.page(samples.run(160))).page
    page.locator("#clients").get_by_role("button", name="Next page").click()
    shown = page.locator("#clients tbody tr")
    assert shown.count() == 25
    page.emulate_media(media="print")
    page.locator("#clients .count").get_by_text("1\u2013100 of 160 rows").wait_for()
    assert shown.count() == 100
    assert page.locator("#settings .count:visible").count() == 0  # all rows are there
    page.emulate_media(media="screen")
    page.locator("#clients .count").get_by_text("26\u201350 of 160 rows").wait_for()


def test_a_table_that_scrolls_says_so(open_page, samples):
    page = open_page(samples.comparison(wide=True)).page
    hint = page.locator("#table .scroll-hint")
    assert not hint.is_visible()  # at 1,280 px all columns fit
    page.set_viewport_size({"width": 390, "height": 844})
    hint.wait_for()
    first = page.locator("#table tbody th").first
    page.locator("#table .scroll").evaluate("frame => { frame.scrollLeft = 300; }")
    assert first.bounding_box()["x"] >= 0  # the name of the method stays in view
