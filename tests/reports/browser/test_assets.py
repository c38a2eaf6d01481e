"""The files of the page, without a browser."""

from __future__ import annotations

import re
from importlib import resources

import pytest

ASSETS = resources.files("coterie.reports.page").joinpath("assets")
FILES = {each.name: each.read_text(encoding="utf-8") for each in ASSETS.iterdir()}


#: Template → the files that it names, in order: the page of a run or a comparison, and the list of live runs.
NAMED = {name: re.findall(r"/\*\{([\w.]+)\}\*/", text) for name, text in FILES.items() if name.endswith(".html")}


def test_templates_name_every_file_and_none_twice():
    assert set(NAMED) == {"page.html", "list.html"}
    assert {name for names in NAMED.values() for name in names} == set(FILES) - set(NAMED)
    assert all(len(names) == len(set(names)) for names in NAMED.values())


@pytest.mark.parametrize("name", sorted(FILES))
def test_nothing_parses_html_runs_texts_or_names_another_machine(name):
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|setTimeout\(\s*[\"'`]"
    )
    assert re.findall(forbidden, FILES[name]) == []
    # The name of the SVG namespace looks like an address, and is none.
    assert set(re.findall(r"https?://[^\"'\s)]*", FILES[name])) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("template", sorted(NAMED))
def test_functions_have_one_name_each(template):
    # The files of a page share one scope: of two functions with the same name the second would replace the first.
    text = "\n".join(FILES[name] for name in NAMED[template])
    names = re.findall(r"^(?:async )?(?:function|const|let) (\w+)", text, flags=re.MULTILINE)
    assert sorted(names) == sorted(set(names))
