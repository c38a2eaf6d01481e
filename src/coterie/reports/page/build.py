"""One self-contained HTML file from the data of a page and the assets: template, style sheets and scripts."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

_ASSETS = "coterie.reports.page"
_FILE = re.compile(r"/\*\{([a-z_]+\.(?:css|js))\}\*/")
_SCRIPT = re.compile(r'<script id="page-script">(.*?)</script>', re.DOTALL)

#: Characters that end a script element, or a line of JavaScript, as JSON writes them instead.
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def build_page(data: Mapping[str, Any], *, connect: str = "'none'", template: str = "page.html") -> str:
    """The page as text.

    Texts of records are only in the JSON of a script element, which cannot end it, and in the escaped title.

    Args:
        data: The document of `page_data`.
        connect: Where the page may send requests, as a content security policy names it.
        template: File of the assets: the page of a report, or another with the same placeholders.
    """
    page = _FILE.sub(lambda found: asset(found[1]), asset(template))
    (script,) = _SCRIPT.findall(page)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    values = {
        "script_hash": digest,
        "connect": connect,
        "title": html.escape(str(data["title"])),
        "data": embedded(data),
    }
    # In one pass, so that a placeholder in the texts of a record is left as it is.
    return re.sub(r"\{\{(script_hash|connect|title|data)\}\}", lambda found: values[found[1]], page)


def embedded(data: Mapping[str, Any]) -> str:
    """The data as JSON that may stand in a script element."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def asset(name: str) -> str:
    """The content of a file of the assets."""
    return resources.files(_ASSETS).joinpath("assets", name).read_text(encoding="utf-8")
