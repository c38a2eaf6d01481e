"""Tables of the page: sorting, searching, paging."""

from __future__ import annotations


def names(page) -> list[str]:
    return page.locator("#clients tbody th").all_inner_texts()


def test_clients_are_listed_worst_first_and_paged(open_page, samples):
    data = samples.page(samples.run(60))
    clients = data["runs"][0]["clients"]
    worst = [name for _, name in sorted(zip(clients["score"], clients["name"], strict=True))]
    page = open_page(data).page
    assert names(page) == worst[:25]
    assert page.locator("#clients .count").inner_text() == "1–25 of 60 rows"
    page.locator("#clients").get_by_role("button", name="Next page").click()
    assert names(page) == worst[25:50]
    page.locator("#clients").get_by_role("button", name="Last page").click()
    assert names(page) == worst[50:]


def test_a_header_sorts_and_says_so(open_page, samples):
    data = samples.page(samples.run(20))
    clients = data["runs"][0]["clients"]
    page = open_page(data).page
    header = page.locator("#clients thead th", has_text="Samples")
    assert header.get_attribute("aria-sort") == "none"
    header.get_by_role("button").press("Enter")
    assert header.get_attribute("aria-sort") == "ascending"
    smallest = min(clients["samples"])
    assert page.locator("#clients tbody tr").first.locator("td").nth(2).inner_text() == str(smallest)
    header.get_by_role("button").press("Enter")
    assert header.get_attribute("aria-sort") == "descending"
    assert page.locator("#clients tbody tr").first.locator("td").nth(2).inner_text() == str(max(clients["samples"]))


def test_searching_keeps_the_rows_that_match(open_page, samples):
    page = open_page(samples.page(samples.run(60))).page
    page.locator("#clients input").fill("client-01")
    assert sorted(names(page)) == [f"client-01{i}" for i in range(10)]
    page.locator("#clients input").fill("nobody")
    assert page.locator("#clients tbody").inner_text() == "No row matches."


def test_missing_values_come_last_in_both_directions(open_page, samples):
    data = samples.page(samples.run(5))
    data["runs"][0]["clients"]["score"][2] = None
    page = open_page(data).page
    assert names(page)[-1] == "client-002"
    page.locator("#clients thead th", has_text="Accuracy").get_by_role("button").click()
    assert names(page)[-1] == "client-002"
