"""Rough durations of runs, for lists and for the remaining time. Nothing is run and no data are loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from coterie.data.files import folders
from coterie.data.loading import summaries
from coterie.reproduce.planning import PlannedRun
from coterie.runs.resolve import fill_defaults
from coterie.runs.spec import Spec

#: Model → seconds per SGD step on ten examples, on one core. Perceptrons and convolutional networks for 28×28 images
#: were measured; the others are guesses by their number of operations.
_STEP = {
    "mclr": 20e-6,
    "mlp": 250e-6,
    "lenet5": 3e-3,
    "rnn": 1e-3,
    "cnn-mnist": 5e-3,
    "bigru": 10e-3,
    "bilstm": 10e-3,
    "lstm": 10e-3,
    "cnn-fmnist": 40e-3,
    "cnn-femnist": 45e-3,
    "cnn-fedsim": 60e-3,
    "char-lstm": 60e-3,
    "resnet9": 0.3,
    "resnet9-gn": 0.4,
}
#: The same for logistic regression with the 60 features of Synthetic(α, β).
_STEP_SYNTHETIC = 6e-6
#: Of a model that is not listed.
_OTHER = 5e-3
#: Seconds before the first round: loading data, compilation, writing the record; and of each evaluation.
_SET_UP, _EVALUATION = 4.0, 0.05
#: Method → how much longer a run takes than its training in rounds: the method asks all clients, or trains them before
#: the first round or in trial runs. Rough numbers from the runs of tables.
_FACTOR = {
    "cfl": 8.0,
    "fesem-mig": 2.0,
    "flag": 1.5,
    "flexcfl": 1.5,
    "ifca-mig": 2.0,
    "oneshotifca": 3.0,
    "srfca": 3.0,
}
#: Methods that ask all clients for the losses of all models in an evaluation, and how much faster an example is than in
#: training.
_SCORES_ALL, _FORWARD = ("ifca", "oneshotifca"), 6.0
#: Seconds of a probe.
_PROBE = 1.0
#: Settings of methods that are numbers of steps or epochs of every client before the first round.
_STEPS_BEFORE, _EPOCHS_BEFORE = ("init_steps",), ("update_epochs",)


def seconds(runs: Iterable[PlannedRun]) -> float:
    """Rough number of seconds of runs, one after another on one core."""
    return sum(_PROBE if run.probe is not None else _seconds(run.spec) for run in runs)


def milliseconds_per_round(spec: Spec) -> int:
    """Rough number of milliseconds of a run, spread over its rounds; at least 1."""
    return max(1, round(1000 * _seconds(spec) / spec.run.rounds))


def _seconds(spec: Spec) -> float:
    filled = fill_defaults(spec)
    run, local = spec.run, spec.local
    assert local is not None
    clients, examples = _sizes(filled.data.name, filled.data.options)
    batch = local.batch_size or examples
    per_epoch = max(1.0, examples / batch)
    steps = local.steps or local.epochs * per_epoch
    few_inputs = spec.model.name == "mclr" and filled.data.name.startswith("synthetic")
    per_step = (_STEP_SYNTHETIC if few_inputs else _STEP.get(spec.model.name, _OTHER)) * max(1.0, batch / 10)
    options = filled.method.options
    before = sum(float(options.get(key) or 0) for key in _STEPS_BEFORE)
    before += per_epoch * sum(float(options.get(key) or 0) for key in _EPOCHS_BEFORE)
    training = (run.rounds * min(run.clients_per_round, clients) * steps + clients * before) * per_step
    evaluation = _EVALUATION
    current = run.score_with == "current" or (run.score_with == "auto" and spec.shift.name == "none")
    if spec.method.name in _SCORES_ALL and current:
        models = options.get("clusters")
        evaluation += (models if isinstance(models, int) else 1) * clients * per_epoch * per_step / _FORWARD
    rounds = training + run.rounds / run.evaluate_every * evaluation
    return _SET_UP + _FACTOR.get(spec.method.name, 1.0) * rounds


def _sizes(name: str, options: Mapping[str, Any]) -> tuple[int, float]:
    """Number of clients, and mean number of training examples of each."""
    row = _described(tuple(folders()))[name]
    clients = int(options.get("clients") or row["clients"])
    return clients, 0.9 * row["samples"] / row["clients"]


@cache
def _described(searched: tuple[Path, ...]) -> dict[str, dict[str, Any]]:
    """Data set → its numbers of clients and samples; fewer samples if the files in these folders are a subset."""
    return {row["name"]: row for row in summaries()}
