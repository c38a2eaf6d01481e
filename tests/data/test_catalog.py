"""The catalog, and every data set in it."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from coterie.data import DATASETS, load
from coterie.data.catalog import CATALOG
from coterie.data.loading import available, find_loader, loader_options, summaries
from coterie.errors import SpecError

WITH_FILES = [name for name, row in CATALOG.items() if row.files]

#: Small enough for 400 + 100 images.
FEW = {"cifar10-rotated": 8, "cifar10-classes": 8, "mnist-writers": 6, "fed-mex": 6, "femnist-200": 8}


def matched_tests(name):
    """Options with which no test image belongs to two clients."""
    return {"test_protocol": "matched"} if "test_protocol" in loader_options(name) else {}


@pytest.mark.parametrize("name", CATALOG)
def test_every_row_has_a_one_line_description_and_a_loader_with_documented_options(name):
    assert DATASETS[name]
    assert "\n" not in DATASETS[name]
    loader, _ = find_loader(name)
    doc = inspect.getdoc(loader)
    options = inspect.signature(loader).parameters
    assert {"clients", "seed"} <= set(options)
    for option, entry in options.items():
        assert f"{option}: " in doc
        assert entry.annotation is not inspect.Parameter.empty
        assert entry.default is not None  # a spec writes defaults as TOML, which has no None


@pytest.mark.parametrize("name", CATALOG)
def test_every_data_set_loads_as_described(tiny, name):
    row, clients = CATALOG[name], FEW.get(name, 20)
    data = load(name, clients=clients, **matched_tests(name))
    assert data.name == name
    assert len(data.clients) == clients
    assert (data.truth is None) == (row.truth is None)
    assert not set(data.fit.order) & set(data.test.order)
    assert data.source
    if row.files:
        assert row.files[-1].archive in data.source
        assert data.x.dtype == (np.float32 if name in ("fed-mex", "synthetic-0-0-fedsim") else np.uint8)
        # Fed-MEx is stored from 0 to 1, and token ids are not normalized.
        assert (data.normalize is None) == (name == "fed-mex" or data.tokens is not None)


@pytest.mark.parametrize("name", CATALOG)
def test_every_data_set_is_determined_by_its_seed(tiny, name):
    one, same, other = (load(name, seed=seed, clients=FEW.get(name, 20)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.x, same.x)
    np.testing.assert_array_equal(one.y, same.y)
    for part in ("fit", "test"):
        first, again = (getattr(data, part) for data in (one, same))
        assert first.order.tolist() == again.order.tolist()
        assert first.offsets.tolist() == again.offsets.tolist()
    drawn = [(data.fit.order.tolist(), data.clients, data.x.tobytes()) for data in (one, other)]
    assert drawn[0] != drawn[1]


def test_a_data_set_is_available_if_all_of_its_files_are(tiny):
    assert all(available(name) for name in CATALOG)
    (tiny / "data" / "mnist_writers.npz").unlink()
    assert not available("mnist-writers")
    assert available("mnist")
    with pytest.raises(SpecError, match="Did you mean 'mnist-writers'"):
        available("mnist-writer")


def test_the_listing_without_files_gives_the_published_sizes(folders):
    entries = {entry["name"]: entry for entry in summaries()}
    assert list(entries) == list(CATALOG)
    assert entries["svhn"]["samples"] == 73_257 + 26_032
    assert [name for name, entry in entries.items() if not entry["available"]] == WITH_FILES
    assert entries["cifar10"]["source"] == "CIFAR-10 (Krizhevsky 2009), from cifar10.npz"


def test_the_listing_describes_a_subset_without_decoding_it(tiny):
    entries = {entry["name"]: entry for entry in summaries()}
    assert entries["cifar10-rotated"]["samples"] == 500
    assert "400 of 50,000 training" in entries["cifar10-rotated"]["source"]
    assert entries["chars74k"]["samples"] == 62 * 25
    assert "a subset: 1,550 of 3,410 training images" in entries["chars74k"]["source"]
    assert "0 of 934 training and 240 of 250 test images" in entries["fed-mex"]["source"]
    assert entries["mnist-writers"]["source"].endswith("from mnist.npz and mnist_writers.npz")
    assert not (tiny / "cache").exists()


def test_a_damaged_file_does_not_prevent_the_listing(tiny):
    (tiny / "data" / "mnist.npz").write_bytes(b"nothing")
    entries = {entry["name"]: entry for entry in summaries()}
    assert "mnist.npz cannot be read" in entries["mnist"]["source"]


@pytest.mark.parametrize("name", [name for name in CATALOG if name not in WITH_FILES])
def test_the_listing_is_right_about_generated_data(name):
    entry = next(entry for entry in summaries() if entry["name"] == name)
    data = load(name)
    assert entry["available"]
    assert (entry["clients"], entry["classes"]) == (len(data.clients), data.classes)
    assert entry["samples"] == len(data.fit.order) + len(data.test.order)
    assert (entry["truth"] is None) == (data.truth is None)


@pytest.mark.data
@pytest.mark.parametrize("name", WITH_FILES)
def test_the_listing_is_right_about_the_real_files(real, name):
    data = real(name, **matched_tests(name))
    entry = next(entry for entry in summaries() if entry["name"] == name)
    assert (entry["clients"], entry["classes"]) == (len(data.clients), data.classes)
    assert entry["source"] == data.source
    # If a subset is cut into unequal parts, of which some are used, each may have one example more or less.
    slack = len(data.clients) if "a subset" in data.source else 0
    assert abs(entry["samples"] - len(data.fit.order) - len(data.test.order)) <= slack
    assert not np.intersect1d(data.fit.order, data.test.order).size
    assert data.sizes("fit").min() >= 1
