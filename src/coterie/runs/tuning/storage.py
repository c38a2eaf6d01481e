"""Where a study is stored, and the study that is there."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coterie.errors import RecordError, SpecError
from coterie.runs.record_files import locked
from coterie.runs.spec import Spec
from coterie.runs.tuning.search_space import Dimension

#: Name of all studies: a file has one.
_NAME = "coterie"

#: Key of what is searched, in the attributes of a study.
_WHAT = "coterie"

#: Endings of a SQLite file; other files are journals of JSON lines.
_SQLITE = (".db", ".sqlite", ".sqlite3")


def optuna_package() -> Any:
    """Import Optuna.

    Raises:
        SpecError: If it is not installed.
    """
    try:
        import optuna
    except ImportError as fault:
        raise SpecError("Searching for settings needs an extra: pip install 'coterie[optuna]'") from fault
    return optuna


@contextlib.contextmanager
def opened(
    file: Path | None, spec: Spec, space: Mapping[str, Dimension], direction: str, seed: int, rounds: int
) -> Iterator[Any]:
    """The study in a file, or a new one, for this process alone.

    Trials that a killed process left running are marked as failed.

    Args:
        file: The file; None: the study is not stored.
        spec: What is run, without the searched settings.
        space: The search space.
        direction: `maximize` or `minimize`.
        seed: Seed of the trials and of the sampler.
        rounds: Number of rounds of a trial.

    Raises:
        RecordError: If the file has the study of another search, or is in use.
    """
    if file is None:
        yield _study(None, direction, seed, rounds)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with locked(file.parent):
        study = _study(_storage(file), direction, seed, rounds)
        what = json.loads(json.dumps({"spec": spec.to_dict(), "over": {key: str(dim) for key, dim in space.items()}}))
        known = study.user_attrs.get(_WHAT)
        if known is None:
            study.set_user_attr(_WHAT, what)
        elif known != what:
            raise RecordError(
                f"{file} has the study of another search ({_first_difference(known, what)} differs); repeat its "
                "settings to continue it, or choose another file (--study, --out; study=, out= in Python)"
            )
        optuna = optuna_package()
        for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        yield study


def _study(storage: Any, direction: str, seed: int, rounds: int) -> Any:
    optuna = optuna_package()
    study = optuna.create_study(
        storage=storage,
        study_name=None if storage is None else _NAME,
        direction=direction,
        load_if_exists=True,
        # The first rounds say little about the last ones.
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=rounds // 10),
    )
    # Another seed when a study is continued, so that it does not draw the first trials again.
    study.sampler = optuna.samplers.TPESampler(seed=seed + 1000 * len(study.get_trials(deepcopy=False)))
    return study


def _storage(file: Path) -> Any:
    optuna = optuna_package()
    if file.suffix in _SQLITE:
        return f"sqlite:///{file}"
    from optuna.storages.journal import JournalFileBackend

    return optuna.storages.JournalStorage(JournalFileBackend(str(file)))


def _first_difference(known: Mapping[str, Any], what: Mapping[str, Any]) -> str:
    for section in {**known["spec"], **what["spec"]}:
        if known["spec"].get(section) != what["spec"].get(section):
            return f"[{section}]"
    return "the search space"
