"""What methods share that cluster once: the nearest cluster, and a round in which cold clients join; by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from coterie import tree
from coterie.client_map import ClientMap
from coterie.errors import SpecError, TooFewReplies
from coterie.methods.clusters import nearest_clusters, needs_classes, train_clusters
from coterie.seeds import Seed


@dataclass(frozen=True)
class State:
    """Clusters, and something that a round does not touch."""

    bank: Any
    assignment: ClientMap
    other: str = "kept"


def nobody(now, fed, cold, seed, least):
    """Who is cold is not heard."""
    if least is None:
        raise TooFewReplies("nobody answered")
    return {}, {}


def test_the_nearest_cluster_of_equals_is_the_first():
    row, means = nearest_clusters(np.array([[1.0, 3, 2], [5, 5, 4]]), np.array([0, 0, 1]))
    assert row == [0, 1]
    assert means.tolist() == [[2, 2], [5, 4]]


def test_classes_are_asked_for_by_the_name_of_the_method(quadratic):
    with pytest.raises(SpecError, match=r"^mine compares classes, but model quadratic predicts numbers"):
        needs_classes("mine", quadratic)


def test_cold_clients_join_and_each_cluster_averages(tiny, cohort, bank, step):
    # Half way from 0 to -6 and to 2: -3 and 1, with one example and three: 0, or -1 where each counts 1. From 8, c is
    # slow. d joins the second cluster and goes to 10; the third has no replies, and its number stays to the bit.
    fed = tiny(a=[-6], b=[2, 2, 2], c=[0], d=[12])
    now = State(bank(0, 8, 1 / 3), ClientMap({"a": 0, "b": 0, "c": 1}))
    asked = []

    def join(state, there, cold, seed, least):
        asked.append((state, cold.clients, least))
        return {"d": 1}, {"clients": ["d"]}

    for weights, mean in (("samples", 0), ("uniform", -1)):
        out = train_clusters(now, fed, cohort(fed, efforts={"c": 0.5}), Seed(0), step(0.5), join, weights)
        assert out.state.bank["w"][:2].tolist() == [mean, 10]
        assert out.state.bank["w"][2:].tobytes() == now.bank["w"][2:].tobytes()
        assert out.assignment == {"a": 0, "b": 0, "d": 1}
        assert dict(out.state.assignment) == {"a": 0, "b": 0, "c": 1, "d": 1}
        assert out.distances == {"a": abs(-3 - mean), "b": 1 - mean, "d": 0}
        assert (out.evidence, out.state.other) == ({"clients": ["d"]}, "kept")
    assert asked == [(now, ("d",), 0)] * 2


def test_the_cold_may_all_be_lost_where_others_train_and_do_not_train_themselves(tiny, cohort, bank, step):
    fed, now = tiny(a=[4], d=[12]), State(bank(0), ClientMap({"a": 0}))
    out = train_clusters(now, fed, cohort(fed), Seed(0), step(0.5), nobody)
    assert (out.assignment, out.state.bank["w"].tolist()) == ({"a": 0}, [2])
    with pytest.raises(TooFewReplies):
        train_clusters(now, fed, cohort(fed, clients="d"), Seed(0), step(0.5), nobody)


def test_where_all_are_slow_nothing_moves_and_nobody_is_asked_to_join(tiny, cohort, bank, step):
    fed, now = tiny(a=[4], d=[12]), State(bank(0), ClientMap({"a": 0}))
    out = train_clusters(now, fed, cohort(fed, efforts={"a": 0.5, "d": 0.5}), Seed(0), step(0.5), nobody)
    assert tree.same(out.state.bank, now.bank)
    assert (out.assignment, out.loss, dict(out.state.assignment)) == ({}, None, {"a": 0})
