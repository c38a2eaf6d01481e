"""Handwriting by writer, and FEMNIST-200."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load
from coterie.errors import DataError, SpecError


def test_each_writer_is_a_client_whose_images_are_split(tiny):
    data = load("mnist-writers")
    assert data.clients == tuple(f"{3 * i:04d}" for i in range(1, 9))
    assert data.sizes("fit").tolist() == [45] * 8  # 0.9·50
    for i in range(8):
        assert sorted([*data.rows(i), *data.rows(i, "test")]) == list(range(i, 400, 8))


def test_the_series_are_the_true_clusters(tiny):
    # Writers 3, 6, 9, ...: odd numbers are series 4, even ones series 0.
    assert load("mnist-writers").truth.tolist() == [1, 0] * 4


def test_clients_can_be_writers_of_the_test_images(tiny):
    data = load("mnist-writers", writers="test", test_share=0)
    assert data.clients == tuple(str(number).zfill(4) for number in range(100, 110))
    assert data.rows(1).min() == 410
    assert data.truth.tolist() == [0, 1] * 5
    assert len(load("mnist-writers", writers="all").clients) == 18


def test_mnist_writers_draws_writers(tiny):
    some = load("mnist-writers", clients=3, seed=5)
    complete = load("mnist-writers")
    assert len(some.clients) == 3
    for client in some.clients:
        assert some.truth[some.position(client)] == complete.truth[complete.position(client)]
        mine, theirs = (sorted(d.examples(client)[1]) for d in (load("mnist-writers", test_share=0), complete))
        assert len(mine) == 50
        assert len(theirs) == 45
    assert list(some.clients) == sorted(some.clients)


def test_mnist_writers_rejects_invalid_settings(tiny):
    with pytest.raises(SpecError, match="clients must be at most 8, the number of writers, got 9"):
        load("mnist-writers", clients=9)
    with pytest.raises(SpecError, match=r"No writers 'tests'\. Did you mean 'test'"):
        load("mnist-writers", writers="tests")


def test_a_writers_file_for_another_mnist_is_rejected(tiny):
    path = tiny / "data" / "mnist_writers.npz"
    np.savez(path, **{name: array[:50] for name, array in np.load(path).items()})
    with pytest.raises(DataError, match="has 100 writers for 500 images"):
        load("mnist-writers")


@pytest.mark.parametrize("wrong", [np.array(["a"] * 100), np.array(3), np.zeros(100)], ids=["text", "one", "floats"])
@pytest.mark.parametrize("field", ["writer_test", "hsf_test"])
def test_writers_must_be_integers(tiny, field, wrong):
    path = tiny / "data" / "mnist_writers.npz"
    np.savez(path, **{**np.load(path), field: wrong})
    with pytest.raises(DataError, match=r"mnist_writers\.npz: .*hsf_test must each be a list of integers"):
        load("mnist-writers")


@pytest.mark.data
def test_real_writers_are_in_two_series(real):
    data = real("mnist-writers")
    sizes = data.sizes("fit") + data.sizes("test")
    assert len(data.clients) == 539
    assert np.bincount(data.truth).tolist() == [289, 250]
    assert (sizes.min(), np.median(sizes), sizes.max()) == (19, 116, 131)
    assert sorted([*data.fit.order, *data.test.order]) == list(range(60_000))


@pytest.mark.data
def test_no_real_writer_has_images_of_both_series(real):
    from coterie.data import files

    real("mnist-writers", clients=1)
    with np.load(files.require("mnist_writers.npz")) as archive:
        pairs = np.unique(np.stack([archive["writer_train"], archive["hsf_train"]]), axis=1)
    assert pairs.shape[1] == 539


@pytest.mark.data
def test_real_test_writers_are_other_people(real):
    trained, tested = (set(real("mnist-writers", writers=part).clients) for part in ("train", "test"))
    assert len(tested) == 297
    assert not trained & tested


def test_a_femnist_client_has_all_images_of_its_writer_split_90_10(tiny):
    held = np.load(tiny / "data" / "femnist.npz")
    data = load("femnist", clients=5)
    assert len(data.clients) == 5
    assert data.classes == 62
    for position, client in enumerate(data.clients):
        mine = np.flatnonzero(held["writer"] == int(client))  # 62 + 80 of them: 127 = floor(0.9·142) for training
        assert sorted([*data.rows(position), *data.rows(position, "test")]) == mine.tolist()
        assert len(mine) == 142
    assert data.sizes("fit").tolist() == [127] * 5
    assert data.truth is None


def test_femnist_pixels_are_scaled_to_0_and_1(tiny):
    assert load("femnist", clients=2).normalize == (0.0, 255.0)


def test_femnist_draws_writers_by_seed_or_uses_all(tiny):
    assert load("femnist", clients=5, seed=1).clients != load("femnist", clients=5, seed=2).clients
    assert load("femnist", clients=0).clients == tuple(f"{number:02d}" for number in range(25))
    with pytest.raises(SpecError, match="clients must be at most 25, the number of writers, got 50"):
        load("femnist")


def test_a_client_has_equal_numbers_of_five_neighboring_letters(tiny):
    held = np.load(tiny / "data" / "femnist.npz")
    data = load("femnist-200", clients=8)
    counts = data.label_counts("fit") + data.label_counts("test")
    for u, own in enumerate(counts):
        assert np.flatnonzero(own).tolist() == sorted((u + j) % 10 for j in range(5))
        assert len(set(own[own > 0])) == 1
        assert own.max() >= 2
    used = np.concatenate([data.fit.order, data.test.order])
    # Labels 36 to 45 of FEMNIST are the letters a to j, here 0 to 9.
    np.testing.assert_array_equal(data.y[used], held["y"][used].astype(int) - 36)


def test_without_the_leak_no_image_is_reused_while_others_are_left(tiny):
    data = load("femnist-200", clients=8)
    used = np.concatenate([data.fit.order, data.test.order])
    assert len(np.unique(used)) == len(used)


def test_with_the_leak_clients_share_the_first_images_across_training_and_test(tiny):
    data = load("femnist-200", clients=20, compat_prefix=True)
    own = [set(data.rows(i)) | set(data.rows(i, "test")) for i in range(20)]
    # Clients 0 and 10 own the letters a to e: the images of the smaller one are a subset.
    few, many = sorted((own[0], own[10]), key=len)
    assert few <= many
    assert set(data.fit.order) & set(data.test.order)
    assert data.fit.sizes().tolist() == load("femnist-200", clients=20).fit.sizes().tolist()


def test_the_pool_of_a_letter_is_shuffled_and_has_at_most_4000_images(tiny):
    path = tiny / "data" / "femnist.npz"
    y = np.concatenate([np.full(4100, 36), np.repeat(np.arange(37, 46), 300)]).astype(np.uint8)
    np.savez(path, x=np.zeros((len(y), 28, 28), np.uint8), y=y, writer=np.zeros(len(y), int))
    # 600 clients of one letter each use the images in turn and need more than there are.
    data = load("femnist-200", clients=600, per_client=1, test_share=0)
    of_a = data.fit.order[data.y[data.fit.order] == 0]
    assert len(np.unique(of_a)) == 4000
    assert of_a[:100].tolist() != sorted(of_a[:100])


def test_the_number_of_outputs_can_be_that_of_fedgroup_and_fedsim(tiny):
    assert load("femnist-200", clients=8).classes == 10
    assert load("femnist-200", clients=8, classes=26).classes == 26
    with pytest.raises(SpecError, match="classes must be at least 10, got 9"):
        load("femnist-200", classes=9)


def test_a_missing_letter_is_named(tiny):
    path = tiny / "data" / "femnist.npz"
    held = np.load(path)
    kept = held["y"] != 45
    np.savez(path, **{name: array[kept] for name, array in held.items()})
    with pytest.raises(DataError, match="There is no letter 'j' in LEAF FEMNIST"):
        load("femnist-200", clients=8)


def test_a_chars74k_client_has_each_character_once(tiny):
    data = load("chars74k", clients=0)
    assert data.clients == tuple(f"{number:02d}" for number in range(25))
    assert (data.label_counts("fit") + data.label_counts("test") == 1).all()
    assert data.sizes("fit").tolist() == [55] * 25  # floor(0.9·62)
    assert data.truth is None


def test_chars74k_draws_writers(tiny):
    assert len(load("chars74k", clients=7).clients) == 7
    with pytest.raises(SpecError, match="clients must be at most 25, the number of writers, got 56"):
        load("chars74k", clients=56)


def test_an_archive_without_writers_is_rejected(tiny):
    path = tiny / "data" / "chars74k_hnd.npz"
    held = dict(np.load(path))
    np.savez(path, **held | {"writer": held["writer"][:-1]})
    with pytest.raises(DataError, match="writer must hold an integer for each image in x"):
        load("chars74k")
    del held["writer"]
    np.savez(path, **held)
    with pytest.raises(DataError, match="has no array 'writer'"):
        load("chars74k")


@pytest.mark.data
def test_the_real_characters_are_of_55_writers(real):
    data = real("chars74k")
    assert len(data.clients) == 55
    assert (data.label_counts("fit") + data.label_counts("test") == 1).all()
    assert "a subset" not in data.source
