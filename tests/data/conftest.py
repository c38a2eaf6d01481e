"""Small files in the formats of the real ones, the real ones if available, and a local HTTP server."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import hashlib
import io
import json
import pickle
import shutil
import struct
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pytest

from coterie.data import load
from coterie.data.catalog import CATALOG
from coterie.data.loading import available

#: Data sets of images, one for each archive.
IMAGES = ("mnist", "fmnist", "cifar10", "svhn", "cifar100", "femnist", "chars74k", "fed-mex")
#: Archive → files in the catalog.
FILES = {files.archive: files for row in CATALOG.values() for files in row.files}
PER_CLASS = {"train": 40, "test": 10}
#: Names of roles and accounts.
NAMES = [f"NAME{number:02d}" for number in range(25)]


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """No test uses the network: the proxy for other hosts is a closed local port."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """An empty data folder, set in COTERIE_DATA, and an empty cache."""
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
    """Images by 25 writers in turn: one of each of 62 classes per writer, and further letters a to j."""
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
        f"Play__{name}": {"play": "Play", "speaker": name, "lines": ["To be, or not: " * 10] * 4} for name in NAMES
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
    floats = {f"x_{part}": np.arange(25 * n, dtype=np.float32)[:, None] for part, n in (("train", 4), ("test", 1))}
    np.savez(folder / "synthetic_0_0_fedsim.npz", **{**parts, **floats})


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    """A folder with all archives, from which tests copy."""
    folder = tmp_path_factory.mktemp("originals")
    for number, name in enumerate(IMAGES):
        files = CATALOG[name].files[0]
        if name in ("chars74k", "femnist"):
            made = written(files.images.shape, letters=200 if name == "femnist" else 0)
        elif name == "fed-mex":
            made = exercises(files.images.shape)
        else:
            made = arrays(files.images.shape, files.images.classes, number)
        np.savez(folder / files.archive, **made)
    # Writers 3, 6, ..., 24 with 50 training images each, 100, 101, ... with 10 test images each; even: series 0.
    train, test = 3 * (1 + np.arange(400) % 8), 100 + np.arange(100) // 10
    series = {f"hsf_{part}": np.where(who % 2, 4, 0) for part, who in (("train", train), ("test", test))}
    np.savez(folder / "mnist_writers.npz", writer_train=train, writer_test=test, **series)
    texts(folder)
    return folder


@pytest.fixture
def tiny(folders, originals):
    """All archives, with 400 training and 100 test images each, and eight writers of MNIST."""
    shutil.copytree(originals, folders / "data", dirs_exist_ok=True)
    return folders


@pytest.fixture
def real():
    """`load` for data sets with files; the test is skipped if the files are not available."""

    def get(name, **options):
        if not available(name):
            missing = " and ".join(files.archive for files in CATALOG[name].files)
            pytest.skip(f"{missing} not in the folder that COTERIE_DATA names")
        return load(name, **options)

    return get


def idx(array):
    """An idx file: 0, 0, the type, the number of axes, their lengths, the numbers; in gzip."""
    kind = {"uint8": 8, "int32": 12}[str(array.dtype)]
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape)
    return gzip.compress(head + array.astype(array.dtype.newbyteorder(">")).tobytes(), 1)


def python2(table):
    """A pickle of protocol 2 as Python 2 writes it: strings, keys and the content of arrays are byte strings."""

    def short(text):
        return b"U" + bytes([len(text)]) + text

    def value(each):
        if isinstance(each, np.ndarray):
            raw = each.tobytes()
            shape = b"".join(b"J" + struct.pack("<i", length) for length in each.shape)
            return (
                b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n" + b"K\x00\x85" + short(b"b") + b"\x87R"
                b"(K\x01(" + shape + b"t" + b"cnumpy\ndtype\n" + short(b"u1") + b"K\x00K\x01\x87R"
                b"(K\x03" + short(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
                b"\x89T" + struct.pack("<I", len(raw)) + raw + b"tb"
            )
        if isinstance(each, list):
            return b"](" + b"".join(value(one) for one in each) + b"e"
        return b"K" + bytes([each]) if isinstance(each, int) else short(each)

    return b"\x80\x02}(" + b"".join(short(key) + value(each) for key, each in table.items()) + b"u."


def python3(table):
    """The same table as Python 3 writes it with protocol 2."""
    return pickle.dumps(table, protocol=2)


def tar(members):
    """A tar.gz of these members: bytes, or an entry without content."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def batch(x, pickled=python2, **labels):
    """A batch of CIFAR: rows of 1,024 red, 1,024 green and 1,024 blue values, and lists of labels."""
    rows = x.transpose(0, 3, 1, 2).reshape(len(x), 3072)
    lists = {name.encode(): [int(label) for label in values] for name, values in labels.items()}
    names = [f"picture_{number}.png".encode() for number in range(len(x))]
    return pickled({b"batch_label": b"a batch", **lists, b"data": rows, b"filenames": names})


def cifar10(x, y, x_test, y_test, pickled=python2):
    """cifar-10-python.tar.gz: the training images in five batches, and the test batch."""
    pieces = zip(np.array_split(x, 5), np.array_split(y, 5), strict=True)
    members = {
        f"cifar-10-batches-py/data_batch_{number}": batch(images, pickled, labels=labels)
        for number, (images, labels) in enumerate(pieces, 1)
    }
    return tar(members | {"cifar-10-batches-py/test_batch": batch(x_test, pickled, labels=y_test)})


def cifar100(x, y, coarse, x_test, y_test, coarse_test, pickled=python2):
    """cifar-100-python.tar.gz."""
    return tar(
        {
            "cifar-100-python/train": batch(x, pickled, fine_labels=y, coarse_labels=coarse),
            "cifar-100-python/test": batch(x_test, pickled, fine_labels=y_test, coarse_labels=coarse_test),
        }
    )


def mat(x, y):
    """A file of SVHN: X is (32, 32, 3, images), y is (images, 1) with 10 for the digit 0."""
    from scipy.io import savemat

    stream = io.BytesIO()
    savemat(stream, {"X": x.transpose(1, 2, 3, 0), "y": np.where(y == 0, 10, y).astype(np.uint8)[:, None]})
    return stream.getvalue()


def leaf(users):
    """A JSON file of LEAF, from user → (rows of numbers, labels)."""
    sizes = [len(labels) for _, labels in users.values()]
    data = {user: {"x": rows, "y": labels} for user, (rows, labels) in users.items()}
    return json.dumps({"users": list(users), "num_samples": sizes, "user_data": data}).encode()


@pytest.fixture(scope="session")
def write():
    """The functions above; each returns the bytes of a file."""
    return SimpleNamespace(
        idx=idx, python2=python2, python3=python3, tar=tar, batch=batch, cifar10=cifar10, cifar100=cifar100, mat=mat,
        leaf=leaf,
    )  # fmt: skip


class Server:
    """An HTTP server that records its requests.

    Attributes:
        files: Path → bytes.
        cuts: Path → number of bytes after which the connection breaks, one entry per response.
        answers: Path → function that answers a request in another way.
        ranges: Whether range requests are supported.
        asked: (path, Range) of each request.
        sent: Number of bytes sent.
    """

    def __init__(self):
        self.files, self.cuts, self.answers = {}, {}, {}
        self.ranges = True
        self.asked, self.sent = [], 0
        self.meeting = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 5

            def do_GET(self):
                outer.asked.append((self.path, self.headers.get("Range")))
                if outer.meeting is not None:
                    outer.meeting.wait(20)
                outer.answer(self)

            def log_message(self, *_):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads, self._http.timeout = True, 0.05
        self.address = f"http://127.0.0.1:{self._http.server_port}"
        self._open = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        end = time.monotonic() + 60  # stops on its own
        while self._open and time.monotonic() < end:
            self._http.handle_request()
        self._http.server_close()

    def stop(self):
        self._open = False
        self._thread.join(10)

    def answer(self, request):
        content = self.files.get(request.path)
        if content is None:
            return request.send_error(404)
        if request.path in self.answers:
            return self.answers[request.path](request, content)
        start, wanted = 0, request.headers.get("Range")
        if wanted and self.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                return request.send_error(416)
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            request.send_response(200)
        self.body(request, content, start)

    def body(self, request, content, start=0, kind="application/octet-stream"):
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        cuts = self.cuts.get(request.path)
        piece = content[start:][: cuts.pop(0)] if cuts else content[start:]
        self.sent += len(piece)
        request.wfile.write(piece)


@pytest.fixture
def server():
    """A server that stops at the end of the test, or after a minute."""
    made = Server()
    yield made
    made.stop()


@pytest.fixture
def replace_files(monkeypatch):
    """Change the files with an archive of this name in all rows of the catalog."""

    def replace(archive, **changes):
        for name, row in CATALOG.items():
            changed = tuple(
                dataclasses.replace(files, **changes) if files.archive == archive else files for files in row.files
            )
            if changed != row.files:
                monkeypatch.setitem(CATALOG, name, dataclasses.replace(row, files=changed))

    return replace


@pytest.fixture
def hosted(server, replace_files):
    """Serve the publisher's files of an archive, with their own checksums."""

    def host(archive, contents):
        downloads = []
        for file, content in zip(FILES[archive].downloads, contents, strict=True):
            server.files[f"/{file.name}"] = content
            known = file.checksum and f"sha256:{hashlib.sha256(content).hexdigest()}"
            downloads.append(dataclasses.replace(file, addresses=(f"{server.address}/{file.name}",), checksum=known))
        replace_files(archive, downloads=tuple(downloads))
        return [file.name for file in downloads]

    return host
