"""What figures of a single run share."""

from __future__ import annotations

from coterie.errors import SpecError
from coterie.reports.figures.groups import Runs, views_of
from coterie.reports.view import RunView


def one_view(run: Runs) -> RunView:
    """The view of a single run.

    Raises:
        SpecError: If there are several.
    """
    views = views_of(run)
    if len(views) > 1:
        raise SpecError(f"This figure shows one run, got {len(views)}; draw each on its own axes")
    return views[0]


def clusters_of(view: RunView) -> dict[str, int]:
    """Client → its cluster in the last evaluation; -1 for one that has none."""
    return dict(zip(view.clients.name, view.clients.cluster.tolist(), strict=True))
