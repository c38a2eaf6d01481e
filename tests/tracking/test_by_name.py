"""Trackers by name, and the error of one that is not installed."""

from __future__ import annotations

import sys

import pytest

from coterie import tracking
from coterie.errors import SpecError


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("tensorbord", "No tracker 'tensorbord'. Did you mean 'tensorboard'? Known: mlflow, tensorboard, wandb"),
        ("wandb, wandb", "Tracker wandb is given twice; give each once"),
        (" , ", "Give the names of trackers separated by commas: tensorboard, mlflow, wandb"),
    ],
)
def test_wrong_names_are_errors(names, message):
    with pytest.raises(SpecError) as caught:
        tracking.named(names)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "module"), [("tensorboard", "tensorboardX"), ("mlflow", "mlflow.tracking"), ("wandb", "wandb")]
)
def test_a_tracker_that_is_not_installed_names_its_extra(name, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)  # an import of it raises ImportError
    with pytest.raises(SpecError, match=rf"needs an extra: pip install 'coterie\[{name}\]'"):
        tracking.named(name)
