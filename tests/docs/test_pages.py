"""The pages of the site, before it is built: links, methods, settings, commands."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import Annotated

import pytest
import typer
import yaml
from sitebuilder import links, method_pages, reference, tutorials
from sitebuilder.cells import cells, run_bash, run_python
from sitebuilder.pages import stage
from sitebuilder.paths import DOCS, write

from coterie.bounds import Bound
from coterie.cli.app import app
from coterie.methods import METHODS
from coterie.runs.spec import SECTIONS, Named, Spec


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """All pages without figures, and the tutorials without output."""
    folder = tmp_path_factory.mktemp("pages")
    stage(folder)
    for each in tutorials.TUTORIALS:
        write(folder / "tutorials" / f"{each.name}.md", tutorials.page(each, None, folder / "tutorials"))
    return folder


def test_all_links_and_anchors_exist(pages):
    drawn = re.compile(r"pictures/[\w-]+-(light|dark)\.svg")  # made when the site is built
    assert [each for each in links.broken(pages) if not drawn.search(each)] == []


@pytest.mark.parametrize("text", ["[a](missing.md)", "[a](there.md#missing)", "[a](#missing)"])
def test_a_broken_link_is_found(tmp_path, text):
    (tmp_path / "there.md").write_text("# There\n\n## A `code` heading\n")
    (tmp_path / "page.md").write_text(f"# Page\n\n[fine](there.md#a-code-heading) {text}\n\n```\n[no](link.md)\n```\n")
    assert links.broken(tmp_path) == [f"page.md: {text[4:-1]}"]


def _targets(entries):
    for entry in entries:
        target = next(iter(entry.values())) if isinstance(entry, dict) else entry
        if isinstance(target, list):
            yield from _targets(target)
        else:
            yield target


def test_the_navigation_has_every_page_but_code_and_decisions(pages):
    listed = set(_targets(yaml.safe_load((DOCS / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    found = {str(path.relative_to(pages)) for path in pages.rglob("*.md")}
    left_out = re.compile(r"code/|project/|decisions/0|reference/api/coterie")
    assert {name for name in found if not left_out.match(name)} <= listed
    assert listed <= found


def test_every_method_is_on_the_page_of_methods():
    text = (DOCS / "methods" / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[([\w-]+)\]\(\1\.md\)", text, re.MULTILINE)) == sorted(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_the_page_of_a_method_has_equations_settings_card_and_notes(name):
    text = method_pages.page(name, "FIGURE")
    written = (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8")
    assert {path.stem for path in (DOCS / "methods").glob("*.md")} == {"README", *METHODS}
    assert re.search(r"^\$\$\n.+?^\$\$$", written, re.DOTALL | re.MULTILINE)
    assert text.count("$$") % 2 == 0
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == [
        *["Equations", "When to use it", "On the demonstration"],
        *["Settings", "Traffic and privacy", "Paper and notes"],
    ]


def test_the_notes_of_a_method_are_its_docstring_with_a_link_for_its_equations():
    text = "First line.\n\nAuthors, arXiv:1234.56789:\n\n    x = y_1\n\nDepartures from the paper. w_0 is `w0`.\n"
    assert method_pages.notes(text) == (
        "Authors, [arXiv:1234.56789](https://arxiv.org/abs/1234.56789): see [the equations](#equations).\n\n"
        "**Departures from the paper.** w\\_0 is `w0`."
    )


def test_every_setting_is_on_the_page_of_settings():
    text = reference.settings_page()
    for section in SECTIONS:
        part = getattr(Spec(), section)
        if not isinstance(part, Named):
            for key in vars(part):
                assert f"| `{section}.{key}` |" in text
    assert "| `run.rounds` | `50` | whole number, at least 1 | Number of rounds. |" in text


def test_bounds_are_shown_in_words():
    assert reference.bound_text(Annotated[float, Bound(above=0, at_most=1)]) == ", at most 1, above 0"
    assert reference.bound_text(Annotated[tuple[int, ...], Bound(at_least=0)]) == ", at least 0"
    assert reference.bound_text(int) == ""


def test_every_command_is_on_the_page_of_commands():
    text = reference.commands_page()
    group = typer.main.get_command(app)
    for name, command in group.commands.items():
        for inside in getattr(command, "commands", {"": None}):
            assert f"\n## coterie {name} {inside}".rstrip() in text
    assert "| `--rounds` `N` | Number of rounds; default: 50" in text


def test_percent_scripts_are_split_into_cells():
    text = "# ---\n# jupyter: x\n# ---\n\n# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nx = 1\n\n"
    text += '# %% language="bash"\n# ls\n'
    assert cells(text) == [
        {"kind": "markdown", "source": "# Title\n\nText."},
        {"kind": "python", "source": "x = 1"},
        {"kind": "bash", "source": "ls"},
    ]


def test_the_output_of_a_cell_is_what_it_prints_and_its_last_value():
    class Table:
        def _repr_html_(self):
            return "<table></table>"

    names = {"Table": Table}
    assert run_python("y = 2\nprint('a')\ny + 1", names) == [{"text": "a\n"}, {"text": "3"}]
    assert run_python("Table()", names) == [{"html": "<table></table>"}]
    assert run_python("y = 3", names) == []
    assert run_bash("echo b; echo c >&2") == [{"text": "b\n"}]
    with pytest.raises(RuntimeError, match="a shell cell failed"):
        run_bash("false")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_docs_installs_pytorch_for_its_tutorial_unless_it_is_left_out():
    def commands(*variables: str) -> str:
        command = ["make", "--dry-run", "--always-make", "docs", *variables]
        return subprocess.run(command, cwd=DOCS.parent, check=True, capture_output=True, text=True).stdout

    install = re.compile(r"^\.venv-docs/bin/python -m pip install --quiet --no-compile 'torch==[\d.]+'$", re.MULTILINE)
    builds = "-m sitebuilder"
    found = commands()
    assert install.search(found).end() < found.index(builds)
    assert "torch" not in commands("DOCS_TORCH=")


def test_a_tutorial_that_was_not_run_says_so():
    tutorial = tutorials.TUTORIALS[2]
    text = tutorials.page(tutorial, None, DOCS)
    assert tutorial.extra == "torch"
    assert "built without the extra `torch`" in text


@pytest.mark.slow
def test_the_program_of_the_home_page_prints_what_its_comments_say(capsys):
    (program,) = re.findall(r"^```python\n(.*?)^```", (DOCS / "index.md").read_text(encoding="utf-8"), re.DOTALL | re.M)
    exec(program, {})
    accuracy, clusters = capsys.readouterr().out.split()
    assert re.findall(r"# ([\d.]+)", program) == [f"{float(accuracy):.2f}", clusters]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["first-run", "your-method", "drift"])
def test_a_tutorial_runs_and_shows_what_its_text_says(name, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is an extra: pip install 'coterie[docs]'")
    tutorial = next(each for each in tutorials.TUTORIALS if each.name == name)
    path = os.pathsep.join([str(DOCS.parent / "src"), str(DOCS)])
    script = DOCS / "sitebuilder" / "cells.py"
    command = [sys.executable, str(script), str(tutorial.script), str(tmp_path / "work"), str(tmp_path / "out.json")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=120)
    found = json.loads((tmp_path / "out.json").read_text())
    shown = "\n".join(output.get("text", "") for cell in found for output in cell["outputs"])
    claims = {
        "first-run": ["clusters found: 4", "adjusted Rand index): 1.00"],
        "your-method": ["passed: keeps_paid_placements"],
        "drift": ["missed               0", "0 of these changes were detected"],
    }
    assert [claim for claim in claims[name] if claim not in shown] == []
