"""Which settings are compiled in, and which are traced."""

from __future__ import annotations

import dataclasses

import pytest

from coterie.clients import LocalSGD
from coterie.clients.traced_settings import join, off, split


@dataclasses.dataclass(frozen=True)
class Example:
    """Settings of every type, with a validated field."""

    name: str = "a"
    count: int = 0
    rate: float = 0.5
    pull: float = 0.0
    loud: bool = False

    def __post_init__(self):
        if self.rate > 1:
            raise ValueError("rate is too large")


def test_floats_are_traced_and_everything_else_is_structure():
    structure, numbers = split(Example("b", 3, 0.25, 0.75, True))
    assert numbers == [0.25, 0.75]
    assert structure == (Example, (("name", "b"), ("count", 3), ("loud", True)), ("rate", "pull"))


def test_a_zero_float_is_structure_so_that_its_term_can_be_omitted():
    structure, numbers = split(Example(rate=0.25, pull=0.0))
    assert numbers == [0.25]
    assert ("pull", 0.0) in structure[1]
    assert structure != split(Example(rate=0.25, pull=0.75))[0]


def test_another_number_has_the_same_structure_and_another_option_does_not():
    assert split(Example(rate=0.25))[0] == split(Example(rate=0.75))[0]
    assert hash(split(Example(rate=0.25))[0]) == hash(split(Example(rate=0.75))[0])
    assert split(Example(count=1))[0] != split(Example(count=2))[0]


@pytest.mark.parametrize("settings", [Example(), Example("b", 3, 0.25, 0.75, True), Example(rate=0.0)])
def test_join_restores_what_split_separated(settings):
    assert join(*split(settings)) == settings


def test_join_does_not_validate_the_numbers():
    structure, _ = split(Example())
    assert join(structure, [2.0]).rate == 2.0  # bypasses the constructor, which cannot validate traced numbers
    assert join(structure, ["traced"]).rate == "traced"


def test_only_an_untraced_zero_is_off():
    assert off(0.0)
    assert off(0)
    assert not off(1e-30)
    assert not off("traced")


def test_a_decaying_learning_rate_and_other_epochs_have_the_same_structure():
    local = LocalSGD(epochs=5, batch_size=3, learning_rate=0.5, lr_decay=0.5)
    again = dataclasses.replace(local.at(3), epochs=7)
    steps = dataclasses.replace(local, steps=9)
    assert split(local)[0] == split(again)[0] == split(steps)[0]
    assert split(local)[1] == [0.5, 0.5]  # learning_rate and lr_decay
    assert split(again)[1] == [0.0625, 0.5]  # 0.5 · 0.5³


def test_training_without_a_proximal_term_is_compiled_without_it():
    assert split(LocalSGD(mu=0.0))[0] == split(LocalSGD())[0]
    assert split(LocalSGD(mu=0.5))[0] != split(LocalSGD())[0]
