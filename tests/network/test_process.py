"""Supervised processes."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from coterie.errors import FederationError, SpecError
from coterie.federation.network import launch, process
from coterie.federation.network.process import Process

pytestmark = pytest.mark.network

#: Says that it is there, then waits.
WAITS = "import sys, time; print('here', flush=True); time.sleep(60)"


@pytest.fixture
def started(tmp_path):
    """Creates and starts processes that run Python code, ready once the log has "here": started(code, **settings)."""
    made = []

    def create(code, *, timeout=20.0, **settings):
        log = tmp_path / f"{len(made)}.log"

        def ready():  # a long log may have been moved aside before it is read
            logs = (log, log.with_suffix(".old.log"))
            return any(each.exists() and "here" in each.read_text() for each in logs)

        made.append(Process("The process", [sys.executable, "-c", code], log, ready, **settings))
        made[-1].start(timeout)
        return made[-1]

    yield create
    for each in made:
        each.stop()


def wait_until(condition, seconds=20.0):
    """Wait for something in another process, which has no event to wait for."""
    never = threading.Event()
    assert any(condition() or never.wait(0.05) for _ in range(int(seconds / 0.05)))


def exists(pid):
    """Whether a process is there and not only waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_process_is_running_once_started_and_gone_once_stopped(started):
    one = started(WAITS)
    pid = one.pid
    assert one.is_running
    one.stop()
    assert not one.is_running
    assert one.pid is None
    assert not exists(pid)
    one.stop()  # nothing happens


def test_a_process_that_ends_is_an_error_with_the_end_of_its_log(started):
    with pytest.raises(FederationError, match=r"The process ended\. The end of its log .*\nno such setting"):
        started("import sys; sys.exit('no such setting')")


def test_a_process_that_is_not_ready_in_time_is_stopped(started, tmp_path):
    with pytest.raises(FederationError, match=r"not ready after 0\.5 seconds") as caught:
        started("import os, time; print(os.getpid(), flush=True); time.sleep(60)", timeout=0.5)
    assert not exists(str(caught.value).splitlines()[-1])


def test_a_program_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(FederationError, match="ended"):
        Process("The process", ["/no/such/program"], tmp_path / "log", lambda: False).start(20)


def test_a_failure_before_the_start_is_an_error_with_its_text(started):
    def fails():
        raise ValueError("no key")

    with pytest.raises(FederationError, match="no key"):
        started(WAITS, before_start=fails)


def test_a_process_that_ignores_sigterm_is_killed(started, monkeypatch):
    monkeypatch.setattr(process, "_GRACE", 0.2)
    one = started("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + WAITS)
    pid = one.pid
    one.stop()
    assert not exists(pid)


def test_a_process_that_is_killed_is_restarted(started, monkeypatch):
    monkeypatch.setattr(process, "_FIRST_PAUSE", 0.01)
    one = started(WAITS, restart=True)
    first = one.pid
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: one.restarts == 1 and one.is_running)
    assert one.pid != first


def test_a_process_is_not_restarted_unless_wanted(started):
    one = started(WAITS)
    os.kill(one.pid, signal.SIGKILL)
    wait_until(lambda: not one.is_running)
    assert one.restarts == 0


def test_a_long_log_is_moved_aside(started, monkeypatch):
    monkeypatch.setattr(process, "_MAX_LOG_BYTES", 1000)
    one = started("print('x' * 2000);" + WAITS)
    old = one.log.with_suffix(".old.log")
    wait_until(lambda: old.exists() and one.log.stat().st_size < 1000)
    assert "x" * 2000 in old.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="uses a feature of the Linux kernel")
def test_no_process_is_left_behind_when_its_parent_is_killed(tmp_path):
    code = f"""
        import sys, time
        from pathlib import Path
        from coterie.federation.network.process import Process
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        one = Process("Child", command, Path({str(tmp_path)!r}) / "log", lambda: True)
        one.start()
        print(one.pid, flush=True)
        time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert exists(pid)
        parent.kill()
    wait_until(lambda: not exists(pid))


def test_a_missing_program_of_flower_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(SpecError, match=r"pip install 'coterie\[network\]'"):
        launch._flower("flower-superlink")


def test_a_supernode_without_its_key_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"No file .*key"):
        launch.SuperNode(tmp_path, "host:1", private_key=tmp_path / "key", root_certificates=tmp_path / "ca")
