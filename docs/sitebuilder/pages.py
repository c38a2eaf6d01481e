"""All pages that need no run and no drawing: those of docs/, of the methods, and the reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coterie.methods import METHODS
from sitebuilder import reference
from sitebuilder.method_pages import page
from sitebuilder.methods_table import comparison_table
from sitebuilder.paths import DOCS, PAGES, ROOT, write
from sitebuilder.staging import Staging

#: Folders whose modules can be linked to by the notes of the methods.
_CODE = ("methods", "clustering")


def stage(pages: Path = PAGES, *, figure: Callable[[str], str] = lambda name: "") -> None:
    """Write the pages.

    Args:
        pages: Folder of the pages; it is emptied.
        figure: Method → Markdown of its figure with a caption.
    """
    staging = Staging(pages)
    staging.copy_docs()
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        staging.add_project_file(ROOT / name)
    for name in METHODS:
        staging.add_page(f"methods/{name}.md", page(name, figure(name)), DOCS / "methods")
    for folder in _CODE:
        for path in sorted((ROOT / "src" / "coterie" / folder).glob("*.py")):
            staging.add_code(path.relative_to(ROOT))
    write(pages / "reference" / "settings.md", reference.settings_page())
    write(pages / "reference" / "commands.md", reference.commands_page())
    for name, text in reference.api_pages().items():
        write(pages / "reference" / "api" / name, text)
    compared = pages / "explanation" / "methods-compared.md"
    before, rest = compared.read_text(encoding="utf-8").split("<!-- table -->\n")
    write(compared, before + comparison_table() + rest.split("<!-- end of table -->")[1])
