"""Which runs have what a figure with one panel per run shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coterie.errors import RecordError
from coterie.reports.figures.matrix import pairs_of
from coterie.reports.projection import project
from coterie.reports.search_view import candidates_of
from coterie.reports.view import RunView


def drawable(views: Sequence[RunView], kind: str) -> tuple[list[RunView], list[RunView]]:
    """Divide runs into those that a figure of this kind can show, and those that recorded nothing for it.

    If no run can be shown, all are returned as if they could: drawing them gives the error that says what to do.

    Args:
        views: The runs.
        kind: A name of `KINDS`.
    """
    has = _HAS.get(kind)
    if has is None:
        return list(views), []
    found = [has(view) for view in views]
    if not any(found):
        return list(views), []
    shown = [view for view, there in zip(views, found, strict=True) if there]
    return shown, [view for view, there in zip(views, found, strict=True) if not there]


def _without_error(read: Callable[[RunView], object]) -> Callable[[RunView], bool]:
    def has(view: RunView) -> bool:
        try:
            read(view)
        except RecordError:
            return False
        return True

    return has


#: Kind of a figure → whether a run has what it shows; other kinds show every run.
_HAS: dict[str, Callable[[RunView], bool]] = {
    "map": lambda view: project(view.evidence) is not None,
    "matrix": _without_error(pairs_of),
    "search": _without_error(candidates_of),
}
