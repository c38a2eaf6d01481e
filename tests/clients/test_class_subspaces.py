"""Class subspaces: singular vectors by hand and by NumPy, their number, their inputs, and what is sent."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from coterie.clients.class_subspaces import Subspaces, allocate, basis, class_subspaces, counted_subspaces
from coterie.data import from_arrays
from coterie.errors import SpecError
from coterie.federation import sequential, vectorized
from coterie.models import Normalize, linear_regression, mclr
from coterie.seeds import Seed

BOTH = pytest.mark.parametrize("make", [sequential, vectorized])
# Class 0 lies on the line through (3, 4), class 2 on the first axis; no client has class 1, and b has only class 0.
CLIENTS = {
    "a": (np.array([[3, 4], [6, 8], [5, 0], [7, 0]], np.float32), np.array([0, 0, 2, 2])),
    "b": (np.array([[-3, -4]], np.float32), np.array([0])),
}


def federation(make=sequential, clients=CLIENTS, normalize=None, classes=3):
    data = from_arrays(clients, test={}, classes=classes)
    return make(data, mclr(data.shape, classes, normalize=normalize))


def asked(fed, work=class_subspaces, **how):
    return fed.ask(fed.clients, work, Seed(0), how=Subspaces(**how))


# Singular vectors of a matrix ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 30, 31, 80])
def test_directions_are_left_singular_vectors_of_the_transpose(n):
    rows = np.random.default_rng(n).normal(size=(n, 30)) + 1
    found = basis(rows, 4)
    assert found.dtype == np.float32
    expected = np.linalg.svd(rows.T, full_matrices=False)[0][:, :4].T
    signs = np.sign((found * expected).sum(axis=1))
    np.testing.assert_allclose(found, signs[:, None] * expected, atol=1e-6)
    np.testing.assert_allclose(found @ found.T, np.eye(4), atol=1e-6)
    assert (np.abs(found).max(axis=1) == found.max(axis=1)).all()


def test_directions_are_not_those_of_centered_data():
    # Around (10, 0), spread along the second axis: uncentered, the first direction is the first axis.
    found = basis(np.array([[10.0, 1], [10, -1], [10, 0.5], [10, -0.5]]), 1)
    np.testing.assert_allclose(found, [[1, 0]], atol=1e-6)


def test_the_number_of_directions_is_at_most_the_rank():
    assert basis(np.outer([1.0, 2, 3], [3, 4, 0, 0, 0]), 3).tolist() == [pytest.approx([0.6, 0.8, 0, 0, 0])]
    assert basis(np.outer(np.ones(9), [0.0, 2]), 2).tolist() == [[0, 1]]
    assert basis(np.zeros((3, 4)), 2).shape == (0, 4)
    assert basis(np.zeros((0, 4)), 2).shape == (0, 4)
    assert basis(np.eye(4), 0).shape == (0, 4)


def test_small_directions_beside_large_ones_stay_orthonormal():
    rows = np.diag([1.0, 1e-2, 1e-4]) @ np.linalg.qr(np.random.default_rng(0).normal(size=(20, 3)))[0].T
    found = basis(rows, 3)
    assert len(found) == 3
    np.testing.assert_allclose(found @ found.T, np.eye(3), atol=1e-6)


@pytest.mark.parametrize(("n", "p"), [(1, 1), (49, 1), (149, 1), (151, 2), (600, 6)])
def test_a_share_gives_at_least_one_direction_per_class(n, p):
    assert Subspaces().max_vectors(n) == p


def test_vectors_or_budget_override_the_share():
    assert Subspaces(vectors=3).max_vectors(600) == 3
    assert Subspaces(budget=20).max_vectors(600) == 20


@pytest.mark.parametrize(
    ("budget", "sizes", "ranks", "expected"),
    [
        # 12 for 600, 7.8 and 0.2 for the others: 12 + 7, and the remaining one goes to the larger remainder.
        (20, [600, 390, 10], [64, 64, 10], [12, 8, 0]),
        # 0.4 each, which rounds to 0; ties go to the first four classes.
        (4, [7] * 10, [7] * 10, [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]),
        (20, [7] * 10, [7] * 10, [2] * 10),
        # 6, 2 and 2; the first has only 3 directions, and the others share the rest: two more, and one.
        (10, [30, 10, 10], [3, 9, 9], [3, 4, 3]),
        # Fewer directions than the budget: all are used.
        (20, [3, 0, 5], [2, 0, 5], [2, 0, 5]),
        (20, [0, 0], [0, 0], [0, 0]),
        (1, [2, 3, 3], [2, 2, 2], [0, 1, 0]),
    ],
)
def test_a_budget_is_used_completely(budget, sizes, ranks, expected):
    assert allocate(budget, sizes, ranks) == expected
    assert sum(expected) == min(budget, sum(ranks))


@BOTH
def test_with_many_equal_classes_a_budget_below_the_number_of_classes_is_used(make):
    # Ten classes of seven examples: 4·7/70 = 0.4 of a direction each. Class 0 consists of seven copies of one example.
    x, y = np.random.default_rng(0).normal(size=(70, 12)).astype(np.float32), np.repeat(np.arange(10), 7)
    x[:7] = x[0]
    got = asked(federation(make, {"a": (x, y)}, classes=10), budget=4).by_client("bases")
    assert [len(rows) for rows in got["a"]] == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    # 30 are three each; class 0 has one direction, and its two unused ones go to classes 1 and 2.
    got = asked(federation(make, {"a": (x, y)}, classes=10), budget=30).by_client("bases")
    assert [len(rows) for rows in got["a"]] == [1, 4, 4, 3, 3, 3, 3, 3, 3, 3]
    np.testing.assert_allclose(got["a"][1] @ got["a"][1].T, np.eye(4), atol=1e-6)


# Replies of clients ---------------------------------------------------------------------------------------------------


@BOTH
def test_there_is_one_array_per_class_and_absent_classes_have_no_rows(make):
    got = asked(federation(make)).by_client("bases")
    assert [rows.shape for rows in got["a"]] == [(1, 2), (0, 2), (1, 2)]
    np.testing.assert_allclose(got["a"][0], [[0.6, 0.8]], atol=1e-6)
    np.testing.assert_allclose(got["a"][2], [[1, 0]], atol=1e-6)
    assert [len(rows) for rows in got["b"]] == [1, 0, 0]
    np.testing.assert_allclose(got["b"][0], [[0.6, 0.8]], atol=1e-6)  # the sign is fixed


@BOTH
def test_inputs_are_normalized_or_raw(make):
    # (x - 1)/2 of (3, 4) and (6, 8) is (1, 1.5) and (2.5, 3.5), no longer on one line; of (5, 0) and (7, 0) it is
    # (2, -½) and (3, -½). b has (-2, -2.5).
    fed = federation(make, normalize=Normalize(1.0, 2.0))
    normal = asked(fed, vectors=2).by_client("bases")
    assert [len(rows) for rows in normal["a"]] == [2, 0, 2]
    np.testing.assert_allclose(normal["b"][0], [np.array([2, 2.5]) / np.hypot(2, 2.5)], atol=1e-6)
    raw = asked(fed, vectors=2, inputs="raw").by_client("bases")
    assert [len(rows) for rows in raw["a"]] == [1, 0, 1]
    np.testing.assert_allclose(raw["b"][0], [[0.6, 0.8]], atol=1e-6)


@BOTH
def test_class_sizes_are_sent_only_by_counted_subspaces(make):
    fed = federation(make)
    assert asked(fed, counted_subspaces)["counts"].tolist() == [[2, 0, 2], [1, 0, 0]]
    assert fed.traffic.by_purpose()["labels"]["up"] == 2 * 3 * 4
    fed = federation(make)
    assert set(asked(fed).answers) == {"bases"}
    assert "labels" not in fed.traffic.by_purpose()
    # Three directions of two float32 each.
    assert fed.traffic.by_purpose()["subspaces"] == {"down": 0, "up": 3 * 2 * 4}


def test_images_are_flattened():
    images = np.zeros((2, 2, 2), np.uint8)
    images[:, 1, 0] = [100, 200]
    fed = federation(clients={"a": (images, np.array([0, 0]))}, classes=1)
    assert asked(fed).by_client("bases")["a"][0].tolist() == [[0, 0, 1, 0]]


def test_a_regression_task_is_rejected():
    data = from_arrays({"a": (np.ones((2, 1), np.float32), np.ones(2, np.float32))}, test={}, classes=None)
    fed = sequential(data, linear_regression((1,), bias=False))
    with pytest.raises(SpecError, match="is a regression: class subspaces need classes"):
        asked(fed)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"share": 0.0}, "subspaces.share must be above 0 and at most 1, got 0.0"),
        ({"vectors": -1}, "subspaces.vectors must be at least 0, got -1"),
        ({"budget": 2.5}, "subspaces.budget must be a whole number of at least 0, got 2.5"),
        ({"vectors": 3, "budget": 20}, "not both: 3, 20"),
        ({"inputs": "pixels"}, "subspaces.inputs must be one of 'model', 'raw', got 'pixels'"),
    ],
)
def test_invalid_settings_are_rejected(settings, text):
    with pytest.raises(SpecError, match=text):
        Subspaces(**settings)


ON_SOME_CORES = """
    import os, sys
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])  # before BLAS counts the cores
    import hashlib
    import numpy as np
    from coterie import codec, data, models
    from coterie.clients.class_subspaces import Subspaces, class_subspaces
    from coterie.federation import sequential, vectorized
    from coterie.seeds import Seed

    draw = np.random.default_rng(0)
    labels = [np.zeros(500, int), np.ones(900, int)]  # fewer than inputs, and more
    clients = {f"c{i}": (draw.normal(size=(len(y), 28, 28)).astype(np.float32), y) for i, y in enumerate(labels)}
    several = data.from_arrays(clients, test={}, classes=2)
    for make in (sequential, vectorized):
        fed = make(several, models.build("mclr", several.shape, 2))
        got = fed.ask(fed.clients, class_subspaces, Seed(0), how=Subspaces(vectors=200))
        print(hashlib.sha256(codec.encode(dict(got.answers))).hexdigest())
"""


@pytest.mark.exhaustive
def test_bytes_do_not_depend_on_the_number_of_cores(tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one core: nothing to compare with")
    script = tmp_path / "some_cores.py"
    script.write_text(textwrap.dedent(ON_SOME_CORES))
    running = [
        subprocess.Popen([sys.executable, str(script), str(cores)], stdout=subprocess.PIPE, text=True)
        for cores in (1, 2)
    ]
    found = [process.communicate(timeout=300)[0].splitlines() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert len(found[0]) == 2
    assert found[0][0] == found[0][1]
    assert found[0] == found[1]
