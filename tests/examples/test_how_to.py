"""The Python code in the how-to guides runs."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

import coterie
from coterie.data.catalog import Dataset

FOLDER = Path(__file__).parents[2] / "docs" / "how-to"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
#: Page → package of the extra that its code needs.
EXTRAS = {"figures": "matplotlib", "tune": "optuna"}
#: Guides of `make test`: how to extend the library, and how to debug and use it. The others run in `make test-all`.
EACH_TIME = {"add-a-method", "add-a-work", "add-a-model", "add-a-data-set", "debug-a-run", "use-the-models"}
PAGES = sorted(file.stem for file in FOLDER.glob("*.md") if BLOCK.search(file.read_text(encoding="utf-8")))


def test_guides_with_code_are_found():
    assert set(PAGES) >= EACH_TIME


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if page in EACH_TIME else pytest.mark.exhaustive) for page in PAGES]
)
def test_the_code_of_a_guide_runs(page, monkeypatch, tmp_path):
    """The blocks of a page run one after another, as one module, in a folder of their own."""
    if page in EXTRAS:
        pytest.importorskip(EXTRAS[page], reason=f"the extra {EXTRAS[page]} is not installed")
    blocks = BLOCK.findall((FOLDER / f"{page}.md").read_text(encoding="utf-8"))
    if any("coterie.flower" in block for block in blocks):
        pytest.importorskip("flwr", reason="needs the extra: pip install 'coterie[network]'")
    monkeypatch.chdir(tmp_path)
    if page == "figures":  # its commands run first
        spec = {"data": "blobs", "run": {"rounds": 2}}
        coterie.compare({name: {**spec, "method": name} for name in ("fedavg", "ifca")}, out="records")
    module = types.ModuleType(f"how_to_{page.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look up their module
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}.md, block {number}", "exec"), module.__dict__)


def test_the_loader_of_the_data_set_guide_agrees_with_its_row():
    page = (FOLDER / "add-a-data-set.md").read_text(encoding="utf-8")
    loader = next(block for block in BLOCK.findall(page) if "def wine(" in block)
    row = re.search(r"^```text\nyield (Dataset\(.*?^\))\n```", page, re.DOTALL | re.MULTILINE)[1]
    module = {}
    exec(loader, module)
    data, described = module["wine"](), eval(row, {"Dataset": Dataset})
    assert described.loader == "wine:wine"
    assert (data.name, len(data.clients), data.classes) == (described.name, described.clients, described.classes)
    assert len(data.fit.order) + len(data.test.order) == described.samples
    assert (data.truth is None) == (described.truth is None)
    assert data.source
