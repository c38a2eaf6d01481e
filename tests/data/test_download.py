"""Downloads from a local server, and their failures."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import threading
import time

import pytest

from coterie.data import cache_writing
from coterie.data.cache_writing import report_progress_to
from coterie.data.catalog import Download
from coterie.data.download import fetch
from coterie.errors import DataError

CONTENT = bytes(range(256)) * 2000  # 512,000 bytes: eight chunks
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.fixture
def file(server):
    server.files["/a.gz"] = CONTENT
    return Download("a.gz", (f"{server.address}/a.gz",), SHA256)


def without_checksum(file):
    return Download(file.name, file.addresses, None)


def content(folder):
    """Names of the files in a folder, without locks, which stay."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock") if folder.exists() else []


def test_a_complete_file_has_its_name_and_nothing_is_printed(file, tmp_path, capfd):
    path = fetch(file, tmp_path / "cache" / "deep")
    assert path == tmp_path / "cache" / "deep" / "a.gz"
    assert path.read_bytes() == CONTENT
    assert content(path.parent) == ["a.gz"]
    assert capfd.readouterr() == ("", "")


def test_other_kinds_of_checksums_are_supported(file, tmp_path):
    fetch(Download(file.name, file.addresses, f"md5:{hashlib.md5(CONTENT).hexdigest()}"), tmp_path)
    assert content(tmp_path) == ["a.gz"]


def test_a_gzip_file_that_is_declared_as_an_encoding_is_not_unpacked(server, tmp_path):
    def encoded(request, content):
        request.send_response(200)
        request.send_header("Content-Encoding", "x-gzip")
        server.body(request, content)

    content = gzip.compress(CONTENT)
    server.files["/a.gz"], server.answers["/a.gz"] = content, encoded
    known = f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert fetch(Download("a.gz", (f"{server.address}/a.gz",), known), tmp_path).read_bytes() == content


def test_without_a_checksum_the_next_address_starts_again(server, tmp_path):
    server.files["/a.gz"], server.files["/b.gz"] = CONTENT, CONTENT[::-1]
    server.cuts["/a.gz"] = [131_072, 0]
    addresses = (f"{server.address}/a.gz", f"{server.address}/b.gz")
    assert fetch(Download("a.gz", addresses, None), tmp_path).read_bytes() == CONTENT[::-1]


def test_progress_is_reported(file, tmp_path):
    reports = []
    with report_progress_to(lambda *now: reports.append(now)):
        fetch(file, tmp_path)
    assert {(name, total) for name, _, total in reports} == {("downloading a.gz", len(CONTENT))}
    done = [bytes_there for _, bytes_there, _ in reports]
    assert done == sorted(done)
    assert len(done) >= 8
    assert reports[-1] == ("downloading a.gz", len(CONTENT), len(CONTENT))
    fetch(file, tmp_path / "again")
    assert len(reports) == len(done)  # no callback any more


def test_a_file_with_a_wrong_checksum_is_rejected_and_removed(file, server, tmp_path):
    server.files["/a.gz"] = CONTENT[:-1] + b"!"
    with pytest.raises(DataError, match=r"the file is not the published one: its sha256 is [0-9a-f]{64}") as caught:
        fetch(file, tmp_path)
    assert SHA256.removeprefix("sha256:") in str(caught.value)
    assert content(tmp_path) == []


def test_the_next_address_starts_from_the_beginning(file, server, tmp_path):
    server.files["/b.gz"] = CONTENT[:-1] + b"!"
    addresses = tuple(f"{server.address}/{name}.gz" for name in ("b", "missing", "a"))
    assert fetch(Download("a.gz", addresses, SHA256), tmp_path).read_bytes() == CONTENT
    assert server.asked == [("/b.gz", None), ("/missing.gz", None), ("/a.gz", None)]


def test_the_error_says_what_went_wrong_at_each_address(file, server, tmp_path):
    addresses = (f"{server.address}/missing", "http://127.0.0.1:9/closed")
    with pytest.raises(DataError) as caught:
        fetch(Download("a.gz", addresses, SHA256), tmp_path)
    assert str(caught.value) == (f"{addresses[0]}: the server answers 404 Not Found; {addresses[1]}: no connection")
    assert content(tmp_path) == []


def test_a_broken_download_continues_where_it_stopped(file, server, tmp_path):
    server.cuts["/a.gz"] = [200_000, 100_000]
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    # Received bytes are not sent again. The client may have lost the last bytes in its buffers, so the second request
    # starts at or before the break.
    starts = [int(wanted.removeprefix("bytes=").removesuffix("-")) for _, wanted in server.asked[1:]]
    assert len(starts) == 2
    assert 0 < starts[0] <= 200_000 < starts[1] <= 300_000
    assert server.sent < 1.5 * len(CONTENT)


def test_without_range_support_the_download_starts_again(file, server, tmp_path):
    server.ranges, server.cuts["/a.gz"] = False, [300_000]
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert server.sent == 300_000 + len(CONTENT)


def test_an_attempt_without_progress_ends_the_download_and_the_next_call_continues(file, server, tmp_path):
    server.cuts["/a.gz"] = [131_072, 0]  # the second attempt receives nothing
    with pytest.raises(DataError, match="the connection broke"):
        fetch(file, tmp_path)
    assert content(tmp_path) == [".a.gz.part"]
    kept = (tmp_path / ".a.gz.part").read_bytes()
    assert 0 < len(kept) <= 131_072
    assert CONTENT.startswith(kept)
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == ("/a.gz", f"bytes={len(kept)}-")
    assert content(tmp_path) == ["a.gz"]


def test_the_number_of_attempts_is_limited(file, server, tmp_path):
    server.ranges, server.cuts["/a.gz"] = False, [70_000] * 50
    with pytest.raises(DataError, match="the connection broke, 10 times"):
        fetch(file, tmp_path)
    assert len(server.asked) == 10


def test_a_partial_file_of_another_version_is_detected_by_the_checksum(file, server, tmp_path):
    (tmp_path / ".a.gz.part").write_bytes(b"x" * 1000)
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert [wanted for _, wanted in server.asked] == ["bytes=1000-", None]


def test_a_partial_file_longer_than_the_file_is_discarded(file, server, tmp_path):
    (tmp_path / ".a.gz.part").write_bytes(CONTENT + b"more")
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert [wanted for _, wanted in server.asked] == [f"bytes={len(CONTENT) + 4}-", None]


def test_a_wrong_range_is_not_appended(file, server, tmp_path):
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
            "the server sent a web page instead of the file",
        ),
        (
            lambda server: server.answers.update({"/a.gz": lambda request, _: request.send_error(503)}),
            "the server answers 503 Service Unavailable",
        ),
    ],
    ids=["empty", "page", "busy"],
)
def test_a_response_that_is_not_the_file_is_rejected(file, server, tmp_path, answer, text):
    answer(server)
    for asked in (file, without_checksum(file)):
        with pytest.raises(DataError, match=text):
            fetch(asked, tmp_path)
    assert content(tmp_path) == []


def test_without_a_published_checksum_that_of_the_first_download_is_stored(file, tmp_path, caplog):
    path = fetch(without_checksum(file), tmp_path)
    beside = tmp_path / "a.gz.sha256"
    assert beside.read_text() == f"{SHA256.removeprefix('sha256:')}  a.gz\n"  # as sha256sum -c reads it
    assert caplog.messages == [f"No checksum of a.gz is published; that of this first download is stored in {beside}"]
    path.unlink()
    fetch(without_checksum(file), tmp_path)
    assert len(caplog.messages) == 1
    assert content(tmp_path) == ["a.gz", "a.gz.sha256"]


def test_a_later_download_must_match_the_first(file, server, tmp_path):
    fetch(without_checksum(file), tmp_path).unlink()
    server.files["/a.gz"] = CONTENT + b"new"
    with pytest.raises(DataError, match="the file is not the published one"):
        fetch(without_checksum(file), tmp_path)
    assert content(tmp_path) == ["a.gz.sha256"]


def test_without_any_checksum_no_partial_file_is_kept(file, server, tmp_path):
    server.cuts["/a.gz"] = [131_072, 0]
    with pytest.raises(DataError, match="the connection broke"):
        fetch(without_checksum(file), tmp_path)
    assert content(tmp_path) == []


def test_an_interrupted_download_leaves_nothing_under_the_final_name(file, tmp_path):
    def stop(_, done, __):
        if done > 200_000:
            raise KeyboardInterrupt

    with report_progress_to(stop), pytest.raises(KeyboardInterrupt):
        fetch(file, tmp_path)
    assert content(tmp_path) == [".a.gz.part"]
    assert fetch(file, tmp_path).read_bytes() == CONTENT


def test_partial_files_of_killed_processes_are_removed_after_a_day(file, tmp_path):
    for name, hours in ((".a.gz-old.part", 25), (".a.gz-young.part", 1)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (time.time() - 3600 * hours,) * 2)
    fetch(file, tmp_path)
    assert content(tmp_path) == [".a.gz-young.part", "a.gz"]


def test_the_error_names_a_folder_that_cannot_be_created(file, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r".*file.* cannot be written: (Not a directory|File exists)"):
        fetch(file, tmp_path / "file" / "deep")


def test_a_full_disk_leaves_nothing_under_the_final_name(file, tmp_path):
    resource = pytest.importorskip("resource", reason="file size limits exist on POSIX only")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(DataError, match=r"a\.gz cannot be written to the cache: File too large"):
            fetch(file, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert content(tmp_path) == [".a.gz.part"]
    assert fetch(file, tmp_path).read_bytes() == CONTENT


SCRIPT = """
import sys
from pathlib import Path
from coterie.data.download import fetch
from coterie.data.catalog import Download
print(fetch(Download("a.gz", (sys.argv[1],), sys.argv[2]), Path(sys.argv[3])).stat().st_size)
"""


def started(file, folder):
    command = [sys.executable, "-c", SCRIPT, file.addresses[0], SHA256, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def slow(server):
    """Answers that stop after 300,000 bytes until the event is set."""
    resume = threading.Event()

    def halting(request, content):
        start = int((request.headers.get("Range") or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        request.send_response(206 if start else 200)
        request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        request.wfile.write(content[start:300_000])
        resume.wait(30)
        request.wfile.write(content[max(start, 300_000) :])

    server.answers["/a.gz"] = halting
    yield resume
    resume.set()


def until_it_grows(part):
    end = time.monotonic() + 30
    while not (part.exists() and part.stat().st_size) and time.monotonic() < end:
        time.sleep(0.01)
    return part.stat().st_size


@pytest.mark.network
def test_one_process_downloads_while_another_waits(file, server, slow, tmp_path):
    pytest.importorskip("fcntl", reason="this lock exists on POSIX only")
    first = started(file, tmp_path)
    until_it_grows(tmp_path / ".a.gz.part")
    reports = []

    def watch(*now):
        reports.append(now)
        slow.set()  # the first continues when the second waits

    with report_progress_to(watch):
        assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert first.communicate(timeout=60)[0] == f"{len(CONTENT)}\n"
    assert server.asked == [("/a.gz", None)]
    assert {what for what, _, _ in reports} == {"waiting for another process that writes a.gz"}
    assert reports[-1][1:] == (0, 0)  # the end of the wait is reported
    assert content(tmp_path) == ["a.gz"]


@pytest.mark.network
def test_the_download_of_a_killed_process_is_continued(file, server, slow, tmp_path):
    pytest.importorskip("fcntl", reason="this lock exists on POSIX only")
    first = started(file, tmp_path)
    until_it_grows(tmp_path / ".a.gz.part")
    first.kill()
    first.communicate(timeout=60)
    size_before = (tmp_path / ".a.gz.part").stat().st_size
    slow.set()
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert server.asked == [("/a.gz", None), ("/a.gz", f"bytes={size_before}-")]
    assert content(tmp_path) == ["a.gz"]


@pytest.mark.network
def test_without_locks_two_processes_download_independently(file, server, tmp_path, monkeypatch):
    monkeypatch.setattr(cache_writing, "_acquire", lambda *_: False)
    server.meeting = threading.Barrier(2)  # both requests arrive before either is answered
    (tmp_path / ".a.gz.part").write_bytes(CONTENT[:1000])  # only one of them can continue it
    both = [threading.Thread(target=fetch, args=(file, tmp_path)) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(60)
    assert sorted(server.asked, key=str) == [("/a.gz", "bytes=1000-"), ("/a.gz", None)]
    assert content(tmp_path) == ["a.gz"]
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


def test_waiting_for_a_lock_is_limited(file, server, tmp_path, monkeypatch, caplog):
    fcntl = pytest.importorskip("fcntl", reason="this lock exists on POSIX only")
    monkeypatch.setattr(cache_writing, "_PATIENCE", 0.0)
    with (tmp_path / ".a.gz.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert "has been held for an hour; continuing without it" in caplog.text
    assert content(tmp_path) == ["a.gz"]


def test_download_modules_are_imported_on_use():
    code = (
        "import sys; from coterie.data import load; load('blobs'); print({'requests', 'filelock'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "set()\n", done.stderr


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_planted_link_is_replaced_and_its_target_is_not_written(link, file, tmp_path):
    victim, folder = tmp_path / "victim", tmp_path / "cache"
    victim.write_bytes(b"precious")
    folder.mkdir()
    link(victim, folder / ".a.gz.part")
    assert fetch(file, folder).read_bytes() == CONTENT
    assert victim.read_bytes() == b"precious"
    assert not (folder / "a.gz").is_symlink()
