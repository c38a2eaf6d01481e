"""Data of report pages, made from formulas: what `page_data` would make from records, in any size and without runs."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np

Data = dict[str, Any]

METRIC = {"name": "accuracy", "label": "accuracy", "greater_is_better": True, "percent": True}

#: Names that do harm if they are read as HTML, as a formula, or as part of an attribute.
HOSTILE = [
    "<img src=x onerror=window.hacked=1>",
    "</script><script>window.hacked=1</script>",
    "a\"b'c onfocus=window.hacked=1",
    '=HYPERLINK("http://example.invalid")',
    "x" * 300,
    "\u202eright to left\u202c שלום",
    "👩‍🔬 emoji & <b>bold</b>",
    "javascript:window.hacked=1",
]


#: Further columns of a comparison, and for each format a value that takes much room.
WIDE = [
    {"key": f"wide{place}", "label": label, "format": kind, "better": "low", "help": None}
    for place, (label, kind) in enumerate(
        {
            "worst tenth of clients": "percent",
            "best round": "percent",
            "coverage": "percent",
            "test loss": "number",
            "clusters": "count",
            "adjusted Rand index": "number",
            "down": "bytes",
            "up": "bytes",
            "time": "seconds",
        }.items()
    )
]
LONG = {"percent": 0.99, "number": 123.45, "count": 100, "bytes": 876_543, "seconds": 59.99}


def page(*runs: Data, comparison: Data | None = None, title: str = "fedgroup on digits, seed 0") -> Data:
    """The document of a page."""
    kind = "run" if comparison is None else "comparison"
    common = {"format": 1, "created": "2026-01-02T03:04:05+00:00", "version": "0.1.0", "live": None}
    return {**common, "title": title, "kind": kind, "runs": list(runs), "comparison": comparison}


def run(
    clients: int = 40,
    rounds: int = 20,
    clusters: int = 4,
    *,
    truth: bool = True,
    drift: bool = False,
    names: list[str] | None = None,
) -> Data:
    """One run with all parts; client i is in cluster i mod `clusters`, except that client 1 is misplaced."""
    found = _client_columns(clients, clusters, truth, names)
    return {
        "id": "run-0",
        "name": "fedgroup-0",
        "path": "runs/fedgroup-0",
        "method": "fedgroup",
        "data": "digits",
        "model": "mclr",
        "seed": 0,
        "status": "done",
        "reason": None,
        "started": "2026-01-02T03:00:00+00:00",
        "seconds": {
            "total": 12.5,
            "setup": 1.25,
            "training": 6.5,
            "clustering": 0.75,
            "evaluation": 2.5,
            "compile": 3.0,
        },
        "headline": [f"{clusters} clusters found; with the model of its cluster a client scores 92.8 % on average."],
        "notes": ["The data are a subset."],
        "figures": [
            {"label": "accuracy", "value": 0.928, "format": "percent", "note": "over all examples"},
            {"label": "traffic", "value": 3_400_000, "format": "bytes", "note": "both directions"},
            {"label": "clients", "value": clients, "format": "count", "note": ""},
        ],
        "metric": METRIC,
        "curves": _curves(rounds, clusters, drift),
        "sizes": _sizes(clients, rounds, clusters),
        "movements": _movements(clients, clusters, found["name"], drift),
        "map": _map(clients, clusters),
        "matrix": _matrix(min(clients, 600), clusters),
        "labels": {
            "classes": [str(k) for k in range(10)],
            "per_cluster": {str(c): [10 * (1 + (k + c) % 5) for k in range(10)] for c in range(clusters)},
            "note": None,
        },
        "clients": found,
        "traffic": {
            "by_purpose": {
                "train": {"down": 2_000_000, "up": 1_400_000, "in_total": True},
                "evaluate": {"down": 900_000, "up": 1_200, "in_total": False},
            },
            "cumulative": {
                "round": list(range(1, rounds + 1)),
                "down": [100_000 * t for t in range(1, rounds + 1)],
                "up": [70_000 * t for t in range(1, rounds + 1)],
            },
            "per_megabyte": {
                "megabytes": [0.17 * t for t in range(rounds + 1)],
                "score": [_score(t) for t in range(rounds + 1)],
            },
            "note": None,
        },
        "faults": {
            "rejected": {"the reply contains NaN": 3},
            "lost": 2,
            "skipped": [{"round": 4, "reason": "2 of 10 replies"}],
            "attackers": 0,
            "notes": [],
        },
        "privacy": {
            "epsilon": 3.21,
            "delta": 1e-5,
            "noise_multiplier": 1.1,
            "max_update_norm": 1.0,
            "over_rounds": {"round": [1, 2, 3], "epsilon": [1.0, 2.2, 3.21]},
            "words": None,
        },
        "sees": ["The update of each client that trains."],
        "drift": _drift() if drift else None,
        "settings": [
            {
                "section": "run",
                "key": "rounds",
                "value": rounds,
                "default": 100,
                "changed": True,
                "help": "Number of rounds.",
            },
            {
                "section": "local",
                "key": "batch_size",
                "value": 10,
                "default": 10,
                "changed": False,
                "help": "Examples in a batch.",
            },
        ],
        "versions": {"python": "3.11.2", "coterie": "0.1.0"},
        "command": "coterie run --method fedgroup --rounds 20",
    }


def _score(t: int, offset: float = 0.0) -> float:
    return round(0.93 - 0.7 * math.exp(-t / 6) - offset, 5)


def _curves(rounds: int, clusters: int, drift: bool) -> Data:
    steps = list(range(rounds + 1))
    primary = [_score(t) for t in steps]
    band = {
        name: [max(0.0, value + shift) for value in primary]
        for name, shift in {"p10": -0.15, "p25": -0.06, "p50": 0.0, "p75": 0.03, "p90": 0.06}.items()
    }
    return {
        "round": steps,
        "primary": primary,
        "mean": [value - 0.01 for value in primary],
        "worst_tenth": [max(0.0, value - 0.2) for value in primary],
        "band": band,
        "loss": [2.3 * math.exp(-t / 8) + 0.2 for t in steps],
        "coverage": [1.0 if t else 0.5 for t in steps],
        "validation": None,
        "adjusted_rand": [min(1.0, t / 5) for t in steps],
        "per_cluster": {str(c): [_score(t, 0.02 * c) if t else None for t in steps] for c in range(clusters)},
        "target": 0.9,
        "train": {
            "round": steps[1:],
            "loss": [2.0 * math.exp(-t / 7) for t in steps[1:]],
            "discrepancy": [1 / t for t in steps[1:]],
        },
        "other": {},
        "events": [{"round": 5, "kind": "shift", "label": "data of 3 clients changed"}] if drift else [],
    }


def _sizes(clients: int, rounds: int, clusters: int) -> Data:
    steps = list(range(rounds + 1))
    sizes = {str(c): [len(range(c, clients, clusters)) for _ in steps] for c in range(clusters)}
    return {"round": steps, "clusters": sizes, "unassigned": [0 for _ in steps], "note": None}


def _movements(clients: int, clusters: int, names: list[str], drift: bool) -> Data:
    size = [len(range(c, clients, clusters)) for c in range(clusters)]
    steps = [{"label": f"round {t}", "round": t} for t in (1, 5, 20)]
    stay = [
        {"step": step, "from": c, "to": c, "clients": size[c], "drifted": 0, "flagged": 0}
        for step in (0, 1)
        for c in range(clusters)
    ]
    migrations = []
    if drift and clusters > 1:  # one client of cluster 0 moves to cluster 1 after round 1, and back
        for link in stay:
            if link["from"] == 0:
                link["clients"] -= 1
        stay.append({"step": 0, "from": 0, "to": 1, "clients": 1, "drifted": 1, "flagged": 1})
        stay.append({"step": 1, "from": 1, "to": 0, "clients": 1, "drifted": 0, "flagged": 0})
        migrations = [
            {"round": 5, "client": names[0], "from": 0, "to": 1, "shifted": True, "flagged": True, "correct": True},
            {"round": 9, "client": names[0], "from": 1, "to": 0, "shifted": False, "flagged": False, "correct": False},
        ]
    moved = 1 if migrations else 0
    nodes = [
        {
            "step": step,
            "cluster": c,
            "clients": size[c] + (moved if step == 1 and c == 1 else -moved if step == 1 and c == 0 else 0),
        }
        for step in range(3)
        for c in range(clusters)
    ]
    return {
        "steps": steps,
        "nodes": nodes,
        "links": stay,
        "migrations": migrations,
        "total_migrations": len(migrations),
        "note": None,
    }


def _map(clients: int, clusters: int) -> Data:
    draw = np.random.default_rng(1)
    where = np.arange(clients) % clusters
    angle = 2 * np.pi * where / clusters
    x = (np.cos(angle) + draw.normal(0, 0.12, clients)).round(4).tolist()
    y = (np.sin(angle) + draw.normal(0, 0.12, clients)).round(4).tolist()
    return {
        "x": x,
        "y": y,
        "client": list(range(clients)),
        "method": "PCA of the updates",
        "x_label": "first component",
        "y_label": "second component",
        "explained": [0.52, 0.31],
        "aggregated": False,
        "note": None,
    }


def _matrix(n: int, clusters: int) -> Data | None:
    if n < 2:
        return None
    order = sorted(range(n), key=lambda i: (i % clusters, i))
    cluster = np.array([i % clusters for i in order])
    apart = np.where(cluster[:, None] == cluster[None], 40, 210).astype(np.uint8)
    np.fill_diagonal(apart, 0)
    segments = [[i + 0.5, 0.0, i + 0.5, 0.3] for i in range(n)] + [[0.5, 0.3, n - 0.5, 0.3]]
    return {
        "n": n,
        "order": order,
        "cluster": cluster.tolist(),
        "values": base64.b64encode(apart.tobytes()).decode(),
        "min": 0.0,
        "max": 2.0,
        "what": "cosine distance of updates",
        "alike": False,
        "dendrogram": {"segments": segments, "height": 0.3},
        "aggregated": False,
        "note": None,
    }


def _client_columns(clients: int, clusters: int, truth: bool, names: list[str] | None) -> Data:
    plain = [f"client-{i:03d}" for i in range(clients)]
    own = [*(names or []), *plain[len(names or []) :]]
    place = [i % clusters for i in range(clients)]
    real = [*place]
    if clients > 1 and clusters > 1:
        real[1] = 0
    return {
        "name": own,
        "cluster": place,
        "truth": real if truth else None,
        "truth_matches": [a == b for a, b in zip(place, real, strict=True)] if truth else None,
        "samples": [50 + 7 * (i % 13) for i in range(clients)],
        "test_samples": [10 + i % 5 for i in range(clients)],
        "score": [round(0.6 + 0.4 * ((37 * i) % 101) / 101, 4) for i in range(clients)],
        "loss": [round(0.2 + 0.01 * (i % 17), 3) for i in range(clients)],
        "nearest": [str((c + 1) % clusters) for c in place] if clusters > 1 else None,
        "margin": [0.25 + 0.01 * (i % 7) for i in range(clients)] if clusters > 1 else None,
        "joined": None,
        "moved": [0] * clients,
        "attacker": None,
        "labels": [f"{i % 10} ×12, {(i + 3) % 10} ×9" for i in range(clients)] if clients <= 3000 else None,
    }


def _drift() -> Data:
    figures = [
        {"label": "noticed", "value": 3, "format": "number", "note": ""},
        {"label": "missed", "value": 1, "format": "number", "note": ""},
    ]
    return {
        "figures": figures,
        "shifted": {"round": [5, 10], "clients": [3, 1]},
        "flagged": {"round": [6], "clients": [3]},
    }


def failed() -> Data:
    """A run that failed before its first evaluation."""
    empty = run()
    for key in (
        "curves",
        "sizes",
        "movements",
        "map",
        "matrix",
        "labels",
        "clients",
        "privacy",
        "sees",
        "versions",
        "seconds",
        "figures",
    ):
        empty[key] = None
    empty.update(
        status="failed",
        reason="Only 1 of 8 clients replied in preparation.",
        headline=["The run failed before its first round."],
    )
    empty["traffic"] = None
    empty["faults"] = {
        "rejected": None,
        "lost": None,
        "skipped": [],
        "attackers": None,
        "notes": ["Lost and rejected replies are counted when the run ends."],
    }
    return empty


def comparison(
    methods: int = 7, seeds: int = 3, rounds: int = 20, clients: int = 40, suffix: str = "", wide: bool = False
) -> Data:
    """The page of a comparison; method m is m points worse than the first.

    `suffix`: end of all names; `wide`: the table has all columns that a comparison can have.
    """
    names = [
        "fedgroup",
        "ifca",
        "fedavg",
        "fedprox",
        "cfl",
        "srfca",
        "flexcfl",
        *(f"method{m}" for m in range(7, methods)),
    ][:methods]
    names = [name + suffix for name in names]
    steps = list(range(rounds + 1))
    curves = {
        name: {
            "round": steps,
            "mean": [_score(t, 0.01 * m) for t in steps],
            "lower": [_score(t, 0.01 * m + 0.02) for t in steps],
            "upper": [_score(t, 0.01 * m - 0.02) for t in steps],
        }
        for m, name in enumerate(names)
    }
    runs = []
    for name in names:
        for seed in range(seeds):
            slim = {
                **run(clients, rounds),
                "id": f"{name}-{seed}",
                "name": f"{name}, seed {seed}",
                "method": name,
                "seed": seed,
            }
            runs.append({**slim, "map": None, "matrix": None, "labels": None, "clients": None, "movements": None})
    columns = [
        {"key": "accuracy", "label": "Accuracy", "format": "percent", "better": "high", "help": "Over all examples"},
        {"key": "traffic", "label": "Traffic", "format": "bytes", "better": "low", "help": None},
    ]
    rows = [
        {
            "method": name,
            "status": "done",
            "runs": [f"{name}-{seed}" for seed in range(seeds)],
            "cells": {
                "accuracy": {"mean": 0.928 - 0.01 * m, "deviation": 0.005, "n": seeds, "best": m == 0},
                "traffic": {"mean": 1e6 * (m + 1), "deviation": 0.0, "n": seeds, "best": m == 0},
            },
        }
        for m, name in enumerate(names)
    ]
    if wide:
        columns += WIDE
        for row in rows:
            row["cells"] |= {
                each["key"]: {"mean": LONG[each["format"]], "deviation": LONG[each["format"]] / 9, "n": seeds}
                for each in WIDE
            }
    tests = [
        {
            "a": names[0],
            "b": other,
            "difference": 0.01 * m,
            "p": 0.04 / m,
            "p_adjusted": min(1.0, 0.04 * (methods - 1) / m),
            "significant": m > 3,
            "n": clients,
            "better": "a",
        }
        for m, other in enumerate(names)
        if m
    ]
    document = {
        "methods": names,
        "metric": METRIC,
        "n_clients": clients,
        "seeds": list(range(seeds)),
        "rows_notes": ["accuracy: mean of the last ten rounds."],
        "table": {"columns": columns, "rows": rows},
        "tests": tests,
        "tests_note": "Wilcoxon signed-rank test over clients, corrected by Holm.",
        "curves": curves,
        "loss_curves": None,
        "score_against_bytes": {
            name: {"megabytes": [0.17 * (m + 1) * t for t in steps], "score": curves[name]["mean"]}
            for m, name in enumerate(names)
        },
        "score_against_seconds": {
            name: {"seconds": [0.3 * (m + 1) * t for t in steps], "score": curves[name]["mean"]}
            for m, name in enumerate(names)
        },
        "rounds_to_target": {
            "target": 0.85,
            "rows": [
                {"method": name, "rounds": [13 + m, 14 + m, None if m == 2 else 15 + m], "bytes": [1e6, 1.1e6, None]}
                for m, name in enumerate(names)
            ],
        },
        "client_wins": {
            "clients": [f"client-{i:03d}" for i in range(clients)],
            "scores": {
                name: [round(0.6 + 0.4 * ((37 * (i + m)) % 101) / 101, 4) for i in range(clients)]
                for m, name in enumerate(names)
            },
        },
        "drift_table": None,
        "conclusion": [f"{names[0]} scores best."],
        "headline": [],
    }
    return page(*runs, comparison=document, title=f"{methods} methods on digits")
