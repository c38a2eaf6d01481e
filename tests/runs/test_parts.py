"""A method with parts: each line says which it belongs to, and where one ends all clients are scored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import coterie
from coterie import RunRecord, tree
from coterie.codec import state as plain
from coterie.methods.protocol import Placement, Round
from coterie.seeds import Seed
from coterie.testing import tiny_data, tiny_task


@plain
@dataclass(frozen=True)
class Steps:
    seen: tuple = ()


#: stage and label of each step; the last of a label closes it.
PLAN = [("prepare", "first"), ("train", "a"), ("train", "a"), ("prepare", "b"), ("train", "c"), ("prepare", "d")]


@dataclass(frozen=True)
class Parted:
    """Goes through the plan; the state is who was asked in each step. The model that is served gets worse and worse."""

    closing: bool = True

    def start(self, task, seed):
        return Steps()

    def stage(self, now):
        return "done" if len(now.seen) == len(PLAN) else PLAN[len(now.seen)][0]

    def round(self, now, fed, cohort, seed):
        here = len(now.seen)
        label = PLAN[here][1]
        ends = here + 1 == len(PLAN) or PLAN[here + 1][1] != label
        return Round(Steps((*now.seen, tuple(cohort))), label=label, closes=self.closing and ends)

    def place(self, now, fed, clients, seed):
        model = fed.task.init(Seed(0))
        scaled = tree.map(lambda leaf: (leaf * np.float32(len(now.seen))).astype(leaf.dtype), model)
        return Placement(tree.stack([scaled]), dict.fromkeys(clients, 0))


RUN = {"rounds": 10, "clients_per_round": 3, "evaluate_every": 2}


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "here"
    return coterie.run({"run": RUN}, method=Parted(), task=tiny_task(), data=tiny_data(), out=folder)


def test_every_line_has_its_label_and_the_ends_of_parts_are_scored(record):
    assert [(row["stage"], row["label"]) for row in record.rounds] == PLAN
    assert [row["closes"] for row in record.rounds] == [True, False, True, True, True, True]
    assert ["accuracy" in row for row in record.rounds] == [True, False, True, True, True, True]
    assert RunRecord.read(record.path).rounds[3]["label"] == "b"


def test_the_summary_has_what_each_part_ended_with(record):
    parts = record.summary["parts"]
    assert [part["label"] for part in parts] == ["first", "a", "b", "c", "d"]
    scored = {row["label"]: row for row in record.rounds if "accuracy" in row}
    for part in parts:
        row = scored[part["label"]]
        assert part["accuracy"] == row["accuracy"]
        assert (part["t"], part["test_loss"], part["clusters"]) == (row["t"], row["test_loss"], 1)
    assert len({part["test_loss"] for part in parts}) == 5  # the served model was another one each time


def test_the_run_ends_with_what_is_served_after_its_last_step(record):
    assert record.summary["rounds"] == 3
    assert record.summary["test_loss"] == record.rounds[-1]["test_loss"]
    expected = tree.map(lambda leaf: leaf * np.float32(len(PLAN)), tiny_task().init(Seed(0)))
    assert tree.same(tree.row(record.models(), 0), expected)


def test_the_best_round_is_none_before_the_first(record):
    accuracies = [row["accuracy"]["weighted"] for row in record.rounds if "accuracy" in row]
    assert record.summary["accuracy"]["weighted_best"] == max(accuracies[1:])
    assert record.summary["accuracy"]["weighted_last_ten"] == pytest.approx(np.mean(accuracies[1:]))


def test_preparing_within_a_run_asks_those_who_have_joined_by_then():
    run = {**RUN, "newcomers": 0.3, "newcomers_join": (2,)}
    done = coterie.run({"run": run}, method=Parted(), task=tiny_task(), data=tiny_data())
    assert [row["asked"] for row in done.rounds if row["stage"] == "prepare"] == [7, 10, 10]


def test_newcomers_of_rounds_that_do_not_come_are_taken_in_when_the_method_is_done():
    # Of three, two join in round 2; the method is done after it, so that the third, of round 7, joins with the last
    # step. After round 1 those of round 2 are there to be scored.
    run = {**RUN, "newcomers": 0.3, "newcomers_join": (2, 7)}
    done = coterie.run({"run": run}, method=Parted(), task=tiny_task(), data=tiny_data())
    assert [row.get("newcomers", {}).get("clients", 0) for row in done.rounds] == [0, 0, 0, 0, 2, 1]
    assert [sum(row["clusters"]["sizes"]) for row in done.rounds if "clusters" in row] == [7, 9, 9, 9, 10]


def test_methods_without_parts_have_none():
    done = coterie.run({"run": {"rounds": 2, "clients_per_round": 3}}, method=None, task=tiny_task(), data=tiny_data())
    assert done.summary["parts"] == []
    assert not any("label" in row for row in done.rounds)


def test_what_is_scored_in_the_end_is_up_to_date_without_closing_too():
    done = coterie.run({"run": RUN}, method=Parted(closing=False), task=tiny_task(), data=tiny_data())
    expected = tree.map(lambda leaf: leaf * np.float32(len(PLAN)), tiny_task().init(Seed(0)))
    assert tree.same(tree.row(done.models(), 0), expected)
