"""Small files in exactly the publishers' layouts, and a server on this machine that hands them out, or fails to."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import pickle
import struct
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pytest

from coterie.data.publishers.listing import PUBLISHED


def idx(array):
    """An idx file: 0, 0, the type, the number of axes, their lengths, the numbers; in gzip."""
    kind = {"uint8": 8, "int32": 12}[str(array.dtype)]
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape)
    return gzip.compress(head + array.astype(array.dtype.newbyteorder(">")).tobytes(), 1)


def python2(table):
    """A pickle of protocol 2 as Python 2 writes it, in which texts, keys and the bytes of arrays are byte strings."""

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
    """A tar.gz of these members: bytes, or a ready-made entry without content."""
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
    """A json of LEAF's, from user → (rows of numbers, labels)."""
    sizes = [len(labels) for _, labels in users.values()]
    data = {user: {"x": rows, "y": labels} for user, (rows, labels) in users.items()}
    return json.dumps({"users": list(users), "num_samples": sizes, "user_data": data}).encode()


@pytest.fixture(scope="session")
def write():
    """The functions above, each of which gives the bytes of a file."""
    return SimpleNamespace(
        idx=idx, python2=python2, python3=python3, tar=tar, batch=batch, cifar10=cifar10, cifar100=cifar100, mat=mat,
        leaf=leaf,
    )  # fmt: skip


class Server:
    """Hands out files and notes who asked for what.

    Attributes:
        files: Path → bytes.
        cuts: Path → after how many bytes the connection breaks, one entry an answer until there are none left.
        ranges: Whether it can begin in the middle of a file.
        asked: (path, Range) of each request.
        sent: Bytes that went out.
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
        end = time.monotonic() + 60  # it stops by itself
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
    """A server that is stopped when the test is over, or after a minute."""
    made = Server()
    yield made
    made.stop()


@pytest.fixture
def hosted(server, monkeypatch):
    """Put a publisher's files on the server, under their names and with their own checksums."""

    def host(archive, contents):
        published = PUBLISHED[archive]
        files = []
        for file, content in zip(published.files, contents, strict=True):
            server.files[f"/{file.name}"] = content
            known = file.checksum and f"sha256:{hashlib.sha256(content).hexdigest()}"
            files.append(dataclasses.replace(file, addresses=(f"{server.address}/{file.name}",), checksum=known))
        monkeypatch.setitem(PUBLISHED, archive, dataclasses.replace(published, files=tuple(files)))
        return [file.name for file in files]

    return host
