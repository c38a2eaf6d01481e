"""The result of a run in a few sentences, and in a handful of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.reports.score_curves import PrimaryMetric
from coterie.runs.summary import number_at

if TYPE_CHECKING:
    from coterie.reports.view import RunView


@dataclass(frozen=True)
class Figure:
    """One of the large numbers of a page.

    Attributes:
        label: What it is.
        value: The number; None if it is not known.
        format: `percent`, `bytes`, `seconds`, `count` or `number`.
        note: A few words below it.
    """

    label: str
    value: float | None
    format: str
    note: str = ""


@dataclass(frozen=True)
class Scores:
    """Scores of a run, as headlines state them.

    Attributes:
        mean: Mean over clients of the primary metric, of the models that are served.
        worst_tenth: Mean over the worst tenth of clients.
        served: Round whose models are served, if it is not the last one (`run.final_model`).
        recent: Mean of `mean` over the evaluations of the last ten rounds, as in comparisons.
        span: These rounds in words; empty if there is only one.
    """

    mean: float | None
    worst_tenth: float | None
    served: int | None = None
    recent: float | None = None
    span: str = ""


def scores_of(view: RunView) -> Scores:
    """Scores after the last round, or after the round whose models are served, and their mean over the last rounds."""
    curves = view.curves
    known = np.flatnonzero(~np.isnan(curves.mean))
    if not len(known):
        return Scores(None, None)
    last = known[curves.round[known] > curves.round[known[-1]] - 10]
    span = "" if len(last) == 1 else "all rounds" if len(last) == len(known) else "the last ten rounds"
    best: Mapping[str, Any] = view.summary.get("best_round") or {}
    served = best["t"] + 1 if best.get("served") and np.any(curves.round[known] == best["t"] + 1) else None
    place = known[-1] if served is None else known[curves.round[known] == served][-1]
    recent = float(curves.mean[last].mean())
    return Scores(float(curves.mean[place]), float(curves.worst_tenth[place]), served, recent, span)


def headline(view: RunView) -> list[str]:
    """The result of a run in sentences."""
    scores, metric = scores_of(view), view.metric
    state = _state(view)
    if scores.mean is None:
        return [*state, "No round was evaluated, so there are no scores."]
    found, whose = _clusters(view), _whose(view)
    rate = f"{whose} {_scores(metric)} {metric.text(scores.mean)} on average"
    single = view.n_clients == 1
    if single:
        rate = f"{whose} {_scores(metric)} {metric.text(scores.mean)}"
    worst = "" if single else f", the worst tenth {metric.text(scores.worst_tenth)}"
    return [*state, f"{found}{rate}{worst}.", *_about_scores(scores, metric)]


def figures(view: RunView) -> list[Figure]:
    """The handful of large numbers."""
    scores, metric, summary = scores_of(view), view.metric, view.summary
    kind = "percent" if metric.percent else "number"
    when = "last evaluation" if scores.served is None else f"round {scores.served}, whose models are served"
    recent = f"; mean of {scores.span} {metric.text(scores.recent)}" if scores.span else ""
    clusters = summary.get("clusters") or {}
    found = [
        Figure(f"{metric.label}, mean over clients", scores.mean, kind, f"{when}{recent}"),
        Figure(f"{metric.label}, worst tenth of clients", scores.worst_tenth, kind, when),
    ]
    if clusters and not clusters.get("adapted"):
        agreement = number_at(summary, ("truth", "adjusted_rand"))
        note = "" if agreement is None else f"adjusted Rand index {agreement:.2f}"
        found.append(Figure("clusters", clusters.get("count"), "count", note))
    found.append(Figure("clients", view.n_clients or summary.get("clients"), "count"))
    planned = int(view.spec["run"]["rounds"])
    done = int(summary.get("rounds") or 0)
    found.append(Figure("rounds", done, "count", "" if done == planned else f"of {planned}"))
    found.append(Figure("traffic", sum(view.traffic.total), "bytes", "down and up, without evaluation"))
    if (seconds := number_at(summary, ("seconds", "total"))) is not None:
        found.append(Figure("time", seconds, "seconds"))
    return found


def notes(view: RunView) -> list[str]:
    """What a reader must know in addition to the headline."""
    summary, found = view.summary, []
    coverage = number_at(summary, ("coverage",))
    if coverage is not None and coverage < 1:
        found.append(
            f"Coverage: the method has assigned a model to {100 * coverage:.1f} % of the clients; the others are "
            "scored with the fallback model."
        )
    if (summary.get("clusters") or {}).get("collapsed"):
        found.append("The method has several models, but all clients are served one of them.")
    if source := summary.get("source"):
        found.append(f"Data: {source}.")
    if idle := summary.get("clients_without_examples"):
        found.append(f"{idle} clients have no training examples; they are evaluated but never trained.")
    if attackers := summary.get("attackers"):
        found.append(f"{attackers} of {summary.get('clients')} clients are malicious (simulated).")
    if best := summary.get("best_round"):
        stopped = "; the run stopped early" if summary.get("stopped_early") else ""
        found.append(
            f"Best round by validation examples: {best['t'] + 1}, with {view.metric.label} "
            f"{view.metric.text(best['test'])} on test examples{stopped}."
        )
    return found


def _state(view: RunView) -> list[str]:
    done, planned = int(view.summary.get("rounds") or 0), int(view.spec["run"]["rounds"])
    after = f"after {done} of {planned} rounds"
    texts: Mapping[str, str] = {
        "failed": f"The run failed {after}",
        "diverged": f"The run diverged {after}",
        "interrupted": f"The run was interrupted {after}",
        "running": f"The run is going on, {after}",
    }
    if view.status not in texts:
        return []
    reason = "" if view.reason is None else f": {view.reason.rstrip('.')}"
    return [f"{texts[view.status]}{reason}."]


def _clusters(view: RunView) -> str:
    """What was found, with a semicolon; empty if the method has no clusters."""
    entry: Mapping[str, Any] = view.summary.get("clusters") or {}
    if not entry or entry.get("adapted") or len(entry.get("sizes") or ()) == 1 or view.n_clients == 1:
        return ""
    count = int(entry.get("count") or 0)
    agreement = number_at(view.summary, ("truth", "adjusted_rand"))
    index = "" if agreement is None else f", adjusted Rand index {agreement:.2f}"
    return f"{count} {'cluster' if count == 1 else 'clusters'} found{index}; "


def _whose(view: RunView) -> str:
    """Begin the sentence with the model that clients are served."""
    entry: Mapping[str, Any] = view.summary.get("clusters") or {}
    if entry.get("adapted"):
        return "With its own model a client"
    if view.n_clients == 1:
        return "The only client"
    if len(entry.get("sizes") or ()) == 1:
        return "With one model for all a client"
    return "with the model of its cluster a client"


def _scores(metric: PrimaryMetric) -> str:
    return "scores" if metric.name == "accuracy" else f"has a {metric.label} of"


def _about_scores(scores: Scores, metric: PrimaryMetric) -> list[str]:
    what = f"{metric.label[0].upper()}{metric.label[1:]}"
    when = "after the last evaluated round"
    if scores.served is not None:
        when = f"after round {scores.served}, whose models are served"
    recent = f"; mean of {scores.span}: {metric.text(scores.recent)}" if scores.span else ""
    return [f"{what} on test examples {when}{recent}."]
