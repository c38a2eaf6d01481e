"""`recommend`: run several methods on validation examples, and say which one to use."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.federated import FederatedData
from coterie.errors import RecordError
from coterie.models import Task
from coterie.runs.build import build
from coterie.runs.conclusion import structure
from coterie.runs.metric_plan import MetricLike
from coterie.runs.objects import Objects
from coterie.runs.recommending import sentences
from coterie.runs.recommending.data_checks import check_clients, check_labels
from coterie.runs.recommending.observations import cluster_facts, data_facts, number_of_clusters
from coterie.runs.recommending.panel import REFERENCE, budget_of, panel
from coterie.runs.recommending.recommendation import MethodResult, Recommendation
from coterie.runs.recommending.requirements import needs, reveals, sees_individuals
from coterie.runs.recommending.rule import Answer, Candidate, ClientScores, Decision, decide, difference, margin_of
from coterie.runs.recommending.validation_runs import OnJob, OnStep, ValidationRun, ValidationRuns, scores_of
from coterie.runs.record import JsonObject, finite
from coterie.runs.record_files import write_whole
from coterie.runs.resolve import fill_defaults, with_absolute_paths
from coterie.runs.spec import Spec, SpecLike
from coterie.seeds import Seed

#: Files in the folder of a recommendation: the result, and the spec to run next.
RESULT_FILE, NEXT_FILE = "recommendation.json", "next.toml"


def recommend(
    spec: SpecLike | None = None,
    *,
    budget: str | float = "small",
    methods: Iterable[str] | Mapping[str, Mapping[str, object]] | None = None,
    out: str | os.PathLike[str] | None = None,
    on_step: OnStep | None = None,
    on_job: OnJob | None = None,
    data: Any = None,
    task: Task | None = None,
    metrics: Mapping[str, MetricLike] | None = None,
) -> Recommendation:
    """Say which method to use for some data.

    Several methods are trained on part of the training examples and scored on the others, by `run.primary_metric`.
    Every seed has other validation examples. Test examples are not used. A method is recommended instead of one model
    for all clients only if it is better by a margin, and by more than the spread over clients and seeds explains.

    Args:
        spec: Data, model, local training and rounds; its method is ignored. `run.seed` is the first seed.
        budget: `small`: six methods, three seeds, at most 100 clients. `medium`: 13 methods, five seeds, at most 200
            clients. A number of seconds: as medium, until the time is over; the result then depends on the machine.
        methods: Names of the methods to compare with one model for all clients, or name → settings; None: those of the
            budget.
        out: Folder for `recommendation.json` and `next.toml`, the spec to run next. None: nothing is written.
        on_step: Called after each step of each run with the run and its line of the record.
        on_job: Called when a run starts and when it has finished.
        data: Data that replace those of the spec, as in `run`.
        task: A task that replaces the model of the spec.
        metrics: Metrics of your own, as in `run`; one of them may be the primary metric.

    Raises:
        SpecError: If a setting is wrong, or the budget is too small to compare two methods.
        DataError: If fewer than two clients have validation examples, or all training examples have the same label.
    """
    base, limits = Spec.of(spec), budget_of(budget)
    objects = Objects.of(data, task, metrics, jobs=1)
    specs = {name: _scored_once(each) for name, each in panel(base, limits, methods).items()}
    for each in specs.values():
        fill_defaults(objects.named(each), given=objects.sections)  # a wrong setting is an error before the first run
    folder = None if out is None else _checked(Path(out))
    built = build(specs[REFERENCE], **objects.arguments())
    assert built.data is not None
    whole = built.data
    check_clients(whole)
    if task is None:  # a task of the user may ignore the labels
        check_labels(whole)
    used = _drawn(whole, limits.clients, Seed(base.run.seed))
    compared = ValidationRuns(
        {name: _with_cohort_of(each, len(used.clients)) for name, each in specs.items()},
        used,
        built.metrics.primary,
        limits,
        objects,
        on_step or (lambda job, row: None),
        on_job or (lambda job, what: None),
    )
    compared.run()
    found = _recommendation(base, compared, len(whole.clients), higher=built.metrics.higher, own_data=data is not None)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / RESULT_FILE, (json.dumps(finite(found.to_dict()), indent=2) + "\n").encode())
        write_whole(folder / NEXT_FILE, found.spec.to_toml().encode())
    return found


def _scored_once(spec: Spec) -> Spec:
    """The spec, evaluated after the last round only; early stopping needs more evaluations."""
    return spec if spec.run.patience else spec.with_values({"run.evaluate_every": spec.run.rounds})


def _with_cohort_of(spec: Spec, clients: int) -> Spec:
    """The spec with at most so many clients per round, if only some of the clients run."""
    return spec.with_values({"run.clients_per_round": min(spec.run.clients_per_round, clients)})


def _checked(folder: Path) -> Path:
    if (folder / RESULT_FILE).exists():
        raise RecordError(f"{folder} has a recommendation already; choose another folder, or remove it")
    if folder.exists() and not folder.is_dir():
        raise RecordError(f"{folder} is a file; out must be a folder")
    return folder


def _drawn(data: FederatedData, clients: int, seed: Seed) -> FederatedData:
    """The data, or those of some clients drawn at random; clients without training examples are left out."""
    trainable = [client for client, size in zip(data.clients, data.sizes("fit"), strict=True) if size]
    if len(trainable) > clients:
        places = seed.fold("recommend").sample(len(trainable), clients)
        return data.subset([trainable[place] for place in sorted(places)])
    return data


def _recommendation(
    base: Spec, compared: ValidationRuns, clients: int, *, higher: bool, own_data: bool
) -> Recommendation:
    scores = {name: scores_of(runs) for name, runs in compared.found.items()}
    margin = margin_of(compared.metric, scores[REFERENCE].mean)
    candidates = {
        name: _candidate(name, compared.found[name], each, scores[REFERENCE], higher=higher)
        for name, each in scores.items()
    }
    decision = decide(candidates, REFERENCE, compared.metric, higher_is_better=higher)
    results = {name: _result(name, compared, scores[name], each, decision) for name, each in candidates.items()}
    seeds = len(compared.found[REFERENCE])
    clustered = {name: runs for name, runs in compared.found.items() if candidates[name].answer == "clusters"}
    chosen = base.with_values(_method(compared.specs[decision.method]))
    return Recommendation(
        method=decision.method,
        answer=decision.answer,
        spec=chosen if own_data else with_absolute_paths(chosen),
        reasons=tuple(sentences.reasons(decision, results, compared.metric, margin, seeds)),
        ranking=tuple(sorted(results.values(), key=lambda each: -each.score if higher else each.score)),
        left_out=dict(compared.left_out),
        metric=compared.metric,
        higher_is_better=higher,
        margin=margin,
        seeds=tuple(base.run.seed + number for number in range(seeds)),
        rounds=base.run.rounds,
        data=data_facts(compared.data, clients),
        clusters=cluster_facts(clustered),
    )


def _candidate(
    name: str, runs: list[ValidationRun], scores: ClientScores, reference: ClientScores, *, higher: bool
) -> Candidate:
    answer = _answer(name, runs[0].summary)
    sent = [each.summary["traffic"]["down_bytes"] + each.summary["traffic"]["up_bytes"] for each in runs]
    several = [number_of_clusters(each) > 1 for each in runs]
    return Candidate(
        answer,
        scores.mean,
        None if name == REFERENCE else difference(scores, reference, higher_is_better=higher),
        statistics.fmean(sent),
        one_cluster=answer == "clusters" and 2 * sum(several) <= len(several),
    )


def _answer(name: str, summary: JsonObject) -> Answer:
    """What a method stands for."""
    if name == "local":
        return "local"
    answers: dict[str, Answer] = {"one": "one model", "own": "adapted"}
    return answers.get(structure(summary), "clusters")


def _method(spec: Spec) -> dict[str, object]:
    """The method of a spec and its settings, as `Spec.with_values` takes them."""
    return {"method.name": spec.method.name, **{f"method.{key}": value for key, value in spec.method.options.items()}}


def _result(
    name: str, compared: ValidationRuns, scores: ClientScores, seen: Candidate, decision: Decision
) -> MethodResult:
    runs, options = compared.found[name], dict(compared.specs[name].method.options)
    by_client = scores.by_client[np.isfinite(scores.by_client)]
    return MethodResult(
        method=name,
        answer=seen.answer,
        score=seen.score,
        seed_deviation=statistics.stdev(scores.by_seed) if len(runs) > 1 else None,
        client_deviation=float(np.std(by_client, ddof=1)) if len(by_client) > 1 else None,
        difference=None if seen.difference is None else finite(seen.difference.mean),
        error=None if seen.difference is None else finite(seen.difference.error),
        better=name in decision.better,
        clusters=tuple(number_of_clusters(each) for each in runs) if seen.answer == "clusters" else None,
        sent_bytes=seen.sent_bytes,
        seconds=statistics.fmean(each.summary["seconds"]["total"] for each in runs),
        settings=options,
        needs=tuple(needs(name, options)),
        reveals=tuple(reveals(name)),
        sees_individuals=sees_individuals(name),
    )
