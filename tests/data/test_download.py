"""Downloads from a server on this machine, and all that can go wrong on the way."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import threading
import time

import pytest

from coterie.data import making
from coterie.data.publishers.downloading import fetch
from coterie.data.publishers.listing import File
from coterie.data.watching import watched
from coterie.errors import DataError

CONTENT = bytes(range(256)) * 2000  # 512,000 bytes: eight chunks
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.fixture
def file(server):
    server.files["/a.gz"] = CONTENT
    return File("a.gz", (f"{server.address}/a.gz",), SHA256)


def unknown(file):
    return File(file.name, file.addresses, None)


def there(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_file_comes_whole_under_its_name_with_nothing_beside_it(file, tmp_path, capfd):
    path = fetch(file, tmp_path / "cache" / "deep")
    assert path == tmp_path / "cache" / "deep" / "a.gz"
    assert path.read_bytes() == CONTENT
    assert there(path.parent) == ["a.gz"]
    assert capfd.readouterr() == ("", "")


def test_a_checksum_of_another_kind_will_do(file, tmp_path):
    fetch(File(file.name, file.addresses, f"md5:{hashlib.md5(CONTENT).hexdigest()}"), tmp_path)
    assert there(tmp_path) == ["a.gz"]


def test_a_server_that_calls_gzip_an_encoding_does_not_have_the_file_unpacked(server, tmp_path):
    def encoded(request, content):
        request.send_response(200)
        request.send_header("Content-Encoding", "x-gzip")
        server.body(request, content)

    content = gzip.compress(CONTENT)
    server.files["/a.gz"], server.answers["/a.gz"] = content, encoded
    known = f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert fetch(File("a.gz", (f"{server.address}/a.gz",), known), tmp_path).read_bytes() == content


def test_without_a_checksum_another_address_begins_anew(server, tmp_path):
    server.files["/a.gz"], server.files["/b.gz"] = CONTENT, CONTENT[::-1]
    server.cuts["/a.gz"] = [131_072, 0]
    addresses = (f"{server.address}/a.gz", f"{server.address}/b.gz")
    assert fetch(File("a.gz", addresses, None), tmp_path).read_bytes() == CONTENT[::-1]


def test_whoever_watches_is_told_how_far_it_is(file, tmp_path):
    told = []
    with watched(lambda *now: told.append(now)):
        fetch(file, tmp_path)
    assert {(name, total) for name, _, total in told} == {("downloading a.gz", len(CONTENT))}
    done = [bytes_there for _, bytes_there, _ in told]
    assert done == sorted(done)
    assert len(done) >= 8
    assert told[-1] == ("downloading a.gz", len(CONTENT), len(CONTENT))
    fetch(file, tmp_path / "again")
    assert len(told) == len(done)  # nobody watches any more


def test_another_file_than_the_published_one_is_refused_and_not_kept(file, server, tmp_path):
    server.files["/a.gz"] = CONTENT[:-1] + b"!"
    with pytest.raises(DataError, match=r"another file came: its sha256 is [0-9a-f]{64}, not") as caught:
        fetch(file, tmp_path)
    assert SHA256.removeprefix("sha256:") in str(caught.value)
    assert there(tmp_path) == []


def test_the_next_address_is_tried_from_the_beginning(file, server, tmp_path):
    server.files["/b.gz"] = CONTENT[:-1] + b"!"
    addresses = tuple(f"{server.address}/{name}.gz" for name in ("b", "missing", "a"))
    assert fetch(File("a.gz", addresses, SHA256), tmp_path).read_bytes() == CONTENT
    assert server.asked == [("/b.gz", None), ("/missing.gz", None), ("/a.gz", None)]


def test_every_address_is_named_with_what_went_wrong(file, server, tmp_path):
    addresses = (f"{server.address}/missing", "http://127.0.0.1:9/nobody")
    with pytest.raises(DataError) as caught:
        fetch(File("a.gz", addresses, SHA256), tmp_path)
    assert str(caught.value) == (f"{addresses[0]}: the server answers 404 Not Found; {addresses[1]}: no connection")
    assert there(tmp_path) == []


def test_a_broken_connection_is_taken_up_where_it_stopped(file, server, tmp_path):
    server.cuts["/a.gz"] = [200_000, 100_000]
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    # What was cut off was not sent again. The client may have lost the last bytes in its own buffers, so the second
    # request begins at or before the break.
    starts = [int(wanted.removeprefix("bytes=").removesuffix("-")) for _, wanted in server.asked[1:]]
    assert len(starts) == 2
    assert 0 < starts[0] <= 200_000 < starts[1] <= 300_000
    assert server.sent < 1.5 * len(CONTENT)


def test_a_server_that_cannot_begin_in_the_middle_is_asked_for_all_of_it(file, server, tmp_path):
    server.ranges, server.cuts["/a.gz"] = False, [300_000]
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert server.sent == 300_000 + len(CONTENT)


def test_attempts_come_to_an_end_and_what_came_is_left_for_the_next_call(file, server, tmp_path):
    server.cuts["/a.gz"] = [131_072, 0]  # the second attempt brings nothing
    with pytest.raises(DataError, match="the connection broke"):
        fetch(file, tmp_path)
    assert there(tmp_path) == [".a.gz.part"]
    kept = (tmp_path / ".a.gz.part").read_bytes()
    assert 0 < len(kept) <= 131_072
    assert CONTENT.startswith(kept)
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == ("/a.gz", f"bytes={len(kept)}-")
    assert there(tmp_path) == ["a.gz"]


def test_a_server_that_always_breaks_is_given_up(file, server, tmp_path):
    server.ranges, server.cuts["/a.gz"] = False, [70_000] * 50
    with pytest.raises(DataError, match="the connection broke, 10 times"):
        fetch(file, tmp_path)
    assert len(server.asked) == 10


def test_a_left_part_that_is_not_of_this_file_is_found_out_by_its_checksum(file, server, tmp_path):
    (tmp_path / ".a.gz.part").write_bytes(b"x" * 1000)
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert [wanted for _, wanted in server.asked] == ["bytes=1000-", None]


def test_a_left_part_that_is_longer_than_the_file_is_thrown_away(file, server, tmp_path):
    (tmp_path / ".a.gz.part").write_bytes(CONTENT + b"more")
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert [wanted for _, wanted in server.asked] == [f"bytes={len(CONTENT) + 4}-", None]


def test_a_piece_from_another_place_is_not_put_behind_the_first(file, server, tmp_path):
    def elsewhere(request, content):
        wanted = request.headers.get("Range")
        request.send_response(206 if wanted else 200)
        request.send_header("Content-Range", f"bytes 7-{len(content) - 1}/{len(content)}")
        server.body(request, content, 7 if wanted else 0)

    server.answers["/a.gz"] = elsewhere
    (tmp_path / ".a.gz.part").write_bytes(CONTENT[:5000])
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert [wanted for _, wanted in server.asked] == ["bytes=5000-", None]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda server: server.files.update({"/a.gz": b""}), "the file there is empty"),
        (
            lambda server: server.answers.update(
                {
                    "/a.gz": lambda request, _: (
                        request.send_response(200),
                        server.body(request, b"<p>", kind="text/html"),
                    )
                }
            ),
            "the server sent a page instead of the file",
        ),
        (
            lambda server: server.answers.update({"/a.gz": lambda request, _: request.send_error(503)}),
            "the server answers 503 Service Unavailable",
        ),
    ],
    ids=["empty", "page", "busy"],
)
def test_an_answer_that_is_no_file_is_refused(file, server, tmp_path, answer, text):
    answer(server)
    for asked in (file, unknown(file)):
        with pytest.raises(DataError, match=text):
            fetch(asked, tmp_path)
    assert there(tmp_path) == []


def test_where_no_checksum_is_published_that_of_the_first_download_is_kept_and_said(file, tmp_path, caplog):
    path = fetch(unknown(file), tmp_path)
    beside = tmp_path / "a.gz.sha256"
    assert beside.read_text() == f"{SHA256.removeprefix('sha256:')}  a.gz\n"  # as sha256sum -c reads it
    assert caplog.messages == [
        f"Nobody has published a checksum of a.gz; that of this first download is kept in {beside}"
    ]
    path.unlink()
    fetch(unknown(file), tmp_path)
    assert len(caplog.messages) == 1
    assert there(tmp_path) == ["a.gz", "a.gz.sha256"]


def test_a_later_download_must_be_the_same_as_the_first(file, server, tmp_path):
    fetch(unknown(file), tmp_path).unlink()
    server.files["/a.gz"] = CONTENT + b"new"
    with pytest.raises(DataError, match="another file came"):
        fetch(unknown(file), tmp_path)
    assert there(tmp_path) == ["a.gz.sha256"]


def test_without_any_checksum_nothing_is_left_for_the_next_call(file, server, tmp_path):
    server.cuts["/a.gz"] = [131_072, 0]
    with pytest.raises(DataError, match="the connection broke"):
        fetch(unknown(file), tmp_path)
    assert there(tmp_path) == []


def test_an_interrupted_download_leaves_nothing_under_the_final_name(file, tmp_path):
    def stop(_, done, __):
        if done > 200_000:
            raise KeyboardInterrupt

    with watched(stop), pytest.raises(KeyboardInterrupt):
        fetch(file, tmp_path)
    assert there(tmp_path) == [".a.gz.part"]
    assert fetch(file, tmp_path).read_bytes() == CONTENT


def test_what_a_killed_process_left_behind_is_removed_after_a_day(file, tmp_path):
    for name, hours in ((".a.gz-old.part", 25), (".a.gz-young.part", 1)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (time.time() - 3600 * hours,) * 2)
    fetch(file, tmp_path)
    assert there(tmp_path) == [".a.gz-young.part", "a.gz"]


def test_a_folder_that_cannot_be_made_is_named(file, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"nothing can be kept in .*file.*: (Not a directory|File exists)"):
        fetch(file, tmp_path / "file" / "deep")


def test_a_full_disk_leaves_nothing_under_the_final_name(file, tmp_path):
    resource = pytest.importorskip("resource", reason="limits of files are known on POSIX only")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(DataError, match=r"a\.gz cannot be written to the cache: File too large"):
            fetch(file, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert there(tmp_path) == [".a.gz.part"]
    assert fetch(file, tmp_path).read_bytes() == CONTENT


SCRIPT = """
import sys
from pathlib import Path
from coterie.data.publishers.downloading import fetch
from coterie.data.publishers.listing import File
print(fetch(File("a.gz", (sys.argv[1],), sys.argv[2]), Path(sys.argv[3])).stat().st_size)
"""


def started(file, folder):
    command = [sys.executable, "-c", SCRIPT, file.addresses[0], SHA256, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def slow(server):
    """Answers that stop after 300,000 bytes until the event is set."""
    go_on = threading.Event()

    def halting(request, content):
        start = int((request.headers.get("Range") or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        request.send_response(206 if start else 200)
        request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        request.wfile.write(content[start:300_000])
        go_on.wait(30)
        request.wfile.write(content[max(start, 300_000) :])

    server.answers["/a.gz"] = halting
    yield go_on
    go_on.set()


def until_it_grows(part):
    end = time.monotonic() + 30
    while not (part.exists() and part.stat().st_size) and time.monotonic() < end:
        time.sleep(0.01)
    return part.stat().st_size


@pytest.mark.network
def test_of_two_processes_one_downloads_and_the_other_waits(file, server, slow, tmp_path):
    pytest.importorskip("fcntl", reason="there are locks on POSIX only")
    first = started(file, tmp_path)
    until_it_grows(tmp_path / ".a.gz.part")
    told = []

    def watch(*now):
        told.append(now)
        slow.set()  # the first goes on when the second waits

    with watched(watch):
        assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert first.communicate(timeout=60)[0] == f"{len(CONTENT)}\n"
    assert server.asked == [("/a.gz", None)]
    assert {what for what, _, _ in told} == {"waiting for another process that makes a.gz"}
    assert told[-1][1:] == (0, 0)  # whoever watches knows that the waiting is over
    assert there(tmp_path) == ["a.gz"]


@pytest.mark.network
def test_the_download_of_a_killed_process_is_taken_up_where_it_stopped(file, server, slow, tmp_path):
    pytest.importorskip("fcntl", reason="there are locks on POSIX only")
    first = started(file, tmp_path)
    until_it_grows(tmp_path / ".a.gz.part")
    first.kill()
    first.communicate(timeout=60)
    there_already = (tmp_path / ".a.gz.part").stat().st_size
    slow.set()
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert server.asked == [("/a.gz", None), ("/a.gz", f"bytes={there_already}-")]
    assert there(tmp_path) == ["a.gz"]


@pytest.mark.network
def test_without_locks_two_processes_download_a_file_at_the_same_time(file, server, tmp_path, monkeypatch):
    monkeypatch.setattr(making, "_taken", lambda *_: None)
    server.meeting = threading.Barrier(2)  # neither gets an answer before both have asked
    (tmp_path / ".a.gz.part").write_bytes(CONTENT[:1000])  # which only one of them can have
    both = [threading.Thread(target=fetch, args=(file, tmp_path)) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(60)
    assert sorted(server.asked, key=str) == [("/a.gz", "bytes=1000-"), ("/a.gz", None)]
    assert there(tmp_path) == ["a.gz"]
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


def test_a_lock_that_is_held_for_too_long_is_not_waited_for(file, server, tmp_path, monkeypatch, caplog):
    fcntl = pytest.importorskip("fcntl", reason="there are locks on POSIX only")
    monkeypatch.setattr(making, "_PATIENCE", 0.0)
    with (tmp_path / ".a.gz.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert "has been held for an hour; going on without it" in caplog.text
    assert there(tmp_path) == [".a.gz.lock", "a.gz"]


def test_nothing_that_downloads_is_loaded_before_something_is_downloaded():
    code = "import sys; from coterie.data import load; load('blobs'); print({'pooch', 'requests'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "set()\n", done.stderr
