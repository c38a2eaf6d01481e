"""Typesets the equations of the built site with KaTeX at build time: pages need no JavaScript for them.

KaTeX is obtained from npm, once, into build/docs/katex. Its style sheet and fonts become part of the site. Without npm
the pages show the LaTeX text of the equations.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from sitebuilder.paths import WORK

VERSION = "0.19.1"
#: Style sheet of a site with typeset equations, in the folder of the site.
STYLE_SHEET = "assets/katex/katex.min.css"
_FOLDER = WORK / "katex"
_EQUATION = re.compile(r'<(span|div) class="arithmatex">(?:\\\((.*?)\\\)|\\\[(.*?)\\\])</\1>', re.DOTALL)
_PROGRAM = """
const katex = require('katex');
const found = JSON.parse(require('fs').readFileSync(0));
const typeset = ([text, displayMode]) => katex.renderToString(text, {displayMode, strict: 'error'});
console.log(JSON.stringify(found.map(typeset)));
"""


@cache
def available() -> bool:
    """Whether KaTeX is there; it is installed if npm is."""
    if (_FOLDER / "node_modules" / "katex" / "package.json").exists():
        return True
    if shutil.which("npm") is None or shutil.which("node") is None:
        return False
    _FOLDER.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(_FOLDER), f"katex@{VERSION}"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def typeset(site: Path) -> int:
    """Replace the LaTeX text in every page of a built site; returns the number of equations.

    Raises:
        ValueError: An equation has an error; the message is KaTeX's.
    """
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    keys = {_key(match) for text in pages.values() for match in _EQUATION.finditer(text)}
    rendered = _render(sorted(keys))
    count = 0
    for path, text in pages.items():
        new, number = _EQUATION.subn(lambda match: rendered[_key(match)], text)
        count += number
        if number:
            path.write_text(new, encoding="utf-8")
    fonts = _FOLDER / "node_modules" / "katex" / "dist"
    target = (site / STYLE_SHEET).parent
    shutil.copytree(fonts / "fonts", target / "fonts", ignore=lambda _, names: {n for n in names if n[-6:] != ".woff2"})
    shutil.copy(fonts / "katex.min.css", site / STYLE_SHEET)
    return count


def _key(match: re.Match[str]) -> tuple[str, bool]:
    """LaTeX text, and whether it is displayed on lines of its own."""
    inline, display = match[2], match[3]
    return html.unescape(inline if inline is not None else display).strip(), inline is None


def _render(keys: list[tuple[str, bool]]) -> dict[tuple[str, bool], str]:
    done = subprocess.run(
        ["node", "-e", _PROGRAM], input=json.dumps(keys), capture_output=True, text=True, check=False, cwd=_FOLDER
    )
    if done.returncode:
        raise ValueError(f"an equation cannot be typeset: {done.stderr.strip()[:800]}")
    return dict(zip(keys, json.loads(done.stdout), strict=True))
