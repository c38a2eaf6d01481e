"""Runs the cells of one percent script and writes their output as JSON. Needs the standard library only.

python cells.py SCRIPT FOLDER OUTPUT.json

Python cells share one namespace. A cell with `language="bash"` is a comment in the script, and runs in a shell. What a
cell prints, the value of its last expression, and the figures that it leaves open are its output. FOLDER is the working
directory.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

_CELL = re.compile(r"^# %%(.*)$", re.MULTILINE)
#: Longest a shell cell may take, in seconds.
_SHELL_LIMIT = 480


def cells(text: str) -> list[dict[str, str]]:
    """The cells of a percent script: `kind` (markdown, python or bash) and `source`."""
    text = re.sub(r"\A# ---\n(?:#.*\n)*?# ---\n", "", text)
    marks = list(_CELL.finditer(text))
    found = []
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        source = text[mark.end() : following.start() if following else None].strip("\n")
        kind = "markdown" if "[markdown]" in mark[1] else "bash" if 'language="bash"' in mark[1] else "python"
        if kind != "python":
            source = re.sub(r"^# ?", "", source, flags=re.MULTILINE)
        found.append({"kind": kind, "source": re.sub(r"  # noqa\b.*", "", source)})
    return found


def run_python(source: str, names: dict[str, Any]) -> list[dict[str, str]]:
    """Run a cell; returns its outputs, each as type → content."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "tutorial", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "tutorial", "eval"), names)
    outputs = [{"text": printed.getvalue()}] if printed.getvalue().strip() else []
    figures = _figures()
    if value is not None and not figures:
        html = value._repr_html_() if hasattr(value, "_repr_html_") else None
        outputs.append({"html": html} if html else {"text": repr(value)})
    return outputs + figures


def _figures() -> list[dict[str, str]]:
    """The open figures of matplotlib, if the cell used it, for light and dark pages."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    from sitebuilder.drawing import variants

    plt = sys.modules["matplotlib.pyplot"]
    found = [variants(plt.figure(number)) for number in plt.get_fignums()]
    plt.close("all")
    return found


def run_bash(source: str) -> list[dict[str, str]]:
    """Run a shell cell; its output is what it prints on stdout."""
    command = ["bash", "-euo", "pipefail", "-c", source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SHELL_LIMIT, check=False)
    if done.returncode:
        raise RuntimeError(f"a shell cell failed:\n{source}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return [{"text": done.stdout}] if done.stdout.strip() else []


def run(script: Path) -> list[dict[str, Any]]:
    """Run all cells; returns them with their outputs."""
    module = types.ModuleType("__tutorial__")
    sys.modules[module.__name__] = module  # dataclasses look up their module
    found: list[dict[str, Any]] = []
    for cell in cells(script.read_text(encoding="utf-8")):
        outputs: list[dict[str, str]] = []
        if cell["kind"] == "python":
            outputs = run_python(cell["source"], module.__dict__)
        elif cell["kind"] == "bash":
            outputs = run_bash(cell["source"])
        found.append({**cell, "outputs": outputs})
    return found


def _shell_command(folder: Path) -> None:
    """Put a `coterie` on the path that runs with this interpreter and its modules."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "coterie"
    program.write_text(f"#!{sys.executable}\nfrom coterie.cli import main\n\nmain()\n")
    program.chmod(0o755)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    os.environ["COLUMNS"] = "88"


if __name__ == "__main__":
    script, folder, output = (Path(each).resolve() for each in sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    _shell_command(folder / ".bin")
    os.chdir(folder)
    output.write_text(json.dumps(run(script)), encoding="utf-8")
