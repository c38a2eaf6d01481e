"""Which settings are compiled in, and which are handed over as numbers."""

from __future__ import annotations

import dataclasses

import pytest

from coterie.clients import LocalSGD
from coterie.clients.settings import join, off, split


@dataclasses.dataclass(frozen=True)
class Knobs:
    """Some of each kind; refuses what it can look at."""

    name: str = "a"
    count: int = 0
    rate: float = 0.5
    pull: float = 0.0
    loud: bool = False

    def __post_init__(self):
        if self.rate > 1:
            raise ValueError("rate is too large")


def test_floats_are_handed_over_and_all_else_is_structure():
    structure, numbers = split(Knobs("b", 3, 0.25, 0.75, True))
    assert numbers == [0.25, 0.75]
    assert structure == (Knobs, (("name", "b"), ("count", 3), ("loud", True)), ("rate", "pull"))


def test_a_float_of_zero_is_structure_so_that_its_term_can_be_left_out():
    structure, numbers = split(Knobs(rate=0.25, pull=0.0))
    assert numbers == [0.25]
    assert ("pull", 0.0) in structure[1]
    assert structure != split(Knobs(rate=0.25, pull=0.75))[0]


def test_another_number_is_the_same_structure_and_another_option_is_not():
    assert split(Knobs(rate=0.25))[0] == split(Knobs(rate=0.75))[0]
    assert hash(split(Knobs(rate=0.25))[0]) == hash(split(Knobs(rate=0.75))[0])
    assert split(Knobs(count=1))[0] != split(Knobs(count=2))[0]


@pytest.mark.parametrize("knobs", [Knobs(), Knobs("b", 3, 0.25, 0.75, True), Knobs(rate=0.0)])
def test_joining_gives_back_what_was_split(knobs):
    assert join(*split(knobs)) == knobs


def test_joining_does_not_look_at_the_numbers():
    structure, _ = split(Knobs())
    assert join(structure, [2.0]).rate == 2.0  # past the constructor, whose check cannot look at traced numbers
    assert join(structure, ["traced"]).rate == "traced"


def test_only_a_zero_that_is_known_is_off():
    assert off(0.0)
    assert off(0)
    assert not off(1e-30)
    assert not off("traced")


def test_a_decaying_rate_and_another_budget_of_training_compile_once():
    local = LocalSGD(epochs=5, batch_size=3, learning_rate=0.5, lr_decay=0.5)
    again = dataclasses.replace(local.at(3), epochs=7)
    steps = dataclasses.replace(local, steps=9)
    assert split(local)[0] == split(again)[0] == split(steps)[0]
    assert split(local)[1] == [0.5, 0.5]  # rate and rate_decay
    assert split(again)[1] == [0.0625, 0.5]  # 0.5 · 0.5³


def test_training_without_a_proximal_pull_is_compiled_without_it():
    assert split(LocalSGD(mu=0.0))[0] == split(LocalSGD())[0]
    assert split(LocalSGD(mu=0.5))[0] != split(LocalSGD())[0]
