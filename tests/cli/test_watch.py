"""`coterie watch` and `coterie run --watch`: what they print, and processes beside a real run."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from coterie.cli import watch

needs_extra = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import starlette, uvicorn"], capture_output=True).returncode != 0,
    reason="needs the extra watch",
)


def get(address, path="/"):
    parts = urlsplit(address)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=20)
    connection.request("GET", f"{path}?{parts.query}")
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def refused(address):
    try:
        get(address)
    except OSError:
        return True
    return False


def wait_until(condition, seconds=20):
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:
        time.sleep(0.02)
    return condition()


def test_a_folder_that_does_not_exist_is_an_error_that_says_what_to_do(coterie):
    result = coterie("watch", "nowhere")
    assert result.exit_code == 2
    assert "The folder nowhere does not exist" in result.stderr
    assert "--wait" in result.stderr


def test_a_file_is_an_error(coterie):
    Path("spec.toml").touch()
    result = coterie("watch", "spec.toml")
    assert result.exit_code == 2
    assert "spec.toml is a file; give the folder of a record" in result.stderr


@pytest.mark.parametrize("command", [["watch", "--wait"], ["run", "--rounds", "1", "--watch"]])
def test_a_missing_extra_is_named_before_anything_begins(coterie, monkeypatch, command):
    for name in ("coterie.reports.live.server", "coterie.reports.live.app"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)  # an import of it raises ImportError
    result = coterie(*command)
    assert result.exit_code == 2
    assert "Live pages need an extra: pip install 'coterie[watch]'" in result.stderr
    assert not Path("runs").exists()


@needs_extra
@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_out_of_range_is_an_error(coterie, port):
    result = coterie("watch", "--wait", "--port", port)
    assert result.exit_code == 2
    assert f"--port must be between 0 and 65535, got {port}" in result.stderr


@pytest.mark.parametrize(
    ("executable", "said"),
    [("false", "The live page has ended (no message); the run goes on"), ("/nowhere", "cannot be served")],
)
def test_a_server_that_fails_is_reported_once_and_does_not_reach_the_run(monkeypatch, capsys, executable, said):
    monkeypatch.setattr(sys, "executable", executable)
    with watch.beside(Path("a run"), quiet=False):
        readers = [each for each in threading.enumerate() if getattr(each, "_target", None) is watch._report]
        assert wait_until(lambda: not any(each.is_alive() for each in readers))
    error = capsys.readouterr().err
    assert error.count("the run goes on") == 1
    assert said in re.sub(r"\s+", " ", error)


@needs_extra
def test_an_error_of_the_run_is_not_hidden_and_the_server_ends(monkeypatch):
    started = []
    original = subprocess.Popen

    def popen(*args, **kwargs):
        started.append(original(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(watch.subprocess, "Popen", popen)
    with pytest.raises(ZeroDivisionError), watch.beside(Path("a"), quiet=True):
        raise ZeroDivisionError
    assert started[0].poll() == 0


@needs_extra
@pytest.mark.exhaustive
@pytest.mark.network
def test_a_run_is_followed_from_before_its_beginning_until_ctrl_c(process, tiny):
    served = process("watch", "runs", "--wait", "--json")
    address = json.loads("".join(iter(served.stdout.readline, "}\n")) + "}")["address"]
    assert '"exists":false' in get(address)[1]
    run = process("run", *tiny, "--rounds", 40, "--out", "runs/one", "--quiet")
    parts = urlsplit(address)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=60)
    connection.request("GET", f"/events?{parts.query}")
    answer, seen = connection.getresponse(), []
    while not seen or seen[-1][0] != "done":
        line = answer.readline()
        assert line
        if line.startswith(b"data: ") and (rows := json.loads(line[6:]).get("runs")):
            seen.append((rows[0]["status"], rows[0]["round"]))
    assert seen[-1] == ("done", 40)
    assert seen == sorted(seen, key=lambda each: each[1])
    assert run.wait(30) == 0
    served.send_signal(signal.SIGINT)
    assert answer.read().endswith(b"event: end\ndata: {}\n\n")  # open pages are told
    connection.close()
    assert served.wait(15) == 0
    assert "Traceback" not in served.stderr.read()


@needs_extra
@pytest.mark.exhaustive
@pytest.mark.network
def test_run_watch_serves_the_page_until_the_run_has_ended(process, tiny):
    # Without compiled models in a cache, the run takes some seconds before its first round.
    run = process("run", *tiny, "--rounds", 30, "--out", "runs/one", "--watch", "--json")
    found = re.search(r"Live page: (\S+)", run.stderr.readline())
    address = found[1]
    status, text = get(address)
    assert status == 200
    assert 'id="report-data"' in text
    out, error = run.communicate(timeout=60)
    assert run.returncode == 0
    assert json.loads(out)["status"] == "done"
    assert "live page" not in error
    assert refused(address)


@needs_extra
@pytest.mark.slow
@pytest.mark.network
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_the_server_of_a_killed_run_ends_with_it(process, tiny):
    run = process("run", *tiny, "--rounds", 5000, "--out", "runs/one", "--watch", "--json")
    address = re.search(r"Live page: (\S+)", run.stderr.readline())[1]
    assert get(address)[0] == 200
    run.kill()
    assert wait_until(lambda: refused(address))
