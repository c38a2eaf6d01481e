"""The same data from publishers' files as from the archive, through the same copy in the cache."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil

import numpy as np
import pytest

from coterie.data import files, load
from coterie.data.catalog import CATALOG
from coterie.data.loading import available, summaries
from coterie.errors import DataError, SpecError

MEMBERS = ("x_train", "y_train", "x_test", "y_test")

#: Archive → files in the catalog.
FILES = {files.archive: files for row in CATALOG.values() for files in row.files}

#: Data sets whose published files hold the same as the archive; those of Fed-MEx hold more.
BOTH = [name for name, row in CATALOG.items() if row.files and row.files[0].read_published and name != "fed-mex"]


def images_of_mnist(write, held):
    return [write.idx(held[array]) for array in MEMBERS]


def writers_of_mnist(write, held):
    """Class, series, writer and five more columns, of which ours has two."""
    tables = []
    for part in ("train", "test"):
        none = np.zeros_like(held[f"hsf_{part}"])
        columns = [none, held[f"hsf_{part}"], held[f"writer_{part}"], *[none] * 5]
        tables.append(write.idx(np.stack(columns, axis=1).astype(np.int32)))
    return tables


def cifar100(write, held):
    """Five fine labels make a coarse one."""
    x, y, x_test, y_test = (held[array] for array in MEMBERS)
    return [write.cifar100(x, y, y // 5, x_test, y_test, y_test // 5)]


PARTS = {
    "mnist.npz": images_of_mnist,
    "fashion_mnist.npz": images_of_mnist,
    "mnist_writers.npz": writers_of_mnist,
    "cifar10.npz": lambda write, held: [write.cifar10(*(held[array] for array in MEMBERS))],
    "cifar100.npz": cifar100,
    "svhn.npz": lambda write, held: [write.mat(held[f"x_{part}"], held[f"y_{part}"]) for part in ("train", "test")],
}


def femnist(write, held):
    """Two files, ten writers in the first and the others in the second."""
    users = {}
    for writer in range(25):
        own = held["writer"] == writer
        users[f"{writer:02d}"] = ((held["x"][own].reshape(-1, 784) / 255).tolist(), held["y"][own].tolist())
    names = list(users)
    return [write.leaf({name: users[name] for name in some}) for some in (names[:10], names[10:])]


@pytest.fixture(scope="session")
def published_files(originals, tmp_path_factory, write):
    """A folder with the published files for all archives in `originals`, in their subfolders."""
    folder = tmp_path_factory.mktemp("published")
    for archive, made in PARTS.items():
        listed = FILES[archive]
        (folder / listed.folders[0]).mkdir()
        for file, content in zip(listed.downloads, made(write, np.load(originals / archive)), strict=True):
            (folder / listed.folders[0] / file.name).write_bytes(content)
    (folder / "femnist").mkdir()
    for number, content in enumerate(femnist(write, np.load(originals / "femnist.npz"))):
        (folder / "femnist" / f"all_data_{number}.json").write_bytes(content)
    return folder


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def swapped(tiny, published_files, monkeypatch, replace_files):
    """A function that replaces the archives by published files with matching checksums."""

    def swap():
        shutil.rmtree(tiny / "data")
        monkeypatch.setenv("COTERIE_DATA", str(published_files))
        for archive in PARTS:
            listed = FILES[archive]
            known = tuple(
                dataclasses.replace(file, checksum=f"sha256:{sha256(published_files / listed.folders[0] / file.name)}")
                for file in listed.downloads
            )
            replace_files(archive, downloads=known)

    # LEAF's files are sorted by writer; sort the archive for the same order of images.
    held = np.load(tiny / "data" / "femnist.npz")
    order = np.argsort(held["writer"], kind="stable")
    np.savez(tiny / "data" / "femnist.npz", **{name: array[order] for name, array in held.items()})
    return swap


@pytest.mark.parametrize("name", BOTH)
def test_a_data_set_is_the_same_from_either_source_and_names_it(swapped, name):
    few = 8 if name in ("cifar10-rotated", "cifar10-classes", "femnist-200", "mnist-writers") else 20
    before = load(name, clients=few)
    swapped()
    after = load(name, clients=few)
    assert after.x.tobytes() == before.x.tobytes()
    assert after.y.tolist() == before.y.tolist()
    assert after.clients == before.clients
    for part in ("fit", "test"):
        one, other = getattr(before, part), getattr(after, part)
        assert one.order.tolist() == other.order.tolist()
        assert one.offsets.tolist() == other.offsets.tolist()
    assert isinstance(after.x.base, np.memmap)
    assert "as published" not in before.source
    assert "as published" in after.source
    assert "a subset: " in after.source  # 400 of 60,000 images


@pytest.mark.parametrize(
    ("name", "altered"),
    [("mnist", "t10k-labels-idx1-ubyte.gz"), ("mnist-writers", "qmnist-test-labels-idx2-int.gz")],
)
def test_altered_files_are_used_with_a_warning(tiny, published_files, monkeypatch, caplog, name, altered):
    # The catalog has the true checksums; these small files have others.
    shutil.rmtree(tiny / "data")
    monkeypatch.setenv("COTERIE_DATA", str(published_files))
    for _ in range(2):  # the second time from the decoded copy
        caplog.clear()
        assert "as published" not in load(name, clients=4).source
        (warning,) = [text for text in caplog.messages if f"{altered} is not as published: its " in text]
        assert warning.partition(" is not ")[0] == str(
            published_files / ("mnist" if name == "mnist" else "qmnist") / altered
        )


def test_a_second_load_does_not_read_the_publishers_files(swapped, monkeypatch):
    swapped()
    first = load("svhn", clients=4)
    monkeypatch.setattr("scipy.io.loadmat", None)
    again = load("svhn", clients=4)
    assert again.x.tobytes() == first.x.tobytes()


def test_the_listing_names_the_published_files(swapped):
    swapped()
    entries = {entry["name"]: entry for entry in summaries()}
    assert entries["mnist"]["available"]
    assert entries["mnist"]["source"].endswith("from train-images-idx3-ubyte.gz and 3 more, as published")
    assert entries["mnist-writers"]["source"].endswith(
        "as published and qmnist-train-labels-idx2-int.gz and qmnist-test-labels-idx2-int.gz, as published"
    )
    assert not available("chars74k")
    assert not files.cache_folder().exists()  # nothing was read


def test_coarse_labels_can_be_chosen(swapped):
    with pytest.raises(SpecError, match="There are no coarse labels in CIFAR-100"):
        load("cifar100", labels="coarse", clients=4)  # the archive has none
    swapped()
    fine, coarse = (load("cifar100", labels=labels, clients=4) for labels in ("fine", "coarse"))
    assert (fine.classes, coarse.classes) == (100, 20)
    assert coarse.y.tolist() == (fine.y // 5).tolist()
    with pytest.raises(SpecError, match=r"No labels 'course'\. Did you mean 'coarse'"):
        load("cifar100", labels="course")


def test_an_archive_may_have_coarse_labels(tiny):
    path = tiny / "data" / "cifar100.npz"
    held = dict(np.load(path))
    np.savez(path, **held, coarse_train=held["y_train"] // 5, coarse_test=held["y_test"] // 5)
    assert load("cifar100", labels="coarse", clients=4).classes == 20
    np.savez(path, **held, coarse_train=held["y_train"] // 5)
    with pytest.raises(DataError, match="has no array 'coarse_test'"):
        load("cifar100", clients=4)


@pytest.mark.parametrize("archive", [*PARTS])
def test_missing_files_are_downloaded_once_and_checked(folders, originals, write, hosted, server, archive):
    names = hosted(archive, PARTS[archive](write, np.load(originals / archive)))
    preset = "mnist-writers" if archive == "mnist_writers.npz" else FILES[archive].key
    if archive == "mnist_writers.npz":
        shutil.copy(originals / "mnist.npz", folders / "data")
    assert not available(preset)
    first = load(preset, clients=4)
    assert [path for path, _ in server.asked] == [f"/{name}" for name in names]
    assert available(preset)
    assert "as published" in first.source
    again = load(preset, clients=4)
    assert len(server.asked) == len(names)
    assert again.x.tobytes() == first.x.tobytes()
    kept = files.cache_folder() / FILES[archive].folders[0]
    assert sorted(path.name for path in kept.iterdir() if path.suffix != ".lock") == sorted(names)


def test_existing_files_are_not_downloaded_again(folders, originals, write, hosted, server):
    contents = images_of_mnist(write, np.load(originals / "mnist.npz"))
    names = hosted("mnist.npz", contents)
    (folders / "data" / "mnist").mkdir()
    for name, content in list(zip(names, contents, strict=True))[:3]:
        (folders / "data" / "mnist" / name).write_bytes(content)
    assert len(load("mnist", clients=4).x) == 500
    assert [path for path, _ in server.asked] == [f"/{names[3]}"]


def test_data_with_a_wrong_checksum_are_not_loaded(folders, originals, write, hosted, server):
    names = hosted("mnist.npz", images_of_mnist(write, np.load(originals / "mnist.npz")))
    server.files[f"/{names[2]}"] += b"!"
    with pytest.raises(DataError, match=f"{names[2]} of MNIST is not available and could not be downloaded"):
        load("mnist", clients=4)
    kept = [path.name for path in (files.cache_folder() / "mnist").iterdir() if path.suffix != ".lock"]
    assert sorted(kept) == sorted(names[:2])


def test_fed_mex_has_its_published_split_from_the_published_files(folders, write, hosted, caplog):
    def people(sizes):
        return {f"f_{number:02d}": ([[number / 100] * 1280] * n, [number % 7] * n) for number, n in enumerate(sizes, 1)}

    hosted("fed_mex_testpart.npz", [write.leaf(people([8] * 29 + [3])), write.leaf(people([2] * 29 + [1]))])
    data = load("fed-mex")
    assert data.clients == tuple(f"f_{number:02d}" for number in range(1, 31))
    assert data.sizes("fit").tolist() == [8] * 29 + [3]
    assert data.sizes("test").tolist() == [2] * 29 + [1]
    for position in range(30):
        for part in ("fit", "test"):
            x, y = data.examples(data.clients[position], part)
            assert np.allclose(x, (position + 1) / 100)
            assert set(y) == {(position + 1) % 7}
    assert "a subset: 235 of 934 training and 59 of 250 test images, from train.json and test.json" in data.source
    assert [text.startswith("No checksum of") for text in caplog.messages] == [True, True]
