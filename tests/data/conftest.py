"""Small files in the layout of the real ones, and the real ones where they are at hand."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from coterie.data import load
from coterie.data.pools import IMAGES
from coterie.data.presets import PRESETS, at_hand

PER_CLASS = {"train": 40, "test": 10}


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """An empty folder for files, named by COTERIE_DATA, and an empty cache."""
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path


def arrays(shape, seed=0):
    """Random images, 40 and 10 of each of ten classes, in a random order."""
    draw = np.random.default_rng(seed)
    made = {}
    for part, n in PER_CLASS.items():
        made[f"x_{part}"] = draw.integers(0, 256, (10 * n, *shape), np.uint8)
        made[f"y_{part}"] = draw.permutation(np.repeat(np.arange(10, dtype=np.uint8), n))
    return made


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    """A folder with all files, which tests copy from."""
    folder = tmp_path_factory.mktemp("originals")
    for number, images in enumerate(IMAGES.values()):
        np.savez(folder / images.file, **arrays(images.shape, number))
    # Writers 3, 6, ..., 24 of 50 training images each, 100, 101, ... of 10 test images each; even numbers are series 0.
    train, test = 3 * (1 + np.arange(400) % 8), 100 + np.arange(100) // 10
    series = {f"hsf_{part}": np.where(who % 2, 4, 0) for part, who in (("train", train), ("test", test))}
    np.savez(folder / "mnist_writers.npz", writer_train=train, writer_test=test, **series)
    return folder


@pytest.fixture
def tiny(folders, originals):
    """All files of images with 400 training and 100 test images, and eight writers of those of MNIST."""
    shutil.copytree(originals, folders / "data", dirs_exist_ok=True)
    return folders


@pytest.fixture
def real():
    """`load` for data that stand on files; the test is skipped where these are not at hand."""

    def get(name, **options):
        if not at_hand(name):
            pytest.skip(f"{' and '.join(PRESETS[name].needs)} not in the folder that COTERIE_DATA names")
        return load(name, **options)

    return get
