"""The files of the page, without a browser."""

from __future__ import annotations

import re
from importlib import resources

import pytest

ASSETS = resources.files("coterie.reports.page").joinpath("assets")
FILES = {each.name: each.read_text(encoding="utf-8") for each in ASSETS.iterdir()}


def test_the_template_names_every_file_once():
    named = re.findall(r"/\*\{([\w.]+)\}\*/", FILES["page.html"])
    assert sorted(named) == sorted(set(FILES) - {"page.html"})


@pytest.mark.parametrize("name", sorted(FILES))
def test_nothing_parses_html_runs_texts_or_names_another_machine(name):
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|setTimeout\(\s*[\"'`]"
    )
    assert re.findall(forbidden, FILES[name]) == []
    # The name of the SVG namespace looks like an address, and is none.
    assert set(re.findall(r"https?://[^\"'\s)]*", FILES[name])) <= {"http://www.w3.org/2000/svg"}


def test_functions_have_one_name_each():
    # All files share one scope: of two functions with the same name the second would replace the first.
    names = re.findall(r"^(?:async )?(?:function|const|let) (\w+)", "\n".join(FILES.values()), flags=re.MULTILINE)
    assert sorted(names) == sorted(set(names))
