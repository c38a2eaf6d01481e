"""What a run ends with: its summary, and the models that clients are served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coterie.data.description import DataDescription
from coterie.federation import device
from coterie.runs import privacy
from coterie.runs import summary as figures
from coterie.runs.build import Built
from coterie.runs.early_stopping import EarlyStopping
from coterie.runs.predict import described
from coterie.runs.record import FORMAT, JsonObject
from coterie.runs.scoring import Scores


def run_summary(
    built: Built,
    status: str,
    rows: Sequence[JsonObject],
    seconds: Mapping[str, float],
    stopping: EarlyStopping,
    served: int | None,
) -> JsonObject:
    """The summary of a run.

    Args:
        built: The run.
        status: How it ended.
        rows: The lines of its steps.
        seconds: Part → duration.
        stopping: Whether it stopped early.
        served: The step whose models are served; None: the last one that was evaluated.
    """
    spec, session, metrics = built.spec, built.session, built.metrics
    drifting = None if spec.shift.name == "none" else built.data
    return {
        "format": FORMAT,
        "status": status,
        "method": spec.method.name,
        "data": spec.data.name,
        "source": built.about.source,
        "model": spec.model.name,
        "seed": spec.run.seed,
        "rounds": session.t,
        "clients": len(session.clients),
        "clients_without_examples": len(built.about.idle),
        "attackers": len(built.attackers),
        "parameters": session.parameters,
        "device": device.described(spec.run.device),
        "score_with": spec.run.score_with,
        **figures.final(rows, spec.run.target, metrics.primary, higher=metrics.higher, served=served),
        **({"stopped_early": stopping.stopped} if spec.run.patience else {}),
        "drift": None if drifting is None else figures.drift_of(rows, drifting),
        "privacy": privacy.summary_entry(session.averaging),
        "traffic": figures.traffic_of(session.traffic),
        **({} if built.network is None else {"network": dict(built.network())}),
        "rejected_replies": dict(session.rejected),
        "lost_replies": session.lost,
        "seconds": {key: round(value, 4) for key, value in seconds.items()},
        "peak_rss_bytes": figures.peak_rss_bytes(),
        "versions": figures.versions(),
    }


def served_models(built: Built, scores: Scores) -> dict[str, Any]:
    """The models of an evaluation, which client is served which, and what a prediction needs to know."""
    placement = scores.placement
    return {
        "bank": placement.bank,
        "row": {client: int(row) for client, row in placement.row.items()},
        "fallback": placement.fallback,
        "unassigned": [client for client in scores.requested if client not in placement.row],
        "adapted": placement.adapt is not None,
        "input": described(built.task),
        "recipe": built.task.recipe,
        "spec": built.spec.to_dict(),
        "source": built.about.source,
        "attackers": list(built.attackers),
        **_names(built.about),
    }


def _names(about: DataDescription) -> dict[str, Any]:
    """What the inputs and classes are called and how the inputs were made, for data that say so."""
    found = {
        "class_names": None if about.class_names is None else list(about.class_names),
        "features": None if about.features is None else list(about.features),
        "preprocessing": None if about.preprocessing is None else about.preprocessing.to_dict(),
    }
    return {key: value for key, value in found.items() if value is not None}
