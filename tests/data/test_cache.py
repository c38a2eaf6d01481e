"""Copies in the cache: decoded files and generated examples."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import namedtuple

import numpy as np
import pytest

from coterie.data import cache as module
from coterie.data import files, load
from coterie.data.cache import generated
from coterie.data.cache_writing import report_progress_to
from coterie.data.datasets.synthetic import synthetic
from coterie.data.formats.npz import read_split
from coterie.errors import DataError


@pytest.fixture
def source(tiny):
    return tiny / "data" / "mnist.npz"


def decoded(name, *paths, read=read_split):
    return module.decoded(name, paths, read)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def entries(folder=None):
    """Entries of the cache, without locks, which stay."""
    return sorted(path for path in (folder or files.cache_folder()).iterdir() if path.suffix != ".lock")


def must_not_read(*_):
    raise AssertionError("the archive was read although there is a copy")


def test_training_images_come_first_as_bytes_and_labels_as_int32(source):
    got, given = decoded("mnist", source), np.load(source)
    assert (got.x.dtype, got.y.dtype, got.train) == (np.uint8, np.int32, 400)
    np.testing.assert_array_equal(got.x, np.concatenate([given["x_train"], given["x_test"]]))
    np.testing.assert_array_equal(got.y, np.concatenate([given["y_train"], given["y_test"]]))


def test_the_second_load_maps_the_copy_and_does_not_read_the_archive(source):
    first = decoded("mnist", source)
    second = decoded("mnist", source, read=must_not_read)
    assert (first.x.tobytes(), first.y.tobytes()) == (second.x.tobytes(), second.y.tobytes())
    assert isinstance(second.x.base, np.memmap)


def test_federated_data_use_the_memory_map_without_a_copy(tiny):
    data = load("mnist-rotated", clients=4)
    assert isinstance(data.x.base, np.memmap)
    assert isinstance(data.y.base, np.memmap)
    assert data.x.ctypes.data % 64 == 0


def test_the_folder_is_named_after_the_source_and_the_note_describes_the_arrays(source):
    decoded("mnist", source)
    (folder,) = entries()
    note = json.loads((folder / "copy.json").read_text())
    assert folder.name == f"mnist-{note['source'][:16]}"
    assert (note["format"], note["train"], note["test"]) == (module.FORMAT, 400, 100)
    assert {name: entry["shape"] for name, entry in note["arrays"].items()} == {"x": [500, 28, 28], "y": [500]}


def test_columns_and_names_are_stored_in_the_copy(source):
    def read(paths):
        made = read_split(paths)
        return module.Decoded(made.x, made.y, made.train, {"writer": made.y // 3}, {"writer": ["a", "b", "c", "d"]})

    for got in (decoded("mnist", source, read=read), decoded("mnist", source, read=must_not_read)):
        assert got.columns["writer"].tolist() == (got.y // 3).tolist()
        assert list(got.names["writer"]) == ["a", "b", "c", "d"]
    flip(entries()[0] / "writer.npy")
    assert decoded("mnist", source, read=read).columns["writer"].max() == 3


def test_several_files_have_one_copy_which_is_replaced_if_any_file_changes(source, tiny):
    other = tiny / "data" / "fashion_mnist.npz"

    def read(paths):
        return read_split(paths[:1])

    decoded("mnist", source, other, read=read)
    decoded("mnist", source, other, read=must_not_read)
    with other.open("ab") as stream:
        stream.write(b"more")
    with pytest.raises(AssertionError, match="was read although"):
        decoded("mnist", source, other, read=must_not_read)


def test_very_large_files_are_identified_by_size_and_time(source, monkeypatch):
    monkeypatch.setattr(module, "_HASHED", 1000)
    decoded("mnist", source)
    content, before = source.read_bytes(), source.stat()
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(AssertionError, match="was read although"):
        decoded("mnist", source, read=must_not_read)
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    decoded("mnist", source, read=must_not_read)
    assert source.read_bytes() == content


def test_another_source_has_another_copy(source, tiny):
    decoded("mnist", source)
    decoded("mnist", tiny / "data" / "fashion_mnist.npz")
    assert len(entries()) == 2


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: flip(folder / "x.npy"),
        lambda folder: flip(folder / "y.npy"),
        lambda folder: (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes()[:1000]),
        lambda folder: (folder / "y.npy").unlink(),
        lambda folder: (folder / "copy.json").unlink(),
        lambda folder: (folder / "copy.json").write_text("[]"),
        lambda folder: (folder / "copy.json").write_text('{"format": '),
    ],
    ids=["image", "label", "cut short", "no labels", "no note", "another note", "half a note"],
)
def test_a_damaged_decoded_copy_is_made_again(source, harm):
    good = decoded("mnist", source).x.tobytes()
    harm(entries()[0])
    again = decoded("mnist", source)
    assert again.x.tobytes() == good
    assert isinstance(again.x.base, np.memmap)
    assert len(entries()) == 1  # the damaged copy is gone
    decoded("mnist", source, read=must_not_read)


def test_a_copy_of_another_version_is_made_again(source, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(module, "FORMAT", 0)
        decoded("mnist", source)
    decoded("mnist", source)
    (folder,) = entries()
    assert json.loads((folder / "copy.json").read_text())["format"] == module.FORMAT


SCRIPT = """
import errno, fcntl, hashlib, sys, time
import numpy as np
from pathlib import Path
from coterie.data.formats.npz import read_split
from coterie.data.cache import decoded

me, processes, meeting = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])

def no_locks(*_):
    raise OSError(errno.ENOLCK, "No locks available")

if sys.argv[5] == "without locks":
    fcntl.flock = no_locks

def wait(what):
    (meeting / (what + me)).touch()
    deadline = time.monotonic() + 30
    while len(list(meeting.glob(what + "*"))) < processes and time.monotonic() < deadline:
        time.sleep(0.001)

def read_together(paths):
    if sys.argv[5] == "without locks":
        wait("read")
    else:
        (meeting / ("read" + me)).touch()
        time.sleep(0.5)
    return read_split(paths)

wait("here")
got = decoded("mnist", [Path(sys.argv[4])], read_together)
print(hashlib.sha256(got.x).hexdigest(), isinstance(got.x.base, np.memmap))
"""


@pytest.mark.parametrize(("locks", "built"), [("with locks", 1), ("without locks", 3)])
@pytest.mark.parametrize("damaged", [False, True], ids=["nothing there", "a damaged copy there"])
def test_one_of_several_processes_decodes_or_each_without_locks(source, tmp_path, damaged, locks, built):
    pytest.importorskip("fcntl", reason="this lock exists on POSIX only")
    if damaged:
        decoded("mnist", source)
        flip(entries()[0] / "x.npy")
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    together = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(i), "3", str(meeting), str(source), locks],
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(3)
    ]
    outputs = [process.communicate(timeout=60)[0] for process in together]
    assert [process.returncode for process in together] == [0, 0, 0]
    assert len(list(meeting.glob("read*"))) == built
    # All have the same images. Without locks, a process may keep them in memory while another moves the copy.
    assert len({line.split()[0] for line in outputs}) == 1
    assert any(line.endswith("True\n") for line in outputs)
    assert built == 3 or all(line.endswith("True\n") for line in outputs)
    assert len(entries()) == 1


def test_without_a_writable_cache_images_stay_in_memory(source, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    got = decoded("mnist", source)
    assert len(got.x) == 500
    assert not isinstance(got.x.base, np.memmap)
    assert "No decoded copy of mnist.npz can be written to" in caplog.text


def test_with_a_full_disk_images_stay_in_memory_and_no_copy_is_left(source, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.ArrayWriter, "add", full)
    assert len(decoded("mnist", source).x) == 500
    assert "No space left on device" in caplog.text
    assert entries() == []


def test_partial_copies_are_removed_after_a_day(source):
    decoded("mnist", source)
    (good,) = entries()
    old, young = (files.cache_folder() / f".{good.name}-{age}" for age in ("old", "young"))
    for left, hours in ((old, 25), (young, 1)):
        left.mkdir()
        os.utime(left, (time.time() - 3600 * hours,) * 2)
    (good / "copy.json").unlink()
    decoded("mnist", source)
    assert entries() == sorted([young, good])


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"x_test": None}, "has no array 'x_test'"),
        ({"x_train": np.zeros((400, 28, 28))}, "x_train must hold images of bytes, got float64"),
        ({"x_test": np.zeros((100, 784), np.uint8)}, "x_test must hold images of bytes"),
        ({"x_test": np.zeros((100, 8, 8), np.uint8)}, "differ in shape"),
        ({"y_train": np.zeros(3, int)}, "y_train must hold an integer for each image"),
        ({"y_test": np.full(100, 2**32)}, "y_test must hold 32-bit integers, got 4294967296 to 4294967296"),
        ({"y_test": np.zeros(100)}, "y_test must hold an integer for each image"),
    ],
)
def test_an_archive_of_another_layout_is_rejected(source, changes, text):
    given = {**np.load(source), **changes}
    np.savez(source, **{name: array for name, array in given.items() if array is not None})
    with pytest.raises(DataError) as caught:
        decoded("mnist", source)
    assert text in str(caught.value)
    assert str(source) in str(caught.value)


def test_an_unreadable_archive_is_rejected(tmp_path):
    (tmp_path / "mnist.npz").mkdir()
    with pytest.raises(DataError, match=r"mnist\.npz cannot be read: Is a directory"):
        decoded("mnist", tmp_path / "mnist.npz")


def test_a_damaged_archive_is_rejected(source):
    source.write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(DataError, match="is not an archive of arrays"):
        decoded("mnist", source)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "coterie" / "data"


def pieces(count=3):
    for place in range(count):
        yield np.full((2, 4), place, np.float64), np.array([place, place + 1])


def never():
    raise AssertionError("generated again")
    yield


def test_pieces_are_concatenated_and_generated_once(cache):
    x, y = generated("many", "some settings", 6, 4, pieces())
    assert x.tolist() == [[0] * 4, [0] * 4, [1] * 4, [1] * 4, [2] * 4, [2] * 4]
    assert (x.dtype, y.dtype, y.tolist()) == (np.float32, np.int32, [0, 1, 1, 2, 2, 3])
    assert x.ctypes.data % 64 == 0  # compiled code uses the memory without a copy
    again, _ = generated("many", "some settings", 6, 4, never())
    np.testing.assert_array_equal(again, x)


def test_other_settings_have_another_copy(cache):
    generated("many", "some settings", 6, 4, pieces())
    generated("many", "other settings", 6, 4, pieces())
    assert len(entries(cache)) == 2


def test_an_interrupted_copy_leaves_nothing_and_is_generated_again(cache):
    def broken():
        yield from pieces(2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generated("many", "some settings", 6, 4, broken())
    assert entries(cache) == []
    assert generated("many", "some settings", 6, 4, pieces())[1].tolist() == [0, 1, 1, 2, 2, 3]


def cut_short(folder):
    (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes()[:-8])


def one_bit(folder):
    content = bytearray((folder / "x.npy").read_bytes())
    content[-1] ^= 1
    (folder / "x.npy").write_bytes(content)


def other_type(folder):
    (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes().replace(b"<f4", b"<i4"))


def other_shape(folder):
    (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes().replace(b"(6, 4)", b"(4, 6)"))


def no_header(folder):
    (folder / "y.npy").write_bytes(b"?" * (folder / "y.npy").stat().st_size)


def other_version(folder):
    note = json.loads((folder / "copy.json").read_text())
    (folder / "copy.json").write_text(json.dumps(note | {"format": 1}))


@pytest.mark.parametrize("harm", [cut_short, one_bit, other_type, other_shape, no_header, other_version])
def test_a_damaged_generated_copy_is_generated_again(cache, harm):
    generated("many", "some settings", 6, 4, pieces())
    (folder,) = entries(cache)
    harm(folder)
    x, y = generated("many", "some settings", 6, 4, pieces())
    assert (x.dtype, x[-1].tolist(), y.tolist()) == (np.float32, [2] * 4, [0, 1, 1, 2, 2, 3])
    assert entries(cache) == [folder]
    generated("many", "some settings", 6, 4, never())


def test_partial_copies_of_killed_processes_are_removed(cache):
    generated("many", "some settings", 6, 4, pieces())
    (folder,) = entries(cache)
    (folder / "copy.json").unlink()
    mine, old, young = (cache / f".{name}.part" for name in (folder.name, "many-0123", "many-4567"))
    # `mine` is of the same examples, by a process that was killed.
    for left, hours in ((mine, 1), (old, 25), (young, 1)):
        left.mkdir()
        (left / "x.npy").write_bytes(b"half of it")
        for path in (left / "x.npy", left):
            os.utime(path, (time.time() - 3600 * hours,) * 2)
    generated("many", "some settings", 6, 4, pieces())
    assert entries(cache) == [young, folder]


def test_a_planted_link_is_replaced_and_its_target_is_not_written(cache, tmp_path):
    generated("many", "some settings", 6, 4, pieces())
    (folder,) = entries(cache)
    (folder / "copy.json").unlink()
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "precious").write_bytes(b"precious")
    (cache / f".{folder.name}.part").symlink_to(tmp_path / "victim")
    generated("many", "some settings", 6, 4, pieces())
    assert entries(cache) == [folder]
    assert [path.name for path in (tmp_path / "victim").iterdir()] == ["precious"]


def test_a_partial_copy_that_still_grows_is_kept(cache):
    (cache / ".many-0123.part").mkdir(parents=True)
    (cache / ".many-0123.part" / "x.npy").write_bytes(b"growing")
    os.utime(cache / ".many-0123.part", (time.time() - 3600 * 25,) * 2)  # the time of its first file
    generated("many", "some settings", 6, 4, pieces())
    assert (cache / ".many-0123.part" / "x.npy").exists()


GENERATING_SCRIPT = """
import sys, time
from pathlib import Path
import numpy as np
from coterie.data.cache import generated

me, meeting = sys.argv[1], Path(sys.argv[2])

def pieces():
    (meeting / ("draws" + me)).touch()
    time.sleep(0.5)
    yield np.ones((2, 4)), np.arange(2)

(meeting / ("here" + me)).touch()
deadline = time.monotonic() + 30
while len(list(meeting.glob("here*"))) < 2 and time.monotonic() < deadline:
    time.sleep(0.001)
print(generated("many", "some settings", 2, 4, pieces())[1].tolist())
"""


def test_one_process_generates_while_another_waits(cache, tmp_path):
    pytest.importorskip("fcntl", reason="this lock exists on POSIX only")
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    both = [
        subprocess.Popen(
            [sys.executable, "-c", GENERATING_SCRIPT, name, str(meeting)], stdout=subprocess.PIPE, text=True
        )
        for name in "ab"
    ]
    assert [process.communicate(timeout=60)[0] for process in both] == ["[0, 1]\n"] * 2
    assert len(list(meeting.glob("draws*"))) == 1
    assert len(entries(cache)) == 1


def test_a_full_disk_is_an_error_before_anything_is_written(cache, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("Usage", "free")(100))
    # 6 examples of 4 features and a label, 4 bytes each: 120.
    with pytest.raises(DataError, match="Make room, set XDG_CACHE_HOME to another folder, or use fewer clients"):
        generated("many", "some settings", 6, 4, never())
    assert entries(cache) == []


def test_the_error_names_a_cache_that_cannot_be_written(cache):
    cache.parent.mkdir(parents=True)
    cache.write_text("a file in the way")
    with pytest.raises(DataError, match="cannot be written to"):
        generated("many", "some settings", 6, 4, pieces())


def test_progress_of_generating_and_checking_is_reported(cache, monkeypatch):
    reports = []
    with report_progress_to(lambda *now: reports.append(now)):
        generated("many", "some settings", 6, 4, pieces())
        assert reports == [("generating many", done, 120) for done in (40, 80, 120)]
        reports.clear()
        monkeypatch.setattr(module, "_REPORTED", 200)  # x takes a header of 128 bytes and 96 more, y 128 and 24
        generated("many", "some settings", 6, 4, never())
    assert reports == [("checking many", 224, 224)]


def test_large_data_are_memory_mapped_with_the_same_examples(cache, monkeypatch):
    small = synthetic(clients=30, samples=20)
    assert not cache.exists()
    monkeypatch.setattr("coterie.data.datasets.synthetic.IN_MEMORY", 0)
    large = synthetic(clients=30, samples=20)
    assert len(entries(cache)) == 1
    np.testing.assert_array_equal(small.x, large.x)
    np.testing.assert_array_equal(small.y, large.y)
    assert large.sizes("fit").tolist() == [18] * 30  # a tenth of 20 is for testing
    assert large.sizes("test").tolist() == [2] * 30
    assert module.IN_MEMORY > 1 << 20
