"""Methods with phases: each line of the record names its phase, and all clients are evaluated at the end of one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import coterie
from coterie import RunRecord, tree
from coterie.codec import state as plain
from coterie.methods.fedavg import one_model
from coterie.methods.protocol import Round
from coterie.seeds import Seed
from coterie.testing import tiny_data, tiny_task


@plain
@dataclass(frozen=True)
class Steps:
    seen: tuple = ()


#: Stage and phase of each step.
PLAN = [("prepare", "first"), ("train", "a"), ("train", "a"), ("prepare", "b"), ("train", "c"), ("prepare", "d")]


@dataclass(frozen=True)
class Phased:
    """Follows the plan; its state holds the cohort of each step, and its model changes with each step."""

    ends_phases: bool = True

    def start(self, task, seed):
        return Steps()

    def stage(self, now):
        return "done" if len(now.seen) == len(PLAN) else PLAN[len(now.seen)][0]

    def round(self, now, fed, cohort, seed):
        number = len(now.seen)
        label = PLAN[number][1]
        ends = number + 1 == len(PLAN) or PLAN[number + 1][1] != label
        return Round(Steps((*now.seen, tuple(cohort))), label=label, closes=self.ends_phases and ends)

    def place(self, now, fed, clients, seed):
        model = fed.task.init(Seed(0))
        scaled = tree.map(lambda leaf: (leaf * np.float32(len(now.seen))).astype(leaf.dtype), model)
        return now, one_model(scaled, clients)


RUN = {"rounds": 10, "clients_per_round": 3, "evaluate_every": 2}


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "here"
    return coterie.run({"run": RUN}, method=Phased(), task=tiny_task(), data=tiny_data(), out=folder)


def test_every_line_has_its_phase_and_the_end_of_a_phase_is_evaluated(record):
    assert [(row["stage"], row["phase"]) for row in record.rounds] == PLAN
    assert [row["phase_end"] for row in record.rounds] == [True, False, True, True, True, True]
    assert ["accuracy" in row for row in record.rounds] == [True, False, True, True, True, True]
    assert RunRecord.read(record.path).rounds[3]["phase"] == "b"


def test_the_summary_has_the_results_at_the_end_of_each_phase(record):
    phases = record.summary["phases"]
    assert [phase["phase"] for phase in phases] == ["first", "a", "b", "c", "d"]
    evaluated = {row["phase"]: row for row in record.rounds if "accuracy" in row}
    for phase in phases:
        row = evaluated[phase["phase"]]
        assert phase["accuracy"] == row["accuracy"]
        assert (phase["t"], phase["test_loss"], phase["clusters"]) == (row["t"], row["test_loss"], 1)
    assert len({phase["test_loss"] for phase in phases}) == 5  # the model is a different one in each phase


def test_the_summary_is_about_the_models_after_the_last_step(record):
    assert record.summary["rounds"] == 3
    assert record.summary["test_loss"] == record.rounds[-1]["test_loss"]
    expected = tree.map(lambda leaf: leaf * np.float32(len(PLAN)), tiny_task().init(Seed(0)))
    assert tree.same(tree.row(record.models(), 0), expected)


def test_preparation_before_the_first_round_does_not_count_for_the_best_round(record):
    accuracies = [row["accuracy"]["weighted"] for row in record.rounds if "accuracy" in row]
    assert record.summary["accuracy"]["weighted_best"] == max(accuracies[1:])
    assert record.summary["accuracy"]["weighted_last_ten"] == pytest.approx(np.mean(accuracies[1:]))


def test_later_preparation_includes_newcomers_that_have_joined():
    run = {**RUN, "newcomers": 0.3, "newcomers_join": (2,)}
    done = coterie.run({"run": run}, method=Phased(), task=tiny_task(), data=tiny_data())
    # The second preparation step is before round 2, in which the three newcomers join.
    assert [row["cohort_size"] for row in done.rounds if row["stage"] == "prepare"] == [7, 7, 10]


def test_newcomers_of_rounds_that_are_never_run_join_when_the_method_is_done():
    # Of three newcomers, two join in round 2. The method is done after it, so the third, of round 7, joins in the last
    # step. The evaluation after round 1 does not include those of round 2.
    run = {**RUN, "newcomers": 0.3, "newcomers_join": (2, 7)}
    done = coterie.run({"run": run}, method=Phased(), task=tiny_task(), data=tiny_data())
    assert [row.get("newcomers", {}).get("clients", 0) for row in done.rounds] == [0, 0, 0, 0, 2, 0]
    assert done.rounds[-1]["last_newcomers"]["clients"] == 1
    assert [each["clients"] for each in done.summary["newcomers"]] == [2, 1]
    assert [sum(row["clusters"]["sizes"]) for row in done.rounds if "clusters" in row] == [7, 7, 7, 9, 10]


def test_methods_without_phases_have_none():
    done = coterie.run({"run": {"rounds": 2, "clients_per_round": 3}}, method=None, task=tiny_task(), data=tiny_data())
    assert done.summary["phases"] == []
    assert not any("phase" in row for row in done.rounds)


def test_the_last_step_is_evaluated_even_if_no_phase_ends():
    done = coterie.run({"run": RUN}, method=Phased(ends_phases=False), task=tiny_task(), data=tiny_data())
    expected = tree.map(lambda leaf: leaf * np.float32(len(PLAN)), tiny_task().init(Seed(0)))
    assert tree.same(tree.row(done.models(), 0), expected)
