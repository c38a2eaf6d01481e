"""HTML for notebooks. All texts are escaped: names of data sets, clients and methods come from users and files."""

from __future__ import annotations

import html
from collections.abc import Sequence


def html_facts(title: str, facts: Sequence[tuple[str, object]]) -> str:
    """A title, and a table of pairs of name and value."""
    rows = "".join(f"<tr><th>{_escaped(name)}</th><td>{_escaped(value)}</td></tr>" for name, value in facts)
    return f"<div><b>{_escaped(title)}</b><table>{rows}</table></div>"


def html_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table with a header."""
    head = "".join(f"<th>{_escaped(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _escaped(value: object) -> str:
    return html.escape(str(value), quote=True)
