"""What the builder of the site passes to Zensical. The built site is tested in test_site.py."""

from __future__ import annotations

import sitebuilder.__main__ as builder
import yaml
from sitebuilder import equations


def style_sheets(monkeypatch, folder, *, katex):
    monkeypatch.setattr(equations, "available", lambda: katex)
    monkeypatch.setattr(builder, "WORK", folder / "docs")
    return yaml.safe_load(builder.configuration().read_text(encoding="utf-8"))["extra_css"]


def test_pages_link_the_style_sheet_of_equations_only_if_these_are_typeset(monkeypatch, tmp_path):
    without = style_sheets(monkeypatch, tmp_path, katex=False)
    assert equations.STYLE_SHEET not in without  # it would be a broken link on every page
    assert style_sheets(monkeypatch, tmp_path, katex=True) == [*without, equations.STYLE_SHEET]
