"""The table of presets, and every preset as its paper deals it out."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from coterie.data import DATASETS, load
from coterie.data.loading import _LOADERS, find_loader, loader_options
from coterie.data.presets import PRESETS, at_hand, catalog
from coterie.errors import SpecError

ON_FILES = [name for name, preset in PRESETS.items() if preset.needs]

#: Small enough for 400 + 100 images.
FEW = {"cifar10-rotated": 8, "cifar10-classes": 8, "mnist-writers": 6, "fed-mex": 6, "femnist-200": 8}


def once(name):
    """Options with which no test image serves two clients."""
    return {"test_protocol": "matched"} if "test_protocol" in loader_options(name) else {}


def test_every_preset_has_a_loader_and_every_loader_a_preset():
    assert list(DATASETS) == list(PRESETS)
    assert set(_LOADERS) == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_every_loader_tells_its_options(name):
    loader, _ = find_loader(name)
    doc = inspect.getdoc(loader)
    for option, entry in inspect.signature(loader).parameters.items():
        assert f"{option}: " in doc
        assert entry.annotation is not inspect.Parameter.empty
        assert entry.default is not None  # a spec writes defaults as TOML, which has no None


@pytest.mark.parametrize("name", ON_FILES)
def test_small_files_make_every_preset(tiny, name):
    data = load(name, clients=FEW.get(name, 20), **once(name))
    assert data.name == name
    assert len(data.clients) == FEW.get(name, 20)
    assert data.x.dtype == (np.float32 if name == "fed-mex" else np.uint8)
    # Numbers of Fed-MEx are stored from 0 to 1, and ids of tokens are no quantities.
    assert (data.normalize is None) == (name == "fed-mex" or data.tokens is not None)
    assert PRESETS[name].needs[-1] in data.source
    assert (data.truth is None) == (PRESETS[name].truth is None)
    assert not set(data.fit.order) & set(data.test.order)


@pytest.mark.parametrize("name", ON_FILES)
def test_a_seed_fixes_every_preset(tiny, name):
    few = {"clients": FEW.get(name, 20)}
    one, same, other = (load(name, seed=seed, **few) for seed in (1, 1, 2))
    for part in ("fit", "test"):
        first, again = (getattr(data, part) for data in (one, same))
        assert first.order.tolist() == again.order.tolist()
        assert first.offsets.tolist() == again.offsets.tolist()
    assert (one.fit.order.tolist(), one.clients) != (other.fit.order.tolist(), other.clients)


def test_files_are_at_hand_when_all_of_them_are(tiny):
    assert all(at_hand(name) for name in PRESETS)
    (tiny / "data" / "mnist_writers.npz").unlink()
    assert not at_hand("mnist-writers")
    assert at_hand("mnist")
    with pytest.raises(SpecError, match="Did you mean 'mnist-writers'"):
        at_hand("mnist-writer")


def test_the_catalogue_without_files_tells_what_was_published(folders):
    entries = {entry["name"]: entry for entry in catalog()}
    assert list(entries) == list(PRESETS)
    assert entries["svhn"]["samples"] == 73_257 + 26_032
    assert [name for name, entry in entries.items() if not entry["at_hand"]] == ON_FILES
    assert entries["cifar10"]["source"] == "CIFAR-10 (Krizhevsky 2009), from cifar10.npz"


def test_the_catalogue_tells_of_a_subset_without_decoding_it(tiny):
    entries = {entry["name"]: entry for entry in catalog()}
    assert entries["cifar10-rotated"]["samples"] == 500
    assert "400 of 50,000 training" in entries["cifar10-rotated"]["source"]
    assert entries["chars74k"]["samples"] == 62 * 25
    assert "a subset: 1,550 of 3,410 training images" in entries["chars74k"]["source"]
    assert "0 of 934 training and 240 of 250 test images" in entries["fed-mex"]["source"]
    assert entries["mnist-writers"]["source"].endswith("from mnist.npz and mnist_writers.npz")
    assert not (tiny / "cache").exists()


def test_a_damaged_file_does_not_keep_the_catalogue_from_listing(tiny):
    (tiny / "data" / "mnist.npz").write_bytes(b"nothing")
    entries = {entry["name"]: entry for entry in catalog()}
    assert "mnist.npz cannot be read" in entries["mnist"]["source"]


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if not preset.needs])
def test_the_catalogue_is_right_about_what_needs_no_file(name):
    entry = next(entry for entry in catalog() if entry["name"] == name)
    data = load(name)
    assert entry["at_hand"]
    assert (entry["clients"], entry["classes"]) == (len(data.clients), data.classes)
    assert entry["samples"] == len(data.fit.order) + len(data.test.order)
    assert (entry["truth"] is None) == (data.truth is None)


@pytest.mark.data
@pytest.mark.parametrize("name", ON_FILES)
def test_the_catalogue_is_right_about_the_real_files(real, name):
    data = real(name, **once(name))
    entry = next(entry for entry in catalog() if entry["name"] == name)
    assert (entry["clients"], entry["classes"]) == (len(data.clients), data.classes)
    assert entry["source"] == data.source
    # Where a subset is cut into pieces of unequal size, some of which are used, there may be one more or less in each.
    slack = len(data.clients) if "a subset" in data.source else 0
    assert abs(entry["samples"] - len(data.fit.order) - len(data.test.order)) <= slack
    assert not np.intersect1d(data.fit.order, data.test.order).size
    assert data.sizes("fit").min() >= 1
