"""Files of data sets: where they are looked for, downloads, and error messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.data import files, load
from coterie.data.catalog import CATALOG
from coterie.errors import DataError


def test_the_named_folder_is_searched_before_the_cache(folders):
    cache = folders / "cache" / "coterie" / "data"
    assert files.folders() == [folders / "data", cache]
    cache.mkdir(parents=True)
    (cache / "a.npz").touch()
    assert files.find("a.npz") == cache / "a.npz"
    (folders / "data" / "a.npz").touch()
    assert files.find("a.npz") == folders / "data" / "a.npz"


def test_without_settings_the_cache_is_in_the_home_folder(monkeypatch):
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/someone")
    assert files.folders() == [Path("/home/someone/.cache/coterie/data")]


def test_the_error_for_a_missing_file_names_the_variable_and_the_folders(folders):
    with pytest.raises(DataError) as caught:
        load("chars74k")
    places = (str(folders / "data"), str(folders / "cache" / "coterie" / "data"))
    for part in ("chars74k_hnd.npz", "COTERIE_DATA", *places):
        assert part in str(caught.value)
    assert "it is not set" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_variable_that_names_no_folder_gives_one_warning(folders, monkeypatch, caplog):
    monkeypatch.setenv("COTERIE_DATA", str(folders / "typo"))
    for _ in range(2):
        assert files.find("a.npz") is None
    assert caplog.messages == [f"COTERIE_DATA names {folders / 'typo'}, which is not a folder"]


def test_the_error_says_that_the_variable_is_not_set(folders, monkeypatch):
    monkeypatch.delenv("COTERIE_DATA")
    with pytest.raises(DataError, match=r"COTERIE_DATA \(it is not set\)"):
        files.require("svhn.npz")


#: Archive → files in the catalog.
FILES = {files.archive: files for row in CATALOG.values() for files in row.files}
PUBLISHED = [archive for archive, each in FILES.items() if each.folders]
MNIST = [file.name for file in FILES["mnist.npz"].downloads]


def put(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return [folder / name for name in names]


@pytest.mark.parametrize("archive", PUBLISHED)
def test_every_download_has_addresses_and_a_known_kind_of_checksum(archive):
    published = FILES[archive]
    assert bool(published.downloads) != bool(published.pattern)
    for file in published.downloads:
        assert all(address.startswith("http") and address.endswith(f"/{file.name}") for address in file.addresses)
        if file.checksum is not None:
            kind, _, digits = file.checksum.partition(":")
            assert {"sha256": 64, "md5": 32}[kind] == len(digits)
            assert set(digits) <= set("0123456789abcdef")


@pytest.mark.parametrize("place", ["mnist", "MNIST/raw"])
def test_published_files_are_found_in_their_subfolders(folders, place):
    put(folders / "data", "mnist.npz")
    paths = put(folders / "data" / place, *MNIST)
    found = files.locate(FILES["mnist.npz"])
    assert list(found.paths) == paths
    assert str(found) == "train-images-idx3-ubyte.gz and 3 more, as published"


def test_files_with_unique_names_are_found_without_a_subfolder(folders):
    (path,) = put(folders / "data", "cifar-10-python.tar.gz")
    assert files.locate(FILES["cifar10.npz"]).paths == (path,)
    assert str(files.locate(FILES["cifar10.npz"])) == "cifar-10-python.tar.gz, as published"
    put(folders / "data", "train_32x32.mat", "test_32x32.mat")
    assert str(files.locate(FILES["svhn.npz"])) == "train_32x32.mat and test_32x32.mat, as published"


def test_an_archive_in_the_named_folder_has_priority_over_the_cache(folders):
    put(files.cache_folder() / "mnist", *MNIST)
    assert files.locate(FILES["mnist.npz"]).published
    put(folders / "data", "mnist.npz")
    assert files.locate(FILES["mnist.npz"]).paths == (folders / "data" / "mnist.npz",)


def test_all_files_of_a_data_set_are_needed(folders):
    put(folders / "data" / "mnist", *MNIST[:3])
    assert files.locate(FILES["mnist.npz"]) is None
    put(files.cache_folder() / "mnist", MNIST[3])
    found = files.locate(FILES["mnist.npz"])
    assert [path.parent for path in found.paths] == [folders / "data" / "mnist"] * 3 + [files.cache_folder() / "mnist"]


def test_without_a_network_the_error_names_address_file_and_folder(folders):
    with pytest.raises(DataError) as caught:
        load("mnist-powerlaw")
    text = str(caught.value)
    for file in FILES["mnist.npz"].downloads:  # all four are missing, not only the one that was tried
        assert f"{file.name} ({' or '.join(file.addresses)})" in text
    for part in ("no connection", str(folders / "data" / "mnist")):
        assert part in text
    assert len(text.splitlines()) == 2
    assert caught.value.exit_code == 3
    assert not list(folders.rglob("*.gz"))
    assert not list(folders.rglob("*.part"))


def test_only_missing_files_are_named(folders):
    put(folders / "data" / "mnist", *MNIST[:3])
    with pytest.raises(DataError) as caught:
        load("mnist")
    assert MNIST[3] in str(caught.value)
    assert not any(name in str(caught.value) for name in MNIST[:3])


def test_the_error_says_how_an_archive_is_made(folders):
    with pytest.raises(
        DataError, match=r"There is no file chars74k_hnd\.npz.* github\.com/aparrish/chars74k-json-dump"
    ):
        load("chars74k")
    assert "github.com/aparrish/chars74k-json-dump" in files.advice(FILES["chars74k_hnd.npz"])


def test_the_error_explains_how_to_set_the_variable(folders, monkeypatch):
    monkeypatch.delenv("COTERIE_DATA")
    with pytest.raises(DataError) as caught:
        load("svhn")
    assert f"test_32x32.mat) into {files.cache_folder() / 'svhn'}" in str(caught.value)
    assert "set COTERIE_DATA to that folder" in str(caught.value)


def test_the_error_says_how_files_without_an_address_are_made(folders):
    with pytest.raises(DataError) as caught:
        load("femnist")
    for part in ("all_data*.json", str(folders / "data" / "femnist"), "preprocess.sh", "github.com/TalwalkarLab/leaf"):
        assert part in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("archive", FILES)
def test_there_is_advice_for_all_files(archive):
    assert "$COTERIE_DATA" in files.advice(FILES[archive])
    assert bool(files.complete(FILES[archive])) == (archive in PUBLISHED)


@pytest.mark.parametrize("archive", PUBLISHED)
def test_the_page_about_files_names_every_file_and_folder(archive):
    page = (Path(__file__).parents[2] / "docs" / "data-files.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{archive}`")]
    published = FILES[archive]
    names = published.pattern.split(" and ") if published.pattern else [file.name for file in published.downloads]
    for name in [] if archive == "fashion_mnist.npz" else names:  # which are the same four names as MNIST's
        assert f"`{name}`" in row
    for folder in published.folders:
        assert (f"`{folder}`" if folder else "none") in row
