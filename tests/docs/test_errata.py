"""The demonstrations in docs/errata.md hold."""

from __future__ import annotations

import pytest
from sitebuilder.fences import ROOT, fences

DEMONSTRATIONS = [fence for fence in fences(ROOT / "docs" / "errata.md") if fence.language == "python"]


@pytest.mark.parametrize("fence", DEMONSTRATIONS, ids=lambda fence: f"line {fence.line}")
def test_a_demonstration_runs_and_checks_something(fence):
    assert "assert " in fence.body
    exec(compile(fence.body, f"docs/errata.md:{fence.line}", "exec"), {})
