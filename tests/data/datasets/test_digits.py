"""The embedded handwritten digits."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load
from coterie.data.digits import digits
from coterie.errors import SpecError

PARTITIONS = [
    {"partition": "rotated"},
    {"partition": "inverted", "clusters": 2},
    {"partition": "iid"},
    {"partition": "classes"},
    {"partition": "dirichlet"},
    {"partition": "groups"},
]


def names(options):
    return options["partition"]


@pytest.mark.parametrize("options", PARTITIONS, ids=names)
def test_no_image_is_used_twice_and_a_seed_fixes_everything(options):
    one, same, other = digits(seed=1, **options), digits(seed=1, **options), digits(seed=2, **options)
    used = np.concatenate([one.fit.order, one.test.order])
    assert len(np.unique(used)) == len(used)
    if options["partition"] != "classes":  # whose power law leaves some over
        assert len(used) == 1797
    assert one.fit.order.tolist() == same.fit.order.tolist()
    assert one.fit.order.tolist() != other.fit.order.tolist()


def test_images_are_bytes_of_seventeen_grey_levels():
    data = digits()
    assert (data.x.dtype, data.shape, data.classes) == (np.uint8, (8, 8), 10)
    assert (data.x.min(), data.x.max()) == (0, 16)
    assert "scikit-learn" in data.source


def test_client_i_is_turned_by_ninety_degrees_times_i_mod_four():
    data = digits()
    assert data.truth.tolist() == [i % 4 for i in range(40)]
    assert np.bincount(data.truth).tolist() == [10] * 4
    for position, client in enumerate(data.clients[:5]):
        raw = data.x[data.rows(position, "fit")]
        np.testing.assert_array_equal(data.examples(client)[0], np.rot90(raw, position % 4, axes=(1, 2)))


def test_every_other_client_is_inverted_within_the_seventeen_levels():
    data = digits(partition="inverted", clusters=2)
    np.testing.assert_array_equal(data.examples("01")[0], 16 - data.x[data.rows(1, "fit")])
    np.testing.assert_array_equal(data.examples("00")[0], data.x[data.rows(0, "fit")])


def test_clients_by_classes_have_as_many_as_asked_for():
    data = digits(partition="classes", per_client=3, test_share=0)
    assert set((data.label_counts() > 0).sum(axis=1)) == {3}


def test_groups_are_the_true_clusters():
    data = digits(partition="groups")
    together = [data.label_counts()[data.truth == g].any(axis=0).sum() for g in range(5)]
    assert together == [2] * 5  # a fifth of ten labels for each group


def test_a_test_share_of_a_fifth_is_set_aside():
    # 1797 in 40 pieces of 44 or 45: floor(0.8·44) = 35, floor(0.8·45) = 36, and 9 for testing either way.
    data = load("digits")
    assert set(data.sizes("fit")) == {35, 36}
    assert set(data.sizes("test")) == {9}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"partition": "rotatd"}, "No partition 'rotatd'. Did you mean 'rotated'?"),
        ({"partition": "inverted"}, "Inverted images make 2 clusters, got clusters=4"),
        ({"clusters": 5}, "clusters must be at most 4"),
        ({"clients": 0}, "clients must be at least 4, the number of clusters, got 0"),
        ({"test_share": 1}, "test_share must be at least 0 and less than 1, got 1"),
    ],
)
def test_impossible_settings_are_refused(options, text):
    with pytest.raises(SpecError) as caught:
        digits(**options)
    assert text in str(caught.value)
