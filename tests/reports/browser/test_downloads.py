"""Files that readers take with them: charts as SVG and PNG, tables as CSV. And texts of records that try to do harm."""

from __future__ import annotations

import csv
import struct
from xml.etree import ElementTree

import pytest

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    "title", ["Accuracy over rounds", "Clients, as the method sees them", "Distances, ordered by cluster"]
)
def test_an_svg_stands_alone(open_page, samples, title):
    opened = open_page(samples.page(samples.run()), scheme="dark", width=390)
    text = opened.download(f"Download as SVG: {title}").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert root.get("width") == "960"  # whatever the width of the window
    assert root.find(f"{SVG}title").text == title
    assert root.find(f"{SVG}rect").get("fill") == "#ffffff"
    # Styles are written out: neither classes nor variables of the page, which the file does not have.
    assert "var(--" not in text
    assert "class=" not in text
    strokes = {node.get("stroke") for node in root.iter() if node.get("stroke")}
    assert strokes


def test_an_svg_has_the_lines_of_the_chart_in_the_colors_of_the_light_theme(open_page, samples):
    opened = open_page(samples.page(samples.run()), scheme="dark")
    root = ElementTree.fromstring(opened.download("Download as SVG: Accuracy of each cluster").read_text("utf-8"))
    lines = [node for node in root.iter(f"{SVG}path") if node.get("data-points") == "20"]
    assert [line.get("stroke") for line in lines] == [
        "rgb(0, 114, 178)",
        "rgb(213, 94, 0)",
        "rgb(0, 132, 95)",
        "rgb(185, 86, 143)",
    ]
    texts = {node.text for node in root.iter(f"{SVG}text")}
    assert {f"cluster {i}" for i in range(4)} <= texts


def test_a_png_is_an_image_of_twice_the_size(open_page, samples):
    opened = open_page(samples.page(samples.run()))
    content = opened.download("Download as PNG: Distances, ordered by cluster").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    assert width == 1920
    assert height > 1000
    assert len(content) > 20_000  # an empty image compresses to less


def test_the_csv_of_clients_has_all_rows_and_no_formulas(open_page, samples):
    opened = open_page(samples.page(samples.run(names=samples.HOSTILE)))
    with opened.download("Download as CSV: Clients").open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 40
    names = [line["Client"] for line in lines]
    assert names[:3] == samples.HOSTILE[:3]
    assert names[3] == "'" + samples.HOSTILE[3]  # a spreadsheet would execute it without the apostrophe
    assert float(lines[5]["Accuracy"]) == pytest.approx(0.6 + 0.4 * (185 % 101) / 101, abs=1e-4)


def test_hostile_texts_are_only_texts(open_page, samples):
    bad = samples.HOSTILE[0]
    run = samples.run(names=samples.HOSTILE, drift=True)
    run.update(
        name=bad,
        method=bad,
        reason=bad,
        status="failed",
        headline=[bad],
        notes=[bad],
        command=bad,
        path=bad,
        sees=[bad],
    )
    run["faults"]["rejected"] = {bad: 3}
    run["settings"].append({"section": bad, "key": bad, "value": bad, "default": bad, "changed": True, "help": bad})
    run["traffic"]["by_purpose"][bad] = {"down": 1, "up": 1, "in_total": True}
    run["labels"]["classes"][0] = bad
    run["map"]["method"] = run["matrix"]["what"] = bad
    opened = open_page(samples.page(run, title=bad))
    opened.draw_all()
    page = opened.page
    for summary in page.locator("details.values summary").all():
        summary.click()
    page.locator("#figure-map-of-clients .plot").focus()
    page.keyboard.press("Home")
    page.wait_for_timeout(100)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, iframe, object, embed, script:not([id])").count() == 0
    assert page.locator("h1").inner_text() == bad
    assert page.title() == bad
    names = page.locator("#clients tbody th").all_inner_texts()
    assert bad in names
