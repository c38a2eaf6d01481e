"""SIGINT and SIGTERM at any time: one line on stderr, the exit code of shells, no traceback. Real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from coterie.cli import signals

pytestmark = pytest.mark.slow

LONG = ["run", "--data", "blobs", "--set", "data.clients=8", "--set", "data.samples=20", "--rounds", "100000"]
LONG += ["--set", "run.evaluate_every=100", "--out", "here"]

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture
def started():
    """Start `coterie run`; the process has reached `main` when this returns."""
    reset = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{reset}; from coterie.cli import main; print('started', flush=True); main()"
    processes = []

    def start():
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen([sys.executable, "-c", code, *LONG], text=True, **pipes))
        assert processes[-1].stdout.readline() == "started\n"
        return processes[-1]

    yield start
    for each in processes:
        if each.poll() is None:
            each.kill()
        each.communicate()


@pytest.mark.parametrize(
    ("number", "milliseconds"),
    [
        (signal.SIGINT, 50),
        (signal.SIGINT, 300),
        (signal.SIGINT, 1000),
        (signal.SIGTERM, 150),
        *(
            pytest.param(number, delay, marks=pytest.mark.exhaustive)
            for number in CODES
            for delay in (20, 100, 500, 700, 1500, 2000, 3000)
        ),
    ],
)
def test_a_signal_soon_after_the_start_gives_one_line(number, milliseconds, started, tmp_path):
    going = started()
    time.sleep(milliseconds / 1000)
    going.send_signal(number)
    out, message = going.communicate(timeout=60)
    assert going.returncode == CODES[number]
    assert out == ""
    first, *more = message.splitlines()
    assert first.startswith({signal.SIGINT: "Interrupted. ", signal.SIGTERM: "Terminated. "}[number])
    assert more == []
    saved = (tmp_path / "here" / "checkpoint").is_dir()  # a fast machine may be in the first rounds after a second
    assert first.endswith("coterie resume here" if saved else "othing was saved.")


def test_sigterm_saves_a_checkpoint_and_names_the_command_that_resumes(started, tmp_path):
    going = started()
    limit = time.monotonic() + 120
    while not (tmp_path / "here" / "checkpoint").is_dir():
        assert going.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.02)
    going.terminate()
    out, message = going.communicate(timeout=60)
    assert going.returncode == 143
    assert out == ""
    assert message == "Terminated. A checkpoint was saved. Continue with: coterie resume here\n"
    assert not (tmp_path / "here" / "summary.json").exists()


@pytest.fixture
def handler(monkeypatch):
    """The handler in a command, with the process exit replaced by an exception."""

    def leave(text):
        raise SystemExit(text)

    monkeypatch.setattr(signals, "_end", leave)
    for name, value in {"_phase": "command", "_received": None, "_raised": False}.items():
        monkeypatch.setattr(signals, name, value)
    return lambda: signals._handle(signal.SIGINT, sys._getframe(1))


def test_the_first_signal_raises_and_the_second_ends_the_process(handler):
    with pytest.raises(KeyboardInterrupt):
        handler()
    with pytest.raises(SystemExit):
        handler()


def test_a_signal_in_the_garbage_collection_of_a_run_is_repeated_until_it_can_be_raised(handler, monkeypatch):
    # JAX registers a callback with the garbage collector; Python ignores exceptions that are raised there.
    repeated = []
    monkeypatch.setattr(signals.signal, "setitimer", lambda timer, seconds: repeated.append(timer))
    namespace = {"handler": handler}
    exec(compile("def callback(): handler()", "/site-packages/jax/_src/lib/__init__.py", "exec"), namespace)
    with signals.during("run"):
        namespace["callback"]()
        assert repeated == [signal.ITIMER_REAL]
        with pytest.raises(KeyboardInterrupt):
            handler()


def test_a_signal_whose_exception_is_ignored_is_repeated(handler, monkeypatch):
    repeated = []
    monkeypatch.setattr(signals.signal, "setitimer", lambda timer, seconds: repeated.append(timer))
    monkeypatch.setattr(sys, "unraisablehook", signals._repeat_if_ignored)

    class Interrupted:
        def __del__(self):
            handler()

    Interrupted()  # Python ignores the KeyboardInterrupt that `__del__` raises
    assert repeated == [signal.ITIMER_REAL]
    with pytest.raises(KeyboardInterrupt):
        handler()
