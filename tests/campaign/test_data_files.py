"""Malformed data files of every format: each is read or rejected with a bounded `DataError`."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coterie.data import files, load
from coterie.data.formats import cifar, folder, idx, leaf, npz, svhn, tables, text
from coterie.errors import DataError

pytestmark = pytest.mark.slow

_spec = importlib.util.spec_from_file_location("data_files", Path(__file__).parents[1] / "data" / "conftest.py")
write = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(write)


def images(side: int, *channels: int) -> tuple[np.ndarray, ...]:
    """Ten training and five test images with labels 0, 1, 2, ..."""
    draw = np.random.default_rng(0)
    x, x_test = (draw.integers(0, 256, (n, side, side, *channels), np.uint8) for n in (10, 5))
    return x, np.arange(10, dtype=np.uint8), x_test, np.arange(5, dtype=np.uint8)


def archive(**arrays: np.ndarray) -> bytes:
    """An .npz file."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def users(features: int) -> dict[str, tuple[list, list]]:
    """Users of LEAF with a few rows of numbers."""
    return {f"user{n}": ([[0.5] * features] * (n + 1), list(range(n + 1))) for n in range(3)}


def table_csv() -> bytes:
    stream = io.StringIO()
    rows = csv.writer(stream)
    rows.writerow(["client", "label", "split", "a", "b"])
    for n in range(24):
        rows.writerow([f"c{n % 3}", n % 2, ("train", "test")[n % 4 == 0], n / 7, -n])
    return stream.getvalue().encode()


def table_parquet() -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"client": [f"c{n % 3}" for n in range(24)], "label": [n % 2 for n in range(24)]}
    stream = io.BytesIO()
    parquet.write_table(pa.table(columns | {"a": [n / 7 for n in range(24)]}), stream)
    return stream.getvalue()


def split_archive() -> bytes:
    x, y, x_test, y_test = images(6)
    return archive(x_train=x, y_train=y, x_test=x_test, y_test=y_test, coarse_train=y, coarse_test=y_test)


def texts(where: Path) -> dict[str, bytes]:
    """The archives of the text data sets."""
    where.mkdir()
    write.texts(where)
    return {file.name: file.read_bytes() for file in where.iterdir()}


def glove() -> bytes:
    return b"".join(b"%s " % word + b" ".join([b"0.25"] * text.WIDTH) + b"\n" for word in (b"to", b"be", b"so"))


#: Format → its files, in the order in which the reader takes them, and the reader.
FORMATS: dict[str, tuple[Callable[[], dict[str, bytes]], Callable[[list[Path]], object]]] = {
    "folder of npz": (
        lambda: {f"{n}.npz": archive(x=np.ones((6, 3)), y=np.arange(6) % 2) for n in range(2)},
        lambda paths: folder.read_folder(paths[0].parent),
    ),
    "csv": (lambda: {"t.csv": table_csv()}, lambda paths: tables.read_table(paths[0])),
    "csv in gzip": (
        lambda: {"t.csv.gz": gzip.compress(table_csv(), 1)},
        lambda paths: tables.read_table(paths[0]),
    ),
    "parquet": (lambda: {"t.parquet": table_parquet()}, lambda paths: tables.read_table(paths[0])),
    "npz with a split": (lambda: {"a.npz": split_archive()}, npz.read_split),
    "npz with writers": (
        lambda: {"a.npz": archive(x=images(6)[0], y=np.arange(10), writer=np.arange(10))},
        npz.read_written,
    ),
    "npz of a test part": (
        lambda: {"a.npz": archive(x=np.ones((4, 5), np.float32), y=np.arange(4), offsets=np.array([0, 2, 4]))},
        npz.read_testpart,
    ),
    "lengths of npz": (
        lambda: {"a.npz": split_archive()},
        lambda paths: npz.read_lengths(paths[0], ["x_train", "x_test"], ""),
    ),
    "idx": (lambda: {f"{n}.gz": write.idx(array) for n, array in enumerate(images(6))}, idx.read_images),
    "idx of writers": (
        lambda: {f"{n}.gz": write.idx(np.arange(24, dtype=np.int32).reshape(3, 8)) for n in range(2)},
        lambda paths: idx.read_writers(paths, 2),
    ),
    "cifar10": (lambda: {"c.tar.gz": write.cifar10(*images(32, 3))}, cifar.read_cifar10),
    "cifar100": (
        lambda: {"c.tar.gz": write.cifar100(*(images(32, 3)[place] for place in (0, 1, 1, 2, 3, 3)))},
        cifar.read_cifar100,
    ),
    "svhn": (
        lambda: {f"{n}.mat": write.mat(*images(32, 3)[2 * n : 2 * n + 2]) for n in range(2)},
        svhn.read_digits,
    ),
    "leaf, numbers": (lambda: {"all_data_0.json": write.leaf(users(28 * 28))}, leaf.read_femnist),
    "leaf, two parts": (
        lambda: {part: write.leaf(users(5 * 16 * 16)) for part in ("train.json", "test.json")},
        leaf.read_fed_mex,
    ),
    "leaf, text": (
        lambda: {f"{part}/a.json": write.leaf({"me": (["some text"], ["a"])}) for part in ("train", "test")},
        lambda paths: leaf.read_split(paths, lambda x, y: isinstance(x, str), "x must be a text"),
    ),
    "word vectors": (lambda: {"glove.txt": glove()}, lambda paths: text.read_glove(paths[0], ["to", "be"])),
}
TEXT_ARCHIVES = {
    "shakespeare": "shakespeare.json.gz",
    "sent140": "training.1600000.processed.noemoticon.csv",
    "goodreads": "fed_goodreads.npz",
    "goodreads-sentences": "fed_goodreads.npz",
}

HUGE = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\xff" * 8, b"9999999999", b"\0" * 8)
OTHER = (
    b"",
    b"\0",
    b"PK\x03\x04",
    b"\x1f\x8b\x08",
    b"\x93NUMPY\x01\0",
    b"PAR1",
    b"\x80\x04K\x01.",
    b"{}",
    b"[" * 100_000,
)


def mutated(content: bytes, draw: random.Random) -> bytes:
    """The bytes with a few changes."""
    for _ in range(draw.choice((1, 1, 2, 5))):
        start = draw.randrange(len(content) + 1)
        end = min(len(content), start + draw.choice((0, 1, 4, 100)))
        kind = draw.randrange(6)
        if kind == 0:
            content = content[:start]
        elif kind == 1:
            content = content[:start] + bytes(draw.randrange(256) for _ in range(end - start)) + content[end:]
        elif kind == 2 and start < len(content):
            content = content[:start] + bytes([content[start] ^ (1 << draw.randrange(8))]) + content[start + 1 :]
        elif kind == 3:
            size = draw.choice(HUGE)
            content = content[:start] + size + content[start + len(size) :]
        elif kind == 4:
            content = content[:start] + content[end:]
        else:
            content = content[:end] + content[start:]
    return content


def malformed(content: bytes, draw: random.Random) -> bytes:
    """A malformed file: changed as it is, or within its compression, so that the checksums still hold."""
    kind = draw.random()
    if kind < 0.08:
        return draw.choice(OTHER)
    if kind < 0.1:
        return gzip.compress(bytes(1 << 28), 1)  # a quarter of a gigabyte of zeros
    if kind < 0.4:
        return mutated(content, draw)
    if content[:2] == b"\x1f\x8b":
        return gzip.compress(mutated(gzip.decompress(content), draw), 1)
    if content[:2] == b"PK":
        stream = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w") as new:
            chosen = draw.choice(old.namelist())
            for name in old.namelist():
                new.writestr(name, mutated(old.read(name), draw) if name == chosen else old.read(name))
        return stream.getvalue()
    return mutated(content, draw)


def place(path: Path, content: bytes, draw: random.Random) -> None:
    """Write a malformed file, or put something else in its place."""
    kind = draw.random()
    if kind < 0.01:
        path.mkdir()
    elif kind < 0.02:
        path.symlink_to(path.name)
    elif kind > 0.03:
        path.write_bytes(malformed(content, draw))


def check(paths, contents, read, draw, *, bounded, message):
    """Write the files, one of them malformed, and read them; return the outcome."""
    bad = draw.randrange(len(paths))
    for number, (path, content) in enumerate(zip(paths, contents, strict=True)):
        path.parent.mkdir(parents=True, exist_ok=True)
        if number == bad:
            place(path, content, draw)
        else:
            path.write_bytes(content)
    with bounded():
        try:
            read(paths)
        except DataError as fault:
            message(fault)
            return "rejected"
    return "read"


@pytest.mark.parametrize("name", FORMATS)
def test_a_malformed_file_is_read_or_rejected(name, campaign, bounded, tally, message, tmp_path):
    make, read = FORMATS[name]
    good = make()
    counts = tally("data files", name)
    for number in range(max(1, campaign.files // (len(FORMATS) + len(TEXT_ARCHIVES)))):
        paths = [tmp_path / f"{number}" / file for file in good]
        draw = random.Random(f"{name} {campaign.seed} {number}")
        counts.add(check(paths, good.values(), read, draw, bounded=bounded, message=message))


@pytest.mark.parametrize("name", TEXT_ARCHIVES)
def test_a_malformed_archive_of_text_is_read_or_rejected(
    name, campaign, bounded, tally, message, tmp_path, monkeypatch
):
    content = texts(tmp_path / "good")[TEXT_ARCHIVES[name]]
    counts = tally("data files", name)
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    for number in range(max(1, campaign.files // (len(FORMATS) + len(TEXT_ARCHIVES)))):
        path = tmp_path / f"{number}" / TEXT_ARCHIVES[name]
        monkeypatch.setenv("COTERIE_DATA", str(path.parent))
        draw = random.Random(f"{name} {campaign.seed} {number}")
        counts.add(check([path], [content], lambda _: load(name, clients=1), draw, bounded=bounded, message=message))


@pytest.mark.parametrize("name", FORMATS)
def test_the_files_are_read_if_nothing_is_changed(name, tmp_path):
    make, read = FORMATS[name]
    paths = []
    for file, content in make().items():
        paths.append(tmp_path / file)
        paths[-1].parent.mkdir(exist_ok=True)
        paths[-1].write_bytes(content)
    read(paths)
