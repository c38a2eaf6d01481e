"""The page for everyone: keyboard, screen reader, phone, themes, paper."""

from __future__ import annotations

import itertools
import json

import pytest

CONTROLS = "a[href], button:not(:disabled), input, select, summary, [tabindex='0']"

VISIBLE = f"""() => [...document.querySelectorAll("{CONTROLS}")].filter(e => e.checkVisibility())
    .map((e, i) => (e.dataset.testId = String(i))).length"""

FOCUSED = """() => { const e = document.activeElement; const style = getComputedStyle(e);
    return [e.dataset.testId ?? null, style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2]; }"""

#: Elements that reach over the right edge, except in regions that scroll on their own.
OVER = """() => [...document.querySelectorAll('body *')].filter(e => {
    if (e.closest('.scroll, .contents, .spoken, .skip, .tooltip, svg')) return false;
    return e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 0.5;
}).map(e => e.tagName + '.' + e.className)"""


@pytest.mark.parametrize("kind", ["run", "comparison"])
def test_the_keyboard_reaches_every_control_and_shows_where_it_is(open_page, samples, kind):
    opened = open_page(samples.page(samples.run(drift=True)) if kind == "run" else samples.comparison())
    page = opened.page
    count = page.evaluate(VISIBLE)
    assert count > 30
    reached = set()
    for _ in range(count + 2):
        page.keyboard.press("Tab")
        control, outlined = page.evaluate(FOCUSED)
        if control is None:
            break
        assert outlined, f"control {control} does not show that it has the focus"
        reached.add(control)
    assert reached == {str(i) for i in range(count)}


def test_arrow_keys_walk_over_a_chart_and_speak(open_page, samples):
    opened = open_page(samples.page(samples.run()))
    opened.draw_all()
    page = opened.page
    plot = page.locator("#figure-map-of-clients .plot")
    plot.focus()
    page.keyboard.press("Home")
    first = page.locator("#tooltip").inner_text()
    assert "Client client-0" in first
    for word in ("Samples", "Accuracy", "Classes", "Nearest other", "True cluster"):
        assert word in first
    page.keyboard.press("ArrowRight")
    assert page.locator("#tooltip").inner_text() != first
    assert "Samples: " in page.locator("#spoken").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#tooltip").is_hidden()


def test_the_pointer_shows_the_values_of_a_round(open_page, samples):
    page = open_page(samples.page(samples.run())).page
    box = page.locator("#figure-score svg.chart").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    text = page.locator("#tooltip").inner_text()
    assert text.startswith("Round ")
    assert "worst tenth" in text
    assert "middle half of clients" in text


@pytest.mark.parametrize("name", ["run", "hostile", "one client", "22 methods", "long names"])
def test_nothing_overflows_on_a_phone(open_page, samples, name):
    make = {
        "run": lambda: samples.page(samples.run(drift=True)),
        "hostile": lambda: samples.page(samples.run(names=samples.HOSTILE), title=samples.HOSTILE[4]),
        "one client": lambda: samples.page(samples.run(1, 1, 1)),
        "22 methods": lambda: samples.comparison(22),
        "long names": lambda: samples.comparison(suffix=", method.clusters=5, local.learning_rate=0.05"),
    }[name]
    opened = open_page(make(), width=390)
    opened.draw_all()
    for summary in opened.page.locator("details.values summary").all()[:6]:
        summary.click()
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 390
    assert opened.page.evaluate(OVER) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["run", "comparison"])
def test_axe_finds_no_serious_violation(open_page, samples, axe, kind, scheme):
    data = samples.page(samples.run(drift=True)) if kind == "run" else samples.comparison(22)
    opened = open_page(data, scheme=scheme)
    opened.draw_all()
    opened.page.locator("details.values summary").first.click()
    opened.page.evaluate(axe)
    found = opened.page.evaluate("axe.run().then(result => JSON.stringify(result.violations))")
    serious = [
        (each["id"], [node["target"] for node in each["nodes"]][:3])
        for each in json.loads(found)
        if each["impact"] in {"serious", "critical"}
    ]
    assert serious == []


def test_every_chart_has_a_name_and_its_table(open_page, samples):
    opened = open_page(samples.page(samples.run(drift=True)))
    opened.draw_all()
    page = opened.page
    for figure in page.locator("figure").all():
        assert figure.locator("svg.chart[role=img]").get_attribute("aria-label")
        figure.locator("summary").click()
        figure.locator("details tbody tr").first.wait_for(state="attached")
    headings = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(e => Number(e.tagName[1]))")
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(headings))


def paper(page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_the_theme_follows_the_system_until_it_is_chosen(open_page, samples):
    light = open_page(samples.page(samples.run()))
    dark = open_page(samples.page(samples.run()), scheme="dark")
    assert paper(light.page) != paper(dark.page)
    dark.page.get_by_role("button", name="Light", exact=True).click()
    assert paper(dark.page) == paper(light.page)
    dark.page.get_by_role("button", name="Auto", exact=True).click()
    assert paper(dark.page) != paper(light.page)


def test_images_in_charts_are_painted_anew_in_the_other_theme(open_page, samples):
    opened = open_page(samples.page(samples.run()))
    opened.draw_all()
    image = opened.page.locator("#figure-distances image")
    before = image.get_attribute("href")
    opened.page.get_by_role("button", name="Dark", exact=True).click()
    assert image.get_attribute("href") != before


def test_paper_has_all_sections_and_charts_in_light_colors(open_page, samples):
    opened = open_page(samples.page(samples.run(drift=True)), scheme="dark")
    page = opened.page
    undrawn = page.locator(".plot:not(:has(svg))").count()
    assert undrawn > 0
    page.emulate_media(media="print")
    page.locator(".plot:not(:has(svg))").first.wait_for(state="detached")
    assert page.locator("main section").count() == page.locator("main section:visible").count() == 12
    assert page.locator(".contents, .tools, .pager, details.values").filter(visible=True).count() == 0
    assert paper(page) == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").startswith(b"%PDF")
