"""Every example runs, and shows what it says."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_bare_loop_learns_something_and_is_held_back_by_the_kinds():
    # Better than guessing one of ten, and far from what a model for each kind reaches.
    assert 0.3 < example("01_fedavg_as_a_bare_loop").main() < 0.85


def test_a_model_for_each_kind_is_better_than_one_for_all():
    found = example("02_the_same_through_coterie").main(rounds=20)
    assert found["oracle"] > found["fedavg"] + 0.1


def test_a_method_in_one_file_keeps_the_contract_and_runs():
    assert example("03_a_method_in_one_file").main(rounds=3)["status"] == "done"


def test_a_model_from_pytorch_is_better_for_each_kind_and_comes_back():
    pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'coterie[torch]'")
    found, net = example("04_a_model_from_pytorch").main(rounds=10)
    assert found["ifca"] > found["fedavg"] + 0.05
    assert net[4].weight.shape == (10, 256)


def test_no_example_is_left_out():
    named = set(re.findall(r'example\("(\w+)"\)', Path(__file__).read_text()))
    assert {file.stem for file in FOLDER.glob("*.py")} == named
