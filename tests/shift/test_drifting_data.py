"""Simulated drift: which data change, and that no example is lost."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import codec
from coterie import data as datasets
from coterie.data.federated import FederatedData, Index
from coterie.errors import SpecError
from coterie.seeds import Seed
from coterie.shift import SHIFTS, DriftingData, ShiftSettings


def federation(*labels, test=None, transforms=("identity",), transform=None, truth=None):
    """Clients a, b, c… with these training labels; each of their classes is once in their test examples."""
    tested = [sorted(set(each)) for each in labels] if test is None else test
    flat = [label for part in (*labels, *tested) for label in part]
    index = Index.from_sizes(np.arange(len(flat)), np.array([len(part) for part in (*labels, *tested)]))
    fit = Index.from_lists([index.of(i) for i in range(len(labels))])
    rest = Index.from_lists([index.of(len(labels) + i) for i in range(len(labels))])
    x = np.arange(len(flat) * 4, dtype=np.float32).reshape(-1, 2, 2)
    clients = tuple("abcdefghij"[: len(labels)])
    y = np.array(flat, np.int32)
    return FederatedData("hand", x, y, clients, fit, rest, 4, transforms=transforms, transform=transform, truth=truth)


def labels_of(data, client, part="fit"):
    return sorted(data.y[data.rows(data.position(client), part)].tolist())


def multiset(data):
    return sorted(data.fit.order.tolist()), sorted(data.test.order.tolist())


def test_swap_all_exchanges_all_examples_of_a_pair_with_transform_and_true_cluster():
    data = federation(
        [0, 0, 1], [2], transforms=("identity", "rot90"), transform=np.array([0, 1], np.uint8), truth=np.array([5, 7])
    )
    drifting = DriftingData(data, ShiftSettings("swap_all", probability=1.0), Seed(0))
    assert drifting.step(0, ()) == ("a", "b")
    assert labels_of(drifting.data, "a") == [2]
    assert labels_of(drifting.data, "b") == [0, 0, 1]
    assert labels_of(drifting.data, "b", "test") == [0, 1]
    assert drifting.data.transform.tolist() == [1, 0]
    assert drifting.data.truth.tolist() == [7, 5]


def test_swap_part_exchanges_the_classes_that_the_other_does_not_have():
    # {0, 1} and {1, 2}: 0 and 2 are exchanged, 1 stays with both, in training and in test examples.
    drifting = DriftingData(federation([0, 0, 1], [1, 2]), ShiftSettings("swap_part", probability=1.0), Seed(0))
    assert drifting.step(0, ()) == ("a", "b")
    assert labels_of(drifting.data, "a") == [1, 2]
    assert labels_of(drifting.data, "b") == [0, 0, 1]
    assert labels_of(drifting.data, "a", "test") == [1, 2]


def test_images_of_an_exchanged_class_are_rotated_like_those_of_the_client_that_receives_them():
    # The only image of client b with label 2 goes to a, whose images are not rotated; that of a with label 0 goes to b.
    rotated = {"transforms": ("identity", "rot90"), "transform": np.array([0, 1], np.uint8), "truth": np.array([5, 7])}
    data = federation([0, 1], [1, 2], **rotated)
    drifting = DriftingData(data, ShiftSettings("swap_part", probability=1.0), Seed(0))
    assert drifting.step(0, ()) == ("a", "b")
    assert drifting.data.transform.tolist() == [0, 1]
    assert drifting.data.truth.tolist() == [5, 7]
    stored = {client: data.x[data.fit.of(place)] for place, client in enumerate("ab")}
    (to_a, _), (to_b, _) = (drifting.data.examples(client, "fit") for client in "ab")
    assert np.array_equal(to_a, [stored["a"][1], stored["b"][1]])
    assert np.array_equal(to_b, [np.rot90(stored["b"][0]), np.rot90(stored["a"][0])])


def test_a_pair_with_nothing_to_exchange_is_skipped_and_other_pairs_swap():
    # Four clients form two pairs. The pair of a and b, if it forms, has nothing to exchange; all others swap.
    data = federation([0], [0], [1], [2])
    for seed in range(20):
        drifting = DriftingData(data, ShiftSettings("swap_part", probability=1.0), Seed(seed))
        pairs = drifting._pairs(Seed(seed).fold("shift").fold("round", 0), ())
        can = {i for pair in pairs if {*pair} != {0, 1} for i in pair}
        assert drifting.step(0, ()) == tuple(sorted(data.clients[i] for i in can))


def test_each_pair_swaps_with_the_given_probability():
    data = datasets.load("blobs", clients=200, clusters=2, samples=4, classes=2, seed=0)
    drifting = DriftingData(data, ShiftSettings("swap_all", probability=0.05), Seed(1))
    shifted = [len(drifting.step(t, ())) for t in range(200)]
    # 100 pairs in each of 200 rounds, two clients a pair: 2,000 expected, deviation 2·sqrt(20,000·0.05·0.95) ≈ 62.
    assert abs(sum(shifted) - 2000) < 6 * 62


def test_with_candidates_assigned_only_assigned_clients_shift():
    rule = ShiftSettings("swap_all", probability=1.0, candidates="assigned")
    drifting = DriftingData(federation([0], [1], [2], [3]), rule, Seed(0))
    assert drifting.step(0, ()) == ()
    assert drifting.step(1, ("b", "d")) == ("b", "d")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=2, max_size=7),
    st.sampled_from(["swap_all", "swap_part", "rotate"]),
    st.integers(0, 10),
)
def test_no_example_is_lost_or_duplicated_by_swaps_and_rotations(labels, name, seed):
    data = federation(*labels)
    drifting = DriftingData(data, ShiftSettings(name, probability=0.7), Seed(seed))
    for t in range(4):
        drifting.step(t, ())
    assert multiset(drifting.data) == multiset(data)


def test_examples_are_released_a_quarter_at_a_time_in_a_fixed_order():
    data = federation([0] * 10, [1] * 3)
    drifting = DriftingData(data, ShiftSettings("incremental"), Seed(0))
    seen = []
    for t in (0, 50, 100, 150):
        assert drifting.step(t, ()) != ()
        assert drifting.step(t + 1, ()) == ()
        seen.append(drifting.data.fit.of(0).tolist())
        assert drifting.data.test is data.test
    # ceil(10/4) = 3, ceil(10/2) = 5, ceil(30/4) = 8, all 10; released examples stay.
    assert [len(rows) for rows in seen] == [3, 5, 8, 10]
    assert all(set(a) < set(b) for a, b in pairwise(seen))
    assert multiset(drifting.data) == multiset(data)


def test_the_published_code_releases_a_fraction_of_those_released_before():
    drifting = DriftingData(federation([0] * 100, [1]), ShiftSettings("incremental", form="code"), Seed(0))
    sizes = []
    for t in (0, 50, 100, 150):
        drifting.step(t, ())
        sizes.append(len(drifting.data.fit.of(0)))
    # 25 % of 100 = 25, 50 % of that = ceil(12.5) = 13, 75 % = ceil(9.75) = 10, 100 % of that = 10.
    assert sizes == [25, 13, 10, 10]


def test_a_new_class_is_hidden_until_its_round():
    data = federation([0, 3], [1, 3, 3], [2])
    drifting = DriftingData(data, ShiftSettings("new_class", rounds=(2,)), Seed(0))
    assert labels_of(drifting.data, "b") == [1]
    assert labels_of(drifting.data, "a", "test") == [0]
    assert drifting.step(1, ()) == ()
    assert drifting.step(2, ()) == ("a", "b")  # c has no example of that class
    assert multiset(drifting.data) == multiset(data)


def test_rotated_clients_change_to_the_true_cluster_of_the_new_angle():
    data = datasets.load("blobs", clients=8, clusters=4, samples=10, seed=0)
    drifting = DriftingData(data, ShiftSettings("rotate", probability=1.0), Seed(0))
    assert len(drifting.step(0, ())) == 8
    assert drifting.data.transform.tolist() == [(angle + 1) % 4 for angle in data.transform]
    assert drifting.data.truth.tolist() == [(k + 1) % 4 for k in data.truth]
    for t in (1, 2, 3):
        drifting.step(t, ())
    assert np.array_equal(drifting.data.examples(data.clients[0])[0], data.examples(data.clients[0])[0])


def test_shifts_happen_only_in_the_given_rounds():
    drifting = DriftingData(federation([0], [1]), ShiftSettings("swap_all", probability=1.0, rounds=(1, 3)), Seed(0))
    assert [bool(drifting.step(t, ())) for t in range(5)] == [False, True, False, True, False]


@pytest.mark.parametrize("name", sorted(set(SHIFTS) - {"none"}))
def test_restored_data_shift_like_the_original(name):
    rule = ShiftSettings(name, probability=0.5, rounds=(0, 2) if name in ("incremental", "new_class") else ())
    data = datasets.load("blobs", clients=8, clusters=2, samples=12, classes=3, seed=0)
    whole, first = DriftingData(data, rule, Seed(3)), DriftingData(data, rule, Seed(3))
    shifted = [whole.step(t, ()) for t in range(5)]
    assert [first.step(t, ()) for t in range(2)] == shifted[:2]
    resumed = DriftingData(data, rule, Seed(3))
    resumed.load(codec.decode(codec.encode(first.save())))
    assert [resumed.step(t, ()) for t in range(2, 5)] == shifted[2:]
    assert codec.encode(resumed.save()) == codec.encode(whole.save())


def test_the_same_seed_shifts_the_same_clients():
    data = datasets.load("blobs", clients=30, clusters=2, samples=6, seed=0)
    runs = [[DriftingData(data, ShiftSettings("swap_all", 0.3), Seed(seed)).step(0, ())] for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": "swap_all", "probability": 1.5}, "shift.probability must be between 0 and 1, got 1.5"),
        ({"name": "rotate", "rounds": (3, 1)}, "shift.rounds must be in increasing order"),
        ({"name": "rotate", "rounds": (-1, 1)}, "shift.rounds must be at least 0"),
        ({"name": "swap"}, "shift.name must be one of 'none', 'swap_all', "),
    ],
)
def test_invalid_settings_are_rejected(options, text):
    with pytest.raises(SpecError, match=text):
        ShiftSettings(**options)


def test_swapping_classes_needs_classes():
    data = datasets.load("regression", clients=4, dimension=5, samples=4, test_samples=2)
    with pytest.raises(SpecError, match="Shift swap_part needs classes, but the data have none"):
        DriftingData(data, ShiftSettings("swap_part"), Seed(0))


def test_rotation_needs_square_images():
    data = datasets.load("synthetic", clients=3)
    with pytest.raises(SpecError, match="Shift rotate needs square images"):
        DriftingData(data, ShiftSettings("rotate"), Seed(0))
