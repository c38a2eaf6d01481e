"""`tune`: a search for good settings, chosen on validation examples and tested once on test examples."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from coterie.errors import FederationError, SpecError, shown
from coterie.models import Task
from coterie.runs.build import build
from coterie.runs.jobs import Job, carry_out, recorded
from coterie.runs.metric_plan import MetricLike, MetricPlan
from coterie.runs.objects import Objects
from coterie.runs.record import RunRecord
from coterie.runs.record_files import write_whole
from coterie.runs.resolve import with_absolute_paths
from coterie.runs.spec import Spec, SpecLike
from coterie.runs.spread import JobsOn, checked_jobs_on
from coterie.runs.tuning.search_space import Dimension, check_space, search_space
from coterie.runs.tuning.storage import opened, optuna_package
from coterie.runs.tuning.study import Study
from coterie.runs.tuning.trial_loop import OnTrial, Trials, trial_rows

#: Trials have seeds below this number, tests from it on, as in the figures of the project.
FIRST_TEST_SEED = 100

#: Files in the folder of a search: the study, and the best spec.
STUDY_FILE, BEST_FILE = "study.jsonl", "best.toml"

#: With fewer complete trials, the importance of a setting is not estimated.
_ENOUGH_TRIALS = 10


def tune(
    spec: SpecLike | None,
    over: Mapping[str, object] | Iterable[str],
    *,
    trials: int = 50,
    jobs: int = 1,
    jobs_on: JobsOn = "processes",
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    study: str | os.PathLike[str] | None = None,
    test: bool = True,
    on_trial: OnTrial | None = None,
    data: Any = None,
    task: Task | None = None,
    metrics: Mapping[str, MetricLike] | None = None,
) -> Study:
    """Search for good settings.

    Trials train on the training examples without the validation examples (`held_share` of the data), and are scored on
    these by `run.primary_metric`: accuracy and other metrics as the mean of the last ten rounds, the loss after the
    last round. Trials whose score is worse than the median of the others after the same round are pruned. The best
    settings are then run once on all training examples with another seed, and scored on the test examples, which no
    trial has seen.

    Args:
        spec: What to run; settings that are not searched keep their values.
        over: Setting → values, such as `{"local.learning_rate": "1e-3..1e-1:log", "method.clusters": (2, 8),
            "model.name": ["mclr", "mlp"]}`; see `coterie.runs.tuning.search_space`.
        trials: Number of trials that the study has in the end.
        jobs: Number of trials at a time, each in its own process. With more than one, which settings are tried depends
            on the order in which trials finish.
        jobs_on: Where these processes are: on this machine, or on those of a Ray cluster ([ray] of the spec).
        seed: Seed of all trials, below 100; it replaces run.seed. The test has the seed 100 + seed.
        out: Folder for the study, the best spec (`best.toml`) and the record of the test. If it has a study of the same
            search, that is continued. None: nothing is written. Paths in the best spec are absolute.
        study: File of the study instead of `study.jsonl` in `out`: SQLite for .db and .sqlite, otherwise a journal.
        test: Whether to run the test.
        on_trial: Called when a trial starts, after each of its steps, and at its end.
        data: Data that replace those of the spec, as in `run`. Data, task and metrics need jobs=1, and a search that is
            continued must be given the same again.
        task: A task that replaces the model of the spec.
        metrics: Metrics of your own, as in `run`; one of them may be the primary metric.

    Raises:
        SpecError: If a setting or a value cannot be searched, or Optuna is not installed.
    """
    optuna_package()
    _check_numbers(trials=trials, jobs=jobs)
    objects = Objects.of(data, task, metrics, jobs=jobs)
    base = objects.named(Spec.of(spec))
    if objects.data is None:
        base = with_absolute_paths(base)
    where = checked_jobs_on(jobs_on)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < FIRST_TEST_SEED:
        raise SpecError(f"seed must be at least 0 and below {FIRST_TEST_SEED}, got {shown(seed)}; tests have others")
    space = search_space(over)
    tried = base.with_values({"run.seed": seed})
    check_space(tried, space, objects.sections)
    scored = _check_ends(tried, space, objects)
    direction = "maximize" if scored.higher else "minimize"
    folder = None if out is None else Path(out)
    file = Path(study) if study is not None else None if folder is None else folder / STUDY_FILE
    with opened(file, tried, space, direction, seed, base.run.rounds) as found:
        report = on_trial or (lambda job, what: None)
        Trials(found, tried, space, scored.primary, trials, report, objects).run(jobs, where)
        rows = trial_rows(found, space)
        best = _best(found, rows)
        best_spec = base.with_values(best.params)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / BEST_FILE, best_spec.to_toml().encode())
        importance = _importance(found, space)
        tested = _tested(best_spec, seed, folder, best.number, objects) if test else None
    return Study(
        rows,
        best_spec,
        dict(best.params),
        best.value,
        scored.primary,
        scored.higher,
        importance,
        tested,
        file,
        found,
    )


def _check_numbers(**numbers: int) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SpecError(f"{name} must be a whole number of at least 1, got {shown(value)}")


def _check_ends(spec: Spec, space: Mapping[str, Dimension], objects: Objects) -> MetricPlan:
    """Build the runs with the first and with the last values, so that an error is found before the first trial.

    Returns:
        The metrics of the runs; the primary metric scores them.
    """
    for end in (0, -1):
        values = {name: dimension.ends[end] for name, dimension in space.items()}
        built = build(spec.with_values(values), **objects.arguments())
        if built.data is not None:
            built.data.for_validation()
    return built.metrics


def _best(study: Any, rows: list[dict[str, Any]]) -> Any:
    try:
        return study.best_trial
    except ValueError:
        reasons = [row["reason"] for row in rows if row["reason"]]
        why = f"; the last reason: {reasons[-1]}" if reasons else ""
        raise FederationError(f"None of the {len(rows)} trials was completed{why}") from None


def _importance(study: Any, space: Mapping[str, Dimension]) -> dict[str, float]:
    optuna = optuna_package()
    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    varied = all(len({trial.params[name] for trial in complete}) > 1 for name in space)
    if len(space) < 2 or len(complete) < _ENOUGH_TRIALS or not varied:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(value) for name, value in found.items()}


def _tested(best: Spec, seed: int, folder: Path | None, number: int, objects: Objects) -> RunRecord:
    """One run of the best spec with a new seed, or its record if it was run before."""
    spec = best.with_values({"run.seed": FIRST_TEST_SEED + seed})
    job = Job("test", spec, None if folder is None else folder / f"test-of-trial-{number}", objects=objects)
    return recorded(job) or carry_out(job)
