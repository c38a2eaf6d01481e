"""A method that does not follow the protocol is refused at once, with one sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import coterie
from coterie import methods, tree
from coterie.cli.app import app
from coterie.errors import MethodError
from coterie.methods.checks import check_method, checked_placement, checked_round
from coterie.methods.protocol import Placement, Round
from coterie.testing import tiny_data, tiny_task

CLIENTS = tuple("abcde")


@dataclass(frozen=True)
class Serves:
    """Serves one initial model, and never trains."""

    local: Any = None

    def start(self, task, seed):
        return task.init(seed)

    def stage(self, w):
        return "train"

    def round(self, w, fed, cohort, seed):
        return Round(w, dict.fromkeys(cohort, 0))

    def place(self, w, fed, clients, seed):
        return w, Placement(tree.stack([w]), dict.fromkeys(clients, 0), fallback=w)


def without(name):
    """The class without one of its functions."""
    return type("Without", (), {key: value for key, value in vars(Serves).items() if key in FUNCTIONS and key != name})


FUNCTIONS = ("start", "stage", "round", "place")


def with_function(name, function):
    """A method with one function replaced."""
    return type("Mine", (Serves,), {name: function})()


def run(method):
    return coterie.run(
        {"run": {"rounds": 2, "clients_per_round": 2}}, method=method, task=tiny_task(), data=tiny_data()
    )


def test_a_method_that_follows_the_protocol_is_accepted():
    check_method(Serves())
    assert run(Serves()).summary["status"] == "done"


def test_a_class_instead_of_an_object_is_refused():
    text = "The method must be an object, got the class Serves; create one: Serves(...)"
    with pytest.raises(MethodError, match=re.escape(text)):
        run(Serves)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("start", "start(task, seed)"),
        ("stage", "stage(state)"),
        ("round", "round(state, fed, cohort, seed)"),
        ("place", "place(state, fed, clients, seed)"),
    ],
)
def test_a_missing_function_is_named_before_the_run_begins(name, call):
    text = f"Method Without has no function {call}; a method has start, stage, round, place"
    with pytest.raises(MethodError, match=re.escape(text)):
        run(without(name)())


def test_a_function_with_other_arguments_is_named_before_the_run_begins():
    method = with_function("round", lambda self, state, fed: None)
    text = "Method Mine must take the arguments round(state, fed, cohort, seed): too many positional arguments"
    with pytest.raises(MethodError, match=re.escape(text)):
        run(method)


@pytest.mark.parametrize(("word", "hint"), [("training", " Did you mean 'train'?"), (None, ""), (3, "")])
def test_an_unknown_stage_is_refused(word, hint):
    text = f"`stage` of method Mine must return one of 'prepare', 'train', 'done', got {word!r}.{hint}"
    with pytest.raises(MethodError, match=f"^{re.escape(text)}$"):
        run(with_function("stage", lambda self, w: word))


@pytest.mark.parametrize(("result", "shown"), [((1, {}), "(1, {})"), (None, "None"), (["x" * 99], "a list")])
def test_a_round_that_returns_something_else_is_refused(result, shown):
    text = f"`round` of method Mine must return a Round, such as Round(state), got {shown}"
    with pytest.raises(MethodError, match=f"^{re.escape(text)}$"):
        run(with_function("round", lambda self, w, fed, cohort, seed: result))


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (Round(0, {"a": 0, "z": 0, "y": 1}), "Round.assignment of method Serves has clients that do not exist: y, z"),
        (Round(0, {"ab": 0}), "Round.assignment of method Serves has clients that do not exist: ab"),
        (Round(0, {0: 0}), "Round.assignment of method Serves has clients that do not exist: 0"),
        (
            Round(0, {"a": 0.0}),
            "Round.assignment of method Serves must have whole numbers from 0, client → cluster, got 0.0 for 'a'",
        ),
        (Round(0, {"a": -1}), "whole numbers from 0, client → cluster, got -1 for 'a'"),
        (Round(0, {"a": 0, "b": 0.0}), "whole numbers from 0, client → cluster, got 0.0 for 'b'"),
        (Round(0, {"a": [0]}), "whole numbers from 0, client → cluster, got [0] for 'a'"),
        (Round(0, {"a": True}), "whole numbers from 0, client → cluster, got True for 'a'"),
        (Round(0, [0, 1]), "Round.assignment of method Serves must be a dict, client → cluster, got [0, 1]"),
        (Round(0, distances={"z": 1.0}), "Round.distances of method Serves has clients that do not exist: z"),
        (Round(0, flagged=("z",)), "Round.flagged of method Serves has clients that do not exist: z"),
    ],
)
def test_an_invalid_report_of_a_round_is_refused(result, text):
    with pytest.raises(MethodError, match=re.escape(text)):
        checked_round(Serves(), result, CLIENTS)


def test_unknown_clients_are_found_among_many():
    clients = [f"{number:05d}" for number in range(3000)]
    with pytest.raises(MethodError, match=r"has clients that do not exist: x$"):
        checked_round(Serves(), Round(0, dict.fromkeys([*clients, "x"], 0)), clients)
    assert len(checked_round(Serves(), Round(0, dict.fromkeys(clients, 0)), clients).assignment) == 3000


def test_clusters_may_be_numpy_integers():
    assert checked_round(Serves(), Round(0, {"a": np.int64(3)}), CLIENTS).assignment == {"a": 3}


BANK = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(2, np.float32)}
MODEL = tree.row(BANK, 0)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (
            Placement(BANK, {}, fallback=MODEL),
            "`place` of method Serves must return the pair (state, Placement(bank, row)), got a Placement",
        ),
        (None, "must return the pair (state, Placement(bank, row)), got None"),
        ((Placement(BANK, {}, fallback=MODEL), 0), "must return the pair (state, Placement(bank, row)), got a tuple"),
        (
            (0, Placement(BANK, {"a": 2}, fallback=MODEL)),
            "serves client 'a' row 2; the bank has rows 0 to 1",
        ),
        ((0, Placement(BANK, {"a": -1}, fallback=MODEL)), "whole numbers from 0, client → row, got -1 for 'a'"),
        (
            (0, Placement(BANK, {"z": 0}, fallback=MODEL)),
            "Placement.row of method Serves has clients that do not exist: z",
        ),
        (
            (0, Placement({**BANK, "b": np.zeros(3)}, {}, fallback=MODEL)),
            "must be models stacked along a leading axis (tree.stack); its arrays have 2, 3 rows",
        ),
        ((0, Placement({}, {}, fallback=MODEL)), "its arrays have no rows"),
        (
            (0, Placement(BANK, {}, fallback=None)),
            "Placement.fallback of method Serves must be one model, of the same shape as a row of the bank, got none",
        ),
        ((0, Placement(BANK, {}, fallback=BANK)), "as a row of the bank, got arrays of shapes (2, 3), (2,)"),
    ],
)
def test_an_invalid_placement_is_refused(result, text):
    with pytest.raises(MethodError, match=re.escape(text)):
        checked_placement(Serves(), result, CLIENTS)


def test_a_place_that_returns_a_bare_placement_is_refused_in_a_run():
    def place(self, w, fed, clients, seed):
        return Placement(tree.stack([w]), dict.fromkeys(clients, 0), fallback=w)

    with pytest.raises(MethodError, match=r"`place` of method Mine must return the pair \(state, Placement"):
        run(with_function("place", place))


def test_a_state_that_cannot_be_saved_is_refused_at_the_start_and_after_the_first_round():
    text = "`start` of method Mine must return a state of plain data (coterie.codec): value.next is a generator, which"
    with pytest.raises(MethodError, match=re.escape(text)):
        run(with_function("start", lambda self, task, seed: {"next": (i for i in range(3))}))
    with pytest.raises(MethodError, match=r"`round` of method Mine must return a state of plain data .* is a set"):
        run(with_function("round", lambda self, w, fed, cohort, seed: Round({"seen": set()})))


class Unfinished(Serves):
    """A registered method with an error."""

    def round(self, w, fed, cohort, seed):
        return w, {}


def test_the_command_line_shows_one_sentence_for_a_method_of_another_package(monkeypatch):
    monkeypatch.setitem(methods.METHODS, "unfinished", f"{__name__}:Unfinished")
    found = CliRunner().invoke(app, ["run", "--method", "unfinished", "--data", "digits", "--rounds", "1", "--quiet"])
    assert found.exit_code == 2
    assert "`round` of method Unfinished must return a Round, such as Round(state), got a tuple" in found.output
    assert "Traceback" not in found.output
    assert "bug in Coterie" not in found.output


class NotADataclass:
    """A registered class without fields."""


def test_a_registered_class_must_be_a_dataclass_with_the_field_local(monkeypatch):
    monkeypatch.setitem(methods.METHODS, "unfinished", f"{__name__}:NotADataclass")
    text = "Class NotADataclass must be a dataclass with a field `local`; its fields are the settings of the method"
    with pytest.raises(MethodError, match=f"^{re.escape(text)}$"):
        coterie.run({"method": "unfinished", "data": "digits"})
