"""Who moved where."""

from __future__ import annotations

import numpy as np

from coterie.reports.movements import ABSENT, MAX_STEPS, Link, Migration
from coterie.reports.view import RunView
from coterie.runs.client_facts import RecordedFacts


def facts_of(truth):
    names = tuple("abcd"[: len(truth)])
    return RecordedFacts(names, np.full(len(truth), 3), np.array(truth))


def clients(*clusters):
    return {name: (cluster, 5) for name, cluster in zip("abcd", clusters, strict=False) if cluster is not None}


def test_links_count_the_clients_between_two_columns(write):
    # a stays in 0; b goes 0 → 1 after its data changed; c stays in 1; d goes 1 → 0 in the last step, flagged.
    lines = [{}, {"shifted": ["b"]}, {"flagged": ["d"]}]
    moves = RunView.read(write([clients(0, 0, 1, 1), clients(0, 1, 1, 1), clients(0, 1, 1, 0)], lines=lines)).movements
    assert moves.shown == (0, 1, 2)
    assert set(moves.links) == {
        Link(0, 0, 0, 1),
        Link(0, 0, 1, 1, drifted=1),
        Link(0, 1, 1, 2),
        Link(1, 0, 0, 1),
        Link(1, 1, 1, 2),
        Link(1, 1, 0, 1, flagged=1),
    }
    assert moves.changes.tolist() == [0, 1, 1]


def test_a_migration_is_correct_if_most_others_of_its_true_cluster_are_there(write):
    # True clusters: a, b, c: 0; d: 1. b moves to 1, where no other of its true cluster is; then back, where two are.
    answers = [clients(0, 0, 0, 1), clients(0, 1, 0, 1), clients(0, 0, 0, 1)]
    found = RunView.read(write(answers, facts=facts_of([0, 0, 0, 1]))).movements.migrations
    assert found == (Migration(2, "b", 0, 1, False, False, False), Migration(3, "b", 1, 0, False, False, True))


def test_a_client_follows_its_new_true_cluster(write):
    lines = [{}, {"shifted": ["b"], "true_clusters": {"b": 1}}]
    view = RunView.read(write([clients(0, 0, 0, 1), clients(0, 1, 0, 1)], lines=lines, facts=facts_of([0, 0, 0, 1])))
    assert view.movements.migrations == (Migration(2, "b", 0, 1, True, False, True),)
    assert view.true_clusters == {"a": 0, "b": 1, "c": 0, "d": 1}


def test_without_true_clusters_no_migration_is_called_correct(write):
    lines = [{}, {"shifted": ["b"], "true_clusters": {"b": 1}}]
    (found,) = RunView.read(write([clients(0, 0), clients(0, 1)], lines=lines)).movements.migrations
    assert found.correct is None


def test_a_newcomer_is_absent_before_it_joins(write):
    moves = RunView.read(write([clients(0), clients(0, 1)])).movements
    assert moves.cluster.tolist() == [[0, ABSENT], [0, 1]]
    assert set(moves.links) == {Link(0, 0, 0, 1), Link(0, ABSENT, 1, 1)}
    assert moves.changes.tolist() == [0, 0]


def test_of_many_rounds_those_with_most_moves_are_columns(write):
    # b moves before every even round, c only before round 20; 30 rounds have more moves than columns.
    answers = [clients(0, t % 2, int(t >= 19)) for t in range(30)]
    moves = RunView.read(write(answers)).movements
    assert len(moves.shown) == MAX_STEPS
    assert (moves.shown[0], moves.shown[-1]) == (0, 29)
    assert 19 in moves.shown
    assert sum(link.clients for link in moves.links) == 3 * (MAX_STEPS - 1)


def test_a_run_without_moves_has_two_columns(write):
    assert RunView.read(write([clients(0, 1)] * 5)).movements.shown == (0, 4)
