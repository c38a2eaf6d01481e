"""Status of a run, from its files: finished, running, or interrupted."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie.runs.record_files import LOCK, SUMMARY

#: Seconds by which two clocks of one machine may differ: the time of boot is known to the second.
_SLACK = 2.0


def status_of(folder: Path, summary: Mapping[str, Any]) -> str:
    """`running` or `interrupted` for a run without a summary, otherwise the status in its summary.

    A run that failed and was resumed has its old summary until it ends; it is running.
    """
    writing = being_written(folder)
    status = str(summary.get("status") or "")
    if status and not (writing and status != "done" and _older_than_lock(folder)):
        return status
    return "running" if writing else "interrupted"


def resume_command(folder: Path, status: str, *, served: bool) -> str:
    """The command that continues a run that ended early; empty for other runs.

    Args:
        folder: Its record.
        status: Its status.
        served: Whether its clients are on other machines (`coterie serve`).
    """
    if status not in ("interrupted", "failed", "diverged"):
        return ""
    return shlex.join(["coterie", *(("serve", "--resume") if served else ("resume",)), str(folder)])


def being_written(folder: Path) -> bool:
    """Whether a process of this machine writes the record: its id is in the lock file, and it is alive.

    No lock is taken: a run that begins at that moment would be refused.
    """
    file = folder / LOCK
    try:
        pid, locked = int(file.read_bytes()[:20]), file.stat().st_mtime
    except (OSError, ValueError):
        return False
    if os.name == "nt":
        return True  # os.kill would end the process there
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    except OverflowError:
        return False
    return not _ended_or_another(pid, locked)


def _ended_or_another(pid: int, locked: float) -> bool:
    """Whether a process has ended and waits for its parent, or is younger than the lock: its id was used again.

    Only Linux tells; False elsewhere.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines() if line[:5] == "btime")
        started = int(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return fields[0] in "ZX" or started > locked + _SLACK
    return False


def _older_than_lock(folder: Path) -> bool:
    """Whether the summary was written before the process that holds the lock took it."""
    try:
        return (folder / SUMMARY).stat().st_mtime_ns < (folder / LOCK).stat().st_mtime_ns
    except OSError:
        return False
