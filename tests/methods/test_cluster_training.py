"""Shared by methods that cluster once: the nearest cluster, a round in which newcomers join, serving; by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from coterie import tree
from coterie.client_map import ClientMap
from coterie.errors import SpecError, TooFewReplies
from coterie.methods.cluster_training import (
    Joined,
    draw_members,
    join_nearest,
    nearest_clusters,
    needs_classes,
    place_in_clusters,
    subset,
    train_clusters,
)
from coterie.seeds import Seed


@dataclass(frozen=True)
class State:
    """Clusters, and a field that a round does not change."""

    bank: Any
    assignment: ClientMap
    other: str = "kept"


def no_replies(now, fed, newcomers, seed, min_replies=None):
    """All replies of newcomers are lost."""
    if min_replies is None:
        raise TooFewReplies("no replies")
    return Joined({}, {})


def test_among_equally_near_clusters_the_first_is_taken():
    row, means = nearest_clusters(np.array([[1.0, 3, 2], [5, 5, 4]]), np.array([0, 0, 1]))
    assert row == [0, 1]
    assert means.tolist() == [[2, 2], [5, 4]]


def test_a_task_without_classes_is_rejected_with_the_method_name(quadratic):
    with pytest.raises(SpecError, match=r"^mine compares classes, but model quadratic predicts numbers"):
        needs_classes("mine", quadratic)


def test_newcomers_join_and_each_cluster_averages(tiny, cohort, bank, step):
    # Half way from 0 to -6 and to 2: -3 and 1, with one example and three: 0, or -1 with uniform weights. c is a
    # straggler. d joins the second cluster and goes to 10; the third has no replies and stays the same to the bit.
    fed = tiny(a=[-6], b=[2, 2, 2], c=[0], d=[12])
    now = State(bank(0, 8, 1 / 3), ClientMap({"a": 0, "b": 0, "c": 1}))
    asked = []

    def join(state, fed, newcomers, seed, min_replies):
        asked.append((state, newcomers.clients, min_replies))
        return Joined({"d": 1}, {"clients": ["d"]})

    for weights, mean in (("samples", 0), ("uniform", -1)):
        out = train_clusters(now, fed, cohort(fed, efforts={"c": 0.5}), Seed(0), step(0.5), join, weights)
        assert out.state.bank["w"][:2].tolist() == [mean, 10]
        assert out.state.bank["w"][2:].tobytes() == now.bank["w"][2:].tobytes()
        assert out.assignment == {"a": 0, "b": 0, "d": 1}
        assert dict(out.state.assignment) == {"a": 0, "b": 0, "c": 1, "d": 1}
        assert out.distances == {"a": abs(-3 - mean), "b": 1 - mean, "d": 0}
        assert (out.evidence, out.state.other) == ({"clients": ["d"]}, "kept")
    assert asked == [(now, ("d",), 0)] * 2


def test_lost_newcomers_do_not_train_and_skip_the_round_only_if_no_other_client_can_train(tiny, cohort, bank, step):
    fed, now = tiny(a=[4], d=[12]), State(bank(0), ClientMap({"a": 0}))
    out = train_clusters(now, fed, cohort(fed), Seed(0), step(0.5), no_replies)
    assert (out.assignment, out.state.bank["w"].tolist()) == ({"a": 0}, [2])
    with pytest.raises(TooFewReplies):
        train_clusters(now, fed, cohort(fed, clients="d"), Seed(0), step(0.5), no_replies)


def test_with_stragglers_only_nothing_moves_and_no_newcomer_is_asked(tiny, cohort, bank, step):
    fed, now = tiny(a=[4], d=[12]), State(bank(0), ClientMap({"a": 0}))
    out = train_clusters(now, fed, cohort(fed, efforts={"a": 0.5, "d": 0.5}), Seed(0), step(0.5), no_replies)
    assert tree.same(out.state.bank, now.bank)
    assert (out.assignment, out.loss, dict(out.state.assignment)) == ({}, None, {"a": 0})


def test_a_newcomer_joins_by_the_mean_distance_to_the_initial_clients():
    # Initial clients 0, 1 and 2 in clusters 0, 0 and 1: means (1 + 3)/2 = 2 and 4; (5 + 9)/2 = 7 and 1.
    joined = join_nearest(["x", "y"], np.array([[1.0, 3, 4], [5, 9, 1]]), np.array([0, 0, 1]), name="mean_angles")
    assert joined.assignment == {"x": 0, "y": 1}
    assert joined.evidence["clients"] == ["x", "y"]
    assert joined.evidence["mean_angles"].tolist() == [[2, 4], [7, 1]]


def test_a_newcomer_is_served_the_cluster_it_joins_and_the_new_state_keeps_it(tiny, bank):
    fed, now, asked = tiny(a=[4], d=[12]), State(bank(0, 8), ClientMap({"a": 0})), []

    def join(state, fed, newcomers, seed, min_replies=None):
        asked.append((list(newcomers), min_replies))
        return Joined({"d": 1}, {})

    after, placement = place_in_clusters(now, fed, "ad", Seed(0), join)
    assert placement.row == {"a": 0, "d": 1}
    assert place_in_clusters(now, fed, "a", Seed(0), join)[1].row == {"a": 0}
    assert place_in_clusters(after, fed, "ad", Seed(0), join)[1].row == {"a": 0, "d": 1}
    assert asked == [(["d"], None)]
    assert dict(now.assignment) == {"a": 0}
    assert dict(after.assignment) == {"a": 0, "d": 1}


def test_a_client_without_a_cluster_is_served_the_uniform_mean_of_the_models_of_clusters_with_members(tiny, bank):
    fed, now = tiny(a=[4], b=[4], d=[12]), State(bank(0, 8, 100), ClientMap({"a": 0, "b": 1}))

    def lost(*_):
        return Joined({}, {})

    _, placement = place_in_clusters(now, fed, "abd", Seed(0), lost)
    assert placement.row == {"a": 0, "b": 1}
    assert tree.same(placement.fallback, tree.row(bank(4), 0))  # (0 + 8)/2; the third cluster has no members


def test_at_most_size_available_members_of_each_cluster_are_drawn(tiny, cohort):
    fed = tiny(a=[0], b=[0], c=[0], d=[0], e=[0], f=[0])
    assignment = {"a": 0, "b": 0, "c": 0, "d": 1, "e": 2}  # f has no cluster, g is not available
    drawn = draw_members(cohort(fed, clients="a"), {**assignment, "g": 1}, 3, 2, name="test")
    assert (len(set(drawn) & set("abc")), set(drawn) & set("def")) == (2, {"d", "e"})
    assert draw_members(cohort(fed), assignment, 3, 0, name="test").clients == tuple("abcde")


def test_a_subset_of_a_cohort_belongs_to_its_round(tiny, cohort):
    all_clients = cohort(tiny(a=[0], b=[0]), 7)
    assert (subset(all_clients, ["b"]).clients, subset(all_clients, ["b"]).t) == (("b",), 7)
    assert subset(["a", "b"], ("b",)) == ["b"]
