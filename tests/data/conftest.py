"""Small files in the layout of the real ones, and the real ones where they are at hand."""

from __future__ import annotations

import csv
import gzip
import json
import shutil

import numpy as np
import pytest

from coterie.data import load
from coterie.data.known import IMAGES
from coterie.data.presets import PRESETS, at_hand

PER_CLASS = {"train": 40, "test": 10}
#: Of roles and accounts.
NAMES = [f"NAME{number:02d}" for number in range(25)]


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """No test reaches beyond this machine: other hosts are asked for at a port where nobody listens."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """An empty folder for files, named by COTERIE_DATA, and an empty cache."""
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path


def arrays(shape, classes=10, seed=0):
    """Random images, 400 and 100 of ten or a hundred classes, in a random order."""
    draw = np.random.default_rng(seed)
    made = {}
    for part, n in PER_CLASS.items():
        made[f"x_{part}"] = draw.integers(0, 256, (10 * n, *shape), np.uint8)
        made[f"y_{part}"] = draw.permutation(np.repeat(np.arange(classes, dtype=np.uint8), 10 * n // classes))
    return made


def written(shape, letters=0):
    """Images by 25 writers in turn: one of each of 62 classes by everyone, and so many of each letter from a to j."""
    y = np.concatenate([np.tile(np.arange(62), 25), np.tile(np.arange(36, 46), letters)]).astype(np.uint8)
    x = 255 * np.random.default_rng(1).integers(0, 2, (len(y), *shape), np.uint8)
    return {"x": x, "y": y, "writer": np.arange(len(y)) % 25}


def exercises(shape):
    """The test part of Fed-MEx: 30 people with 8 examples each."""
    x = np.random.default_rng(2).random((240, *shape), np.float32)
    return {"x": x, "y": np.arange(240) % 7, "offsets": np.arange(0, 241, 8)}


def texts(folder):
    """Plays with 25 roles of 600 characters, 25 accounts with 30 tweets, 25 reviewers with four sentences and one."""
    roles = {
        f"Play__{name}": {"play": "Session", "speaker": name, "lines": ["To be, or not: " * 10] * 4} for name in NAMES
    }
    with gzip.open(folder / "shakespeare.json.gz", "wt", encoding="ascii") as stream:
        json.dump(roles, stream)
    with (folder / "training.1600000.processed.noemoticon.csv").open("w", encoding="latin-1", newline="") as stream:
        tweets = csv.writer(stream, quoting=csv.QUOTE_ALL)
        for number in range(25 * 30):
            mood, text = (("4", "caf\xe9 time, yay!"), ("0", "so sad today"))[number % 2]
            date = "Mon Apr 06 22:19:45 PDT 2009"
            tweets.writerow([mood, 1467810369 + number, date, "NO_QUERY", NAMES[number % 25], text])
    parts = {}
    for part, each in (("train", 4), ("test", 1)):
        rows = 25 * each
        parts |= {f"y_{part}": np.arange(rows) % 2, f"offsets_{part}": np.arange(26) * each}
        parts |= {f"x_{part}": np.ones((rows, 6), np.uint8), f"text_{part}": np.array(["He dies, in the end."] * rows)}
    np.savez(folder / "fed_goodreads.npz", **parts)


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    """A folder with all files, which tests copy from."""
    folder = tmp_path_factory.mktemp("originals")
    for number, (name, images) in enumerate(IMAGES.items()):
        if name in ("chars74k", "femnist"):
            made = written(images.shape, letters=200 if name == "femnist" else 0)
        else:
            made = exercises(images.shape) if name == "fed-mex" else arrays(images.shape, images.classes, number)
        np.savez(folder / images.file, **made)
    # Writers 3, 6, ..., 24 of 50 training images each, 100, 101, ... of 10 test images each; even numbers are series 0.
    train, test = 3 * (1 + np.arange(400) % 8), 100 + np.arange(100) // 10
    series = {f"hsf_{part}": np.where(who % 2, 4, 0) for part, who in (("train", train), ("test", test))}
    np.savez(folder / "mnist_writers.npz", writer_train=train, writer_test=test, **series)
    texts(folder)
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
