"""The parts of a run that have one value or more for each client: table, movements, map, matrix, labels."""

from __future__ import annotations

from collections import Counter

import numpy as np

from coterie.reports.matrix_order import order_matrix
from coterie.reports.movements import ABSENT
from coterie.reports.page.plain import flags, number, numbers, quantized
from coterie.reports.projection import Projection, project
from coterie.reports.view import RunView
from coterie.runs.record import JsonObject
from coterie.types import Array

#: With more points, the map shows the number of clients in each cell of a grid.
MAX_POINTS = 4000
#: Cells of that grid in each direction.
GRID = 60
#: With more rows, the matrix shows a sample of clients.
MAX_ROWS = 600
#: Migrations that are listed one by one.
MAX_MIGRATIONS = 1000
#: Clusters in the diagram of movements; the smallest others are drawn as one.
MAX_MOVING = 20
#: With more clients, labels of each client are left out.
MAX_LABELED = 3000
#: Stands for all clusters that are not drawn one by one.
OTHERS = -3


def clients_part(view: RunView) -> JsonObject | None:
    """One list per column."""
    table = view.clients
    if not table.name:
        return None
    return {
        "name": list(table.name),
        "cluster": table.cluster.tolist(),
        "truth": None if table.truth is None else table.truth.tolist(),
        "truth_matches": None if table.differs is None else flags(~table.differs),
        "samples": numbers(table.samples),
        "test_samples": numbers(table.test_samples),
        "score": numbers(table.score),
        "loss": numbers(table.loss),
        "nearest": [each or None for each in table.nearest] if any(table.nearest) else None,
        "margin": None if np.isnan(table.margin).all() else numbers(table.margin, 3),
        "joined": numbers(table.joined) if table.joined.any() else None,
        "moved": numbers(table.moved),
        "attacker": flags(table.attacker) if table.attacker.any() else None,
        "labels": _label_texts(view),
    }


def labels_part(view: RunView) -> JsonObject | None:
    """Number of training examples of each class in each cluster; None if it is not recorded."""
    counts, names = view.labels_per_cluster, view.class_names
    if counts is None or names is None:
        return None
    drifted = bool(view.movements.shifts)
    return {
        "classes": names,
        "per_cluster": {str(cluster): each.tolist() for cluster, each in counts.items()},
        "note": "Training examples at the start of the run; the data have changed since then." if drifted else None,
    }


def movements_part(view: RunView) -> JsonObject | None:
    """Moves between clusters."""
    moves = view.movements
    if not len(moves.round):
        return None
    shown = np.array(moves.shown, np.int64)
    table = moves.cluster[shown]
    present = Counter(table[table >= 0].tolist())
    kept = {cluster for cluster, _ in present.most_common(MAX_MOVING)}

    def drawn(cluster: int) -> int:
        return cluster if cluster < 0 or cluster in kept else OTHERS

    links: dict[tuple[int, int, int], list[int]] = {}
    for link in moves.links:
        key = link.step, drawn(link.before), drawn(link.after)
        sums = links.setdefault(key, [0, 0, 0])
        for place, count in enumerate((link.clients, link.drifted, link.flagged)):
            sums[place] += count
    nodes = [
        {"step": step, "cluster": cluster, "clients": count}
        for step, line in enumerate(table)
        for cluster, count in sorted(Counter(drawn(each) for each in line.tolist() if each != ABSENT).items())
    ]
    listed = moves.migrations[:MAX_MIGRATIONS]
    return {
        "steps": [{"label": f"round {t}", "round": t} for t in moves.round[shown].tolist()],
        "nodes": nodes,
        "links": [
            {"step": step, "from": a, "to": b, "clients": n, "drifted": drifted, "flagged": flagged}
            for (step, a, b), (n, drifted, flagged) in links.items()
        ],
        "changes": {"round": numbers(moves.round), "clients": numbers(moves.changes)},
        "migrations": [
            {
                "round": each.round,
                "client": each.client,
                "from": each.before,
                "to": each.after,
                "shifted": each.shifted,
                "flagged": each.flagged,
                "correct": each.correct,
            }
            for each in listed
        ],
        "total_migrations": len(moves.migrations),
        "note": _movements_note(view, len(kept), len(present)),
    }


def _movements_note(view: RunView, kept: int, present: int) -> str:
    moves = view.movements
    texts = []
    if len(moves.shown) < len(moves.round):
        texts.append("Of the evaluations, the first, the last and those before which most clients moved are drawn.")
    if kept < present:
        texts.append(f"The {kept} largest of {present} clusters are drawn one by one.")
    if len(moves.migrations) > MAX_MIGRATIONS:
        texts.append(f"The first {MAX_MIGRATIONS:,} of {len(moves.migrations):,} migrations are listed.")
    return " ".join(texts)


def map_part(view: RunView) -> JsonObject | None:
    """The map of clients; None if the method recorded nothing that it clustered on."""
    found = project(view.evidence)
    position = {name: place for place, name in enumerate(view.clients.name)}
    if found is None or not position:
        return None
    places = np.array([position.get(client, -1) for client in found.clients], np.int64)
    known = places >= 0
    base = {
        "method": found.how,
        "x_label": found.labels[0],
        "y_label": found.labels[1],
        "explained": None if found.explained is None else [number(each, 3) for each in found.explained],
    }
    missing = len(position) - int(known.sum())
    absent = f"{missing} clients are not on the map: the method recorded nothing for them." if missing else None
    note = _joined(absent, _drift_note(view))
    if known.sum() > MAX_POINTS:
        return {**base, **_binned(view, found, places, known), "aggregated": True, "note": _grid_note(known, note)}
    return {
        **base,
        "x": numbers(found.x[known], 4),
        "y": numbers(found.y[known], 4),
        "client": places[known].tolist(),
        "aggregated": False,
        "note": note,
    }


def _drift_note(view: RunView) -> str | None:
    """What evidence from before a drift does not show."""
    if not view.movements.shifts:
        return None
    return (
        "Values are from when a client was last clustered, colors from the end: data of clients have changed between."
    )


def _joined(*notes: str | None) -> str | None:
    return " ".join(note for note in notes if note) or None


def _grid_note(known: Array, note: str | None) -> str:
    text = (
        f"Each point stands for the clients of one cluster in a cell of a {GRID} × {GRID} grid, {known.sum():,} in all."
    )
    return text if note is None else f"{text} {note}"


def _binned(view: RunView, found: Projection, places: Array, known: Array) -> JsonObject:
    """The number of clients in each cell of a grid, for each cluster and true cluster."""
    x, y, where = found.x[known], found.y[known], places[known]
    cluster = view.clients.cluster[where]
    truth = np.full(len(where), -1) if view.clients.truth is None else view.clients.truth[where]
    cells = [np.minimum((GRID * (v - v.min()) / (np.ptp(v) or 1.0)).astype(np.int64), GRID - 1) for v in (x, y)]
    _, first, which, count = np.unique(
        np.stack([*cells, cluster, truth], axis=1), axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    which = which.reshape(-1)
    return {
        "x": numbers(np.bincount(which, weights=x) / count, 4),
        "y": numbers(np.bincount(which, weights=y) / count, 4),
        "client": where[first].tolist(),
        "cluster": cluster[first].tolist(),
        "truth": None if view.clients.truth is None else truth[first].tolist(),
        "count": count.tolist(),
    }


def matrix_part(view: RunView) -> JsonObject | None:
    """The matrix of distances between clients, ordered by cluster; None if the method recorded none."""
    pairs = view.evidence.pairs
    position = {name: place for place, name in enumerate(view.clients.name)}
    if pairs is None or not position:
        return None
    known = np.array([place for place, client in enumerate(pairs.clients) if client in position], np.int64)
    if len(known) < 2:
        return None
    rows = np.array([position[pairs.clients[place]] for place in known.tolist()], np.int64)
    sampled = _sample(view.clients.cluster[rows], MAX_ROWS)
    known, rows = known[sampled], rows[sampled]
    cluster = view.clients.cluster[rows]
    ordered = order_matrix(pairs.distances()[np.ix_(known, known)], cluster)
    values = np.asarray(pairs.values, np.float64)[np.ix_(known, known)][np.ix_(ordered.order, ordered.order)]
    content, low, high = quantized(values)
    total = pairs.sampled_from or len(pairs.clients)
    cut = len(rows) < total
    return {
        "n": len(rows),
        "order": rows[ordered.order].tolist(),
        "cluster": cluster[ordered.order].tolist(),
        "values": content,
        "min": number(low),
        "max": number(high),
        "what": pairs.what,
        "alike": pairs.alike,
        "round": pairs.round,
        "dendrogram": {
            "segments": [[number(each, 4) for each in line] for line in ordered.segments.tolist()],
            "height": number(ordered.height, 4),
        },
        "aggregated": cut,
        "note": _joined(
            f"A sample of {len(rows):,} of {total:,} clients, from every cluster." if cut else None, _drift_note(view)
        ),
    }


def _sample(cluster: Array, most: int) -> Array:
    """Positions of at most so many clients, evenly from all clusters, at least one of each if possible."""
    if len(cluster) <= most:
        return np.arange(len(cluster))
    order = np.argsort(cluster, kind="stable")
    taken = order[np.linspace(0, len(order) - 1, most).astype(np.int64)]
    first = [int(np.flatnonzero(cluster == each)[0]) for each in np.unique(cluster)]
    found: Array = np.unique([*first, *taken.tolist()])
    return found


def _label_texts(view: RunView) -> list[str] | None:
    """The most frequent labels of each client, such as `3 ×12, 5 ×9`."""
    names = view.class_names
    if view.facts is None or view.facts.labels is None or names is None or len(view.clients.name) > MAX_LABELED:
        return None
    position: dict[str, int] = {client: place for place, client in enumerate(view.facts.clients)}
    texts = []
    for client in view.clients.name:
        counts = view.facts.labels[position[client]]
        most = [int(each) for each in np.argsort(-counts, kind="stable")[:3] if counts[each]]
        rest = int((counts > 0).sum()) - len(most)
        texts.append(", ".join(f"{names[each]} ×{counts[each]}" for each in most) + (f", +{rest}" if rest else ""))
    return texts
