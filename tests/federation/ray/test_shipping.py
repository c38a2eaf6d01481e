"""Data on their way to workers: memory maps where the file exists, the array itself elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.errors import FederationError
from coterie.federation.ray.shipping import Handle, MappedArray, arrays_of, with_arrays, without_arrays
from coterie.federation.ray.worker import Worker
from coterie.testing import tiny_data


@pytest.fixture
def mapped(tmp_path):
    """A memory map of a file with the numbers 0 to 11 in rows of three, as the cache of data sets returns it."""
    np.save(tmp_path / "x.npy", np.arange(12, dtype=np.float32).reshape(4, 3))
    return np.asarray(np.load(tmp_path / "x.npy", mmap_mode="r"))


def test_a_mapped_array_is_opened_from_its_file(mapped):
    note = MappedArray.of(mapped)
    assert np.array_equal(note.opened(), mapped)
    assert np.array_equal(MappedArray.of(mapped[2:]).opened(), [[6, 7, 8], [9, 10, 11]])


def test_an_array_in_memory_has_no_file():
    assert MappedArray.of(np.zeros(3)) is None
    assert MappedArray.of(np.zeros((2, 2))[1]) is None


@pytest.mark.parametrize("change", ["removed", "longer", "other content"])
def test_a_file_that_is_not_the_same_is_not_opened(mapped, tmp_path, change):
    note, file = MappedArray.of(mapped), tmp_path / "x.npy"
    content = file.read_bytes()
    file.unlink()  # a new file: the map keeps the old one
    if change != "removed":
        file.write_bytes(content + b"1" if change == "longer" else content[:-1] + b"1")
    assert note.opened() is None


def test_a_worker_without_the_file_says_so_and_takes_the_array(mapped, tmp_path):
    note = MappedArray.of(mapped)
    (tmp_path / "x.npy").rename(tmp_path / "elsewhere.npy")
    worker = Worker(1, {"x": note, "y": Handle("y", np.ones(4))}, lambda value: value)
    assert worker.hello()["missing"] == ["x"]
    with pytest.raises(FederationError, match=r"has not received the examples \(x\)"):
        worker.run(Handle("request", None), Handle("layout", None), (0, 1), {})
    worker.supply("x", Handle("x", mapped))
    assert worker._arrays["x"] is mapped


def test_data_travel_without_their_examples_and_get_them_back():
    data = tiny_data()
    data.position(data.clients[0])  # builds the table of positions, which does not travel
    without = without_arrays(data)
    assert (without.x, without.y) == (None, None)
    assert "_positions" not in vars(without)
    again = with_arrays(without, arrays_of(data))
    assert again.x is data.x
    assert again.position(data.clients[3]) == 3
