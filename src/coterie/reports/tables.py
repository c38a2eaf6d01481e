"""Tables for papers and spreadsheets, from records alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from coterie.errors import RecordError, SpecError, unknown
from coterie.runs.comparison import comparison_of
from coterie.runs.comparison_tables import FORMATS

if TYPE_CHECKING:
    from coterie.reports.figures.groups import Runs
    from coterie.reports.view import RunView

#: Ending of a file → format of the table.
ENDINGS = {".tex": "latex", ".md": "markdown", ".csv": "csv"}


def table(runs: Runs, form: str = "latex", *, labels: Mapping[str, str] | None = None) -> str:
    """The table of `coterie compare` for recorded runs: mean ± standard deviation over seeds, the best in bold (LaTeX).

    Args:
        runs: Views, records, folders of records, or label → any of these. The others are tested against the first.
        form: `latex` (for the package booktabs), `markdown` or `csv`.
        labels: Label of a method → what the table says instead.

    Returns:
        The text of the table.
    """
    from coterie.reports.figures.groups import groups_of, renamed

    if form not in FORMATS:
        raise SpecError(unknown("format", form, FORMATS))
    groups = renamed(groups_of(runs), labels or {})
    if len(panels := {group.panel for group in groups}) > 1:
        raise SpecError(
            f"A table compares runs on the same data, with the same model and drift; got {'; '.join(sorted(panels))}"
        )
    for view in (view for group in groups for view in group.views):
        if view.status != "done":
            raise RecordError(f"{view.path} is not finished ({view.status}); continue it with: coterie resume")
    ordered = [dataclasses.replace(each, views=tuple(sorted(each.views, key=_seed))) for each in groups]
    return FORMATS[form](comparison_of({group.label: [view.record for view in group.views] for group in ordered}))


def _seed(view: RunView) -> int:
    return int(view.spec["run"]["seed"])
