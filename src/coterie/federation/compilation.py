"""Compiles functions, counts and times JAX compilations, and sets up the compilation cache on disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from coterie.threads import start_jax

P = ParamSpec("P")
T = TypeVar("T")

_COMPILED = "/jax/core/compile/backend_compile_duration"


@dataclass(frozen=True)
class Compilations:
    """Number of compilations in this process, and the seconds that they took."""

    count: int
    seconds: float


class _Counter:
    """Counts the compilations that JAX reports. One per process, as JAX reports those of the whole process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listening = False
        self.count = 0
        self.seconds = 0.0

    def listen(self) -> None:
        import jax.monitoring

        with self._lock:
            if not self._listening:
                jax.monitoring.register_event_duration_secs_listener(self._on_event)
                self._listening = True

    def _on_event(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == _COMPILED:
            with self._lock:
                self.count += 1
                self.seconds += duration_secs


_COUNTER = _Counter()


def compilations() -> Compilations:
    """Compilations since the first call of `prepare`."""
    return Compilations(_COUNTER.count, _COUNTER.seconds)


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """`jax.jit(function)`, for positional arguments; it also runs with JAX_DISABLE_JIT, for debugging."""
    import jax
    import jax.numpy as jnp

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if jax.config.values["jax_disable_jit"]:
            # Not traced, so NumPy arrays would stay NumPy arrays, which loops that JAX traces cannot index.
            args = jax.tree_util.tree_map(jnp.asarray, args)
        return function(*args, **kwargs)

    made: Callable[P, T] = jax.jit(run)
    return made


def cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # systems other than Linux


def prepare() -> None:
    """Start counting, and set the compilation cache to the user's cache folder unless JAX has one already."""
    import jax

    start_jax()
    _COUNTER.listen()
    if jax.config.values["jax_compilation_cache_dir"] is None and os.environ.get("COTERIE_NO_CACHE") is None:
        root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        try:
            folder = Path(root) / "coterie" / "compiled"
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:  # no home folder, or a full or read-only disk: work without a cache
            return
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
