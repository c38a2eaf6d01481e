"""MNIST by writer."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import load
from coterie.errors import DataError, SpecError


def test_each_writer_is_a_client_with_its_images_split(tiny):
    data = load("mnist-writers")
    assert data.clients == tuple(f"{3 * i:04d}" for i in range(1, 9))
    assert data.sizes("fit").tolist() == [45] * 8  # 0.9·50
    for i in range(8):
        assert sorted([*data.rows(i), *data.rows(i, "test")]) == list(range(i, 400, 8))


def test_the_series_are_the_true_clusters(tiny):
    # Writers 3, 6, 9, ... in turn odd, series 4, and even, series 0.
    assert load("mnist-writers").truth.tolist() == [1, 0] * 4


def test_writers_of_the_test_images_can_be_clients(tiny):
    data = load("mnist-writers", writers="test", test_share=0)
    assert data.clients == tuple(str(number).zfill(4) for number in range(100, 110))
    assert data.rows(1).min() == 410
    assert data.truth.tolist() == [0, 1] * 5
    assert len(load("mnist-writers", writers="all").clients) == 18


def test_some_writers_can_be_drawn(tiny):
    some = load("mnist-writers", clients=3, seed=5)
    everyone = load("mnist-writers")
    assert len(some.clients) == 3
    for client in some.clients:
        assert some.truth[some.position(client)] == everyone.truth[everyone.position(client)]
        mine, theirs = (sorted(d.examples(client)[1]) for d in (load("mnist-writers", test_share=0), everyone))
        assert len(mine) == 50
        assert len(theirs) == 45
    assert list(some.clients) == sorted(some.clients)


def test_impossible_settings_are_refused(tiny):
    with pytest.raises(SpecError, match="clients must be at most 8, the number of writers, got 9"):
        load("mnist-writers", clients=9)
    with pytest.raises(SpecError, match=r"No writers 'tests'\. Did you mean 'test'"):
        load("mnist-writers", writers="tests")


def test_a_file_for_another_mnist_is_refused(tiny):
    path = tiny / "data" / "mnist_writers.npz"
    np.savez(path, **{name: array[:50] for name, array in np.load(path).items()})
    with pytest.raises(DataError, match="has 100 writers for 500 images"):
        load("mnist-writers")


@pytest.mark.parametrize("wrong", [np.array(["a"] * 100), np.array(3), np.zeros(100)], ids=["text", "one", "floats"])
@pytest.mark.parametrize("field", ["writer_test", "hsf_test"])
def test_writers_that_are_no_list_of_whole_numbers_are_refused(tiny, field, wrong):
    path = tiny / "data" / "mnist_writers.npz"
    np.savez(path, **{**np.load(path), field: wrong})
    with pytest.raises(DataError, match=r"mnist_writers\.npz: .*hsf_test must each be a list of whole numbers"):
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
    with np.load(files.find("mnist_writers.npz")) as archive:
        pairs = np.unique(np.stack([archive["writer_train"], archive["hsf_train"]]), axis=1)
    assert pairs.shape[1] == 539


@pytest.mark.data
def test_real_test_writers_are_other_people(real):
    trained, tested = (set(real("mnist-writers", writers=part).clients) for part in ("train", "test"))
    assert len(tested) == 297
    assert not trained & tested
