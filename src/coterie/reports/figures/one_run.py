"""What figures of a single run share."""

from __future__ import annotations

import numpy as np

from coterie.errors import SpecError
from coterie.reports.figures.groups import Runs, views_of
from coterie.reports.view import RunView
from coterie.types import Array


def one_view(run: Runs) -> RunView:
    """The view of a single run.

    Raises:
        SpecError: If there are several.
    """
    views = views_of(run)
    if len(views) > 1:
        raise SpecError(f"This figure shows one run, got {len(views)}; draw them on axes of their own")
    return views[0]


def clusters_of(view: RunView, clients: tuple[str, ...]) -> Array:
    """The cluster of each client in the last evaluation; -1 for one that has none."""
    table = view.clients
    known = dict(zip(table.name, table.cluster.tolist(), strict=True))
    return np.array([known.get(client, -1) for client in clients], np.int64)
