"""The pages about methods are those that the methods would give now."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from coterie.methods import METHODS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("docs_build", DOCS / "build.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_build"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_the_page_about_a_method_is_up_to_date(build, name):
    assert (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8") == build.page(name), "say: make docs"


def test_the_index_lists_every_method_and_nothing_else_is_there(build):
    assert (DOCS / "methods" / "README.md").read_text(encoding="utf-8") == build.index(), "say: make docs"
    assert {path.stem for path in (DOCS / "methods").glob("*.md")} == {"README", *METHODS}
