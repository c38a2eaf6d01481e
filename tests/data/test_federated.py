"""Federated data: the examples of all clients in one array."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data import FederatedData, Index, aligned
from coterie.errors import DataError
from coterie.seeds import Seed


def small(**changes):
    """Clients a, b, c with 4, 1 and 0 training examples and 1, 1 and 0 test examples."""
    fields = {
        "name": "small",
        "x": np.arange(7 * 2 * 2, dtype=np.float32).reshape(7, 2, 2),
        "y": np.array([0, 1, 0, 1, 2, 0, 1]),
        "clients": ("a", "b", "c"),
        "fit": Index.from_lists([np.array([0, 1, 2, 3]), np.array([4]), np.array([], int)]),
        "test": Index.from_lists([np.array([5]), np.array([6]), np.array([], int)]),
        "classes": 3,
    }
    return FederatedData(**(fields | changes))


def of_sizes(*sizes, **changes):
    """Clients with these numbers of training examples and no test examples."""
    total = sum(sizes)
    return FederatedData(
        name="sizes",
        x=np.zeros((total, 1), np.float32),
        y=np.zeros(total, np.int32),
        clients=tuple(str(i) for i in range(len(sizes))),
        fit=Index.from_sizes(np.arange(total), np.array(sizes)),
        test=Index.from_sizes(np.arange(0), np.zeros(len(sizes), int)),
        classes=1,
        **changes,
    )


def test_an_index_returns_each_clients_rows_as_a_view():
    index = Index.from_lists([np.array([3, 1]), np.array([], int), np.array([2])])
    assert [index.of(i).tolist() for i in range(3)] == [[3, 1], [], [2]]
    assert index.sizes().tolist() == [2, 0, 1]
    assert index.owners().tolist() == [0, 0, 2]
    assert np.shares_memory(index.of(0), index.order)


def test_aligned_memory_is_shared_and_other_memory_is_copied_to_a_boundary():
    x = aligned(np.ones((5, 3), np.uint8))
    assert aligned(x) is x
    crooked = np.zeros(65, np.uint8)[1:] if x.ctypes.data % 64 == 0 else x
    for other in (crooked, np.ones((4, 6), np.float32).T, np.ones(3, ">f4")):
        copy = aligned(other)
        assert copy.ctypes.data % 64 == 0
        assert copy.flags.c_contiguous
        assert copy.dtype.isnative
        np.testing.assert_array_equal(copy, other)


def test_aligned_examples_are_not_copied_and_keep_their_type():
    x = aligned(np.zeros((7, 2, 2), np.uint8))
    assert small(x=x).x is x
    assert small(x=x).y.dtype == np.int32


def test_a_client_is_found_by_its_id():
    assert [small().position(client) for client in "abc"] == [0, 1, 2]
    data = of_sizes(1, 1, 1)
    with pytest.raises(DataError, match=r"No client '22'\. Did you mean '2'\? There are 3, from '0' to '2'"):
        data.position("22")


def test_held_and_rest_are_a_split_of_the_training_examples():
    # 4 examples, share 0.1: ceil(0.4) = 1 is held. One example: none is held. No example: none.
    data = small()
    assert data.sizes("held").tolist() == [1, 0, 0]
    assert data.sizes("rest").tolist() == [3, 1, 0]
    first = Seed(0).fold("held", "a").permutation(4)[0]
    assert data.rows(0, "held").tolist() == [first]
    assert data.rows(0, "rest").tolist() == [i for i in range(4) if i != first]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.sampled_from([0.0, 0.07, 0.1, 0.5, 0.99]))
def test_sizes_count_the_rows_of_every_part(sizes, share):
    data = of_sizes(*sizes, held_share=share)
    for part in ("fit", "held", "rest", "test"):
        assert data.sizes(part).tolist() == [len(data.rows(i, part)) for i in range(len(sizes))]
    for i, n in enumerate(sizes):
        together = np.concatenate([data.rows(i, "held"), data.rows(i, "rest")])
        assert sorted(together) == data.rows(i, "fit").tolist()
        assert data.rows(i, "rest").tolist() == sorted(data.rows(i, "rest"))
        if n >= 2:
            assert len(data.rows(i, "rest")) >= 1


def test_an_exact_share_is_not_rounded_up_by_floating_point():
    # 0.07·100 is 7.000000000000001 in floating point, and seven of a hundred are wanted.
    assert math.ceil(0.07 * 100) == 8
    assert of_sizes(100, held_share=0.07).sizes("held").tolist() == [7]


def test_the_validation_split_depends_on_seed_and_name_but_not_on_other_clients():
    alone, among = of_sizes(40), of_sizes(40, 7)
    assert alone.rows(0, "held").tolist() == among.rows(0, "held").tolist()
    other = dataclasses.replace(alone, held_seed=Seed(1))
    assert alone.rows(0, "held").tolist() != other.rows(0, "held").tolist()


def test_examples_are_copies_with_the_clients_transform():
    data = small(transforms=("identity", "rot90"), transform=np.array([0, 1, 0], np.uint8))
    x, y = data.examples("b")
    # Example 4 is [[16, 17], [18, 19]]; rotated by 90° counterclockwise it is [[17, 19], [16, 18]].
    assert x.tolist() == [[[17, 19], [16, 18]]]
    assert y.tolist() == [2]
    x[:] = -1
    assert data.x.min() == 0
    assert data.examples("c", "test")[0].shape == (0, 2, 2)


def test_rearranged_data_share_their_examples():
    data = small()
    rotated = data.rearranged(transforms=("rot180",), fit=data.test, test=data.fit)
    assert rotated.x is data.x
    assert rotated.sizes("test").tolist() == [4, 1, 0]
    assert data.sizes("test").tolist() == [1, 1, 0]
    with pytest.raises(DataError, match="does not exist"):
        data.rearranged(fit=Index.from_lists([np.array([7]), np.array([1]), np.array([2])]))


def test_normalization_is_stored_and_not_applied():
    data = small(normalize=(np.full((2, 2), 3.0), 2.0))
    assert data.examples("a")[0].ravel().tolist() == list(range(16))
    assert data.rearranged(truth=np.zeros(3, int)).normalize is data.normalize


def test_a_summary_counts_clients_examples_classes_and_clusters():
    summary = small(truth=np.array([0, 1, 1])).describe()
    assert summary["clients"] == 3
    assert summary["examples"] == {"fit": 5, "test": 2}
    assert summary["sizes"]["fit"] == {"min": 0, "median": 1.0, "max": 4}
    # a has the classes 0 and 1, b has 2, c has none: the median of 2, 1, 0 is 1.
    assert summary["classes_per_client"] == {"min": 0, "median": 1.0, "max": 2}
    assert summary["clusters"] == {0: 1, 1: 2}


def test_label_counts_count_each_clients_classes():
    assert small().label_counts().tolist() == [[2, 2, 0], [0, 0, 1], [0, 0, 0]]
    assert small().label_counts("test").tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]


def test_targets_are_float32_and_have_no_classes():
    data = small(y=np.linspace(0, 1, 7), classes=None)
    assert data.y.dtype == np.float32
    assert data.describe()["classes_per_client"] is None
    with pytest.raises(DataError, match="is a regression data set"):
        data.label_counts()


def with_value(value, row):
    x = np.zeros((7, 2, 2), np.float32)
    x[row, 0, 1] = value
    return x


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"x": with_value(np.nan, 4)}, "Client 'b', example 4: x is NaN or infinite"),
        ({"x": with_value(np.inf, 5)}, "Client 'a', example 5: x is NaN or infinite"),
        ({"x": np.zeros((7, 2), complex)}, "x must hold real numbers, got complex128"),
        ({"x": np.zeros(7)}, "x must have one row per example"),
        ({"x": np.zeros((6, 2))}, "y must hold one label for each of the 6 examples"),
        ({"y": np.array([0, 1, 0, 1, 3, 0, 1])}, "Client 'b', example 4: the label is 3; labels must be integers"),
        ({"y": np.array([0, 1, 0, 1, -1, 0, 1])}, "Client 'b', example 4: the label is -1"),
        ({"y": np.array([0, 1, 0.5, 1, 1, 0, 1])}, "Client 'a', example 2: the label is 0.5"),
        ({"y": np.full(7, np.nan), "classes": None}, "Client 'a', example 0: the target is NaN"),
        ({"classes": 0}, "classes must be at least 1, got 0"),
        ({"clients": ("a", "b", "a")}, "Client ids must be unique"),
        ({"clients": ("a", "b")}, "The fit index must have 3 offsets, one more than clients, got 4"),
        ({"fit": Index(np.arange(3), np.array([0, 2, 1, 3]))}, "The fit offsets must increase from 0 to 3"),
        ({"test": Index(np.arange(3), np.array([0, 1, 2, 2]))}, "The test offsets must increase from 0 to 3"),
        ({"fit": Index(np.array([0, 9, 1]), np.array([0, 1, 2, 3]))}, "Client 'b': fit example 9 does not exist"),
        ({"fit": Index(np.array([0.0]), np.array([0, 1, 1, 1]))}, "The fit index must be two lists of integers"),
        ({"transforms": ("rot45",)}, "No transform 'rot45'"),
        ({"transforms": ()}, "transforms must name at least one"),
        ({"transform": np.array([0, 1, 0])}, "Client 'b': transform must be at least 0 and less than 1, got 1"),
        ({"transform": np.array([0, 0])}, "transform must be an integer for each of the 3 clients"),
        ({"truth": np.array([0, -1, 0])}, "Client 'b': truth must be at least 0, got -1"),
        ({"transforms": ("rot90",), "x": np.zeros((7, 2, 3))}, "rot90 needs square images"),
        ({"normalize": (np.zeros(3), 1.0)}, "broadcast over one example of shape (2, 2), got shapes (3,) and ()"),
        ({"normalize": (0.0, np.ones((5, 1, 2, 2)))}, "broadcast over one example of shape (2, 2)"),
        ({"normalize": (0.0, np.array([1.0, 0.0]))}, "normalize must be finite, with a deviation above 0"),
        ({"normalize": (np.nan, 1.0)}, "normalize must be finite"),
        ({"held_share": 1.0}, "held_share must be at least 0 and less than 1"),
    ],
)
def test_wrong_data_are_rejected_with_the_reason(changes, text):
    with pytest.raises(DataError) as caught:
        small(**changes)
    assert text in str(caught.value)


def test_a_bad_value_that_no_client_has_is_named_by_its_example():
    fit = Index.from_lists([np.array([0]), np.array([1]), np.array([2])])
    with pytest.raises(DataError, match="Example 3, which belongs to no client"):
        small(x=with_value(np.nan, 3), fit=fit)


def test_an_unknown_part_is_rejected():
    with pytest.raises(DataError, match="No part 'train'"):
        small().sizes("train")
    with pytest.raises(DataError, match="No part 'train'"):
        small().rows(0, "train")


def test_sizes_of_100000_clients_are_computed_without_a_loop():
    data = of_sizes(*[20] * 100_000)
    with pytest.MonkeyPatch.context() as patch:
        for asked in ("rows", "position"):
            patch.setattr(FederatedData, asked, lambda *_: pytest.fail("looked at a single client"))
        patch.setattr(Index, "of", lambda *_: pytest.fail("looked at a single client"))
        patch.setattr(Seed, "permutation", lambda *_: pytest.fail("drew for a single client"))
        # ceil(0.1·20) = 2 of 20 are held, 18 are left.
        assert [int(data.sizes(part).sum()) for part in ("fit", "held", "rest", "test")] == [
            2000000,
            200000,
            1800000,
            0,
        ]
        assert data.describe()["clients"] == 100_000
    assert data.position("99999") == 99_999


def tokens_data(**more):
    """Two clients with two rows of three ids each."""
    fields = {"x": np.array([[0, 1, 2], [2, 2, 0], [1, 0, 1], [0, 0, 0]], np.uint8), "y": np.array([0, 1, 1, 0])}
    index = Index.from_lists([np.array([0, 1]), np.array([2, 3])])
    fields |= {"name": "tokens_data", "clients": ("a", "b"), "fit": index, "test": index, "classes": 2, "tokens": 3}
    return FederatedData(**{**fields, **more})


TABLE = np.array([[0, 0], [1, -1], [2, 5]], np.float32)


def test_token_ids_are_not_changed():
    data = tokens_data()
    assert (data.shape, data.tokens, data.ids) == ((3,), 3, 3)
    assert data.examples("a")[0].tolist() == [[0, 1, 2], [2, 2, 0]]
    assert data.examples("a")[0].dtype == np.uint8


def test_examples_are_the_vectors_of_a_table():
    data = tokens_data(table=TABLE)
    assert (data.shape, data.tokens, data.ids) == ((3, 2), 3, None)
    assert data.x.shape == (4, 3)
    x, _ = data.examples("b")
    assert x.tolist() == [[[1, -1], [0, 0], [1, -1]], [[0, 0]] * 3]
    assert data.describe()["shape"] == [3, 2]
    moved = data.rearranged(fit=Index.from_lists([np.array([3]), np.array([0])]))
    assert moved.examples("b")[0].tolist() == [[[0, 0], [1, -1], [2, 5]]]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"tokens": 2}, "x must hold token ids, integers 0..1, got uint8 from 0 to 2"),
        (
            {"x": np.zeros((4, 3), np.float32)},
            "x must hold token ids, integers 0..2, got float32 from 0.0 to 0.0",
        ),
        ({"normalize": (0.0, 1.0)}, "Token ids cannot be normalized: leave normalize out"),
        ({"transforms": ("invert",)}, "Transforms cannot be applied to token ids: leave transforms out, got invert"),
        ({"table": TABLE, "tokens": None}, "A table of vectors needs tokens"),
        ({"table": TABLE[:2]}, "table must hold a vector of floats for each of the 3 tokens, got float32 of shape"),
        ({"table": TABLE.astype(int)}, "table must hold a vector of floats for each of the 3 tokens, got int64"),
        ({"table": np.array([[0.0], [np.nan], [0.0]])}, "table is NaN or infinite in row 1"),
    ],
)
def test_invalid_tokens_are_rejected(fields, text):
    with pytest.raises(DataError) as caught:
        tokens_data(**fields)
    assert str(caught.value).startswith(text)


def test_more_classes_than_32_bit_labels_are_rejected():
    with pytest.raises(DataError, match=r"classes must be at most 2147483647, got 4294967296\. Number the classes"):
        small(y=np.array([0, 1, 0, 1, 2**32 - 1, 0, 1]), classes=2**32)


def test_token_ids_beyond_32_bits_are_rejected():
    x = np.zeros((7, 2), np.int64)
    assert small(x=x, tokens=2**40).x.dtype == np.int32
    x[3, 1] = 2**31
    with pytest.raises(DataError, match=r"token ids, integers 0\.\.2147483647, got int64 from 0 to 2147483648"):
        small(x=x, tokens=2**40)


def test_for_validation_trains_on_the_rest_and_tests_on_the_validation_examples():
    data = small()
    changed = data.for_validation()
    # Of the four training examples of a, one is held out; b has one example, which stays; c has none.
    assert changed.sizes("fit").tolist() == [3, 1, 0]
    assert changed.sizes("test").tolist() == [1, 0, 0]
    for place in range(3):
        assert changed.rows(place, "fit").tolist() == data.rows(place, "rest").tolist()
        assert changed.rows(place, "test").tolist() == data.rows(place, "held").tolist()
    assert not {5, 6} & {*changed.fit.order, *changed.test.order}, "the test examples are not used"


def test_data_without_validation_examples_cannot_be_validated():
    with pytest.raises(DataError, match=r"small has no validation examples: held_share is 0\.0"):
        small(held_share=0.0).for_validation()


def test_another_validation_split_has_another_share_and_draw():
    data = of_sizes(10, 10)
    found = data.with_validation_split(0.3, Seed(1))
    assert found.sizes("held").tolist() == [3, 3]
    assert found.rows(0, "held").tolist() != data.with_validation_split(0.3, Seed(2)).rows(0, "held").tolist()
    assert found.rows(0, "held").tolist() == data.with_validation_split(0.3, Seed(1)).rows(0, "held").tolist()
    assert data.sizes("held").tolist() == [1, 1], "the data are unchanged"
    with pytest.raises(DataError, match="must be above 0 and less than 1, got 1"):
        data.with_validation_split(1, Seed(0))


def test_a_subset_has_the_same_examples_of_its_clients():
    data = small(transforms=("identity", "rot90"), transform=np.array([0, 1, 1], np.uint8), truth=np.array([0, 1, 2]))
    found = data.subset(["b", "a"])
    assert found.clients == ("b", "a")
    assert found.truth.tolist() == [1, 0]
    for client in found.clients:
        for part in ("fit", "held", "rest", "test"):
            for one, other in zip(found.examples(client, part), data.examples(client, part), strict=True):
                assert np.array_equal(one, other)
    with pytest.raises(DataError, match="No client 'z'"):
        data.subset(["z"])


def named(**changes):
    fields = {
        "x": np.arange(14, dtype=np.float32).reshape(7, 2),
        "weights": np.array([1, 0, 2, 0.5, 1, 3, 4]),
        "class_names": ("no", "yes", "?"),
        "features": ("f", "g"),
    }
    return small(**{**fields, **changes})


def test_names_and_weights_are_kept_by_every_copy():
    data = named()
    assert data.weights.dtype == np.float32
    one = data.only(data.clients[0])
    assert one.weights.tolist() == [1, 0, 2, 0.5, 3]  # of the training examples 0 to 3 and the test example 5
    for copy in (one, dataclasses.replace(data, name="x"), data.rearranged(fit=data.fit)):
        assert (copy.class_names, copy.features) == (("no", "yes", "?"), ("f", "g"))
    summary = data.describe()
    assert (summary["class_names"], summary["features"], summary["weighted"]) == (["no", "yes", "?"], ["f", "g"], True)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"weights": np.ones(2)}, "weights must be a number for each of the"),
        ({"weights": np.array([1, 1, -1, 1, 1, 1, 1])}, "the weight must be finite and at least 0, got -1"),
        ({"weights": np.array([1, 1, np.nan, 1, 1, 1, 1])}, "the weight must be finite and at least 0, got nan"),
        ({"class_names": ("a",)}, "class_names must have one name for each class; there are 3, got 1"),
        ({"class_names": ("a", "a", "b")}, "class_names must be different from each other"),
        ({"features": ("f",)}, "features must have one name for each column of x; there are 2, got 1"),
    ],
)
def test_wrong_names_and_weights_are_rejected(changes, text):
    with pytest.raises(DataError, match=text):
        named(**changes)
