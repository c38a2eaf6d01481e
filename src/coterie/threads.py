"""Number of threads of BLAS, OpenMP and XLA, fixed so that results do not depend on the number of cores."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from functools import lru_cache

#: Environment variables from which XLA reads its number of threads; the first one takes precedence.
_XLA_THREADS = ("PJRT_NPROC", "NPROC")
_N_XLA_THREADS = "2"


def one_thread() -> AbstractContextManager[object]:
    """A context in which BLAS and OpenMP use one thread each, for computations in NumPy and SciPy.

    With several threads, the order of summation, and so the last bits of a result, depend on the number of cores. On
    a busy machine threads also wait for each other: a matrix product of 0.3 s took 9 s.
    """
    import scipy.linalg  # noqa: F401  # SciPy has its own BLAS, which must be loaded before it can be limited
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    limits: AbstractContextManager[object] = threadpool_limits(1)
    return limits


@lru_cache(maxsize=1)
def start_jax() -> None:
    """Start JAX with a fixed number of XLA threads.

    XLA splits products and sums over examples by its number of threads and adds the parts. With the same number of
    threads on every machine, results have the same bytes. This has no effect if JAX was used before Coterie, or if the
    user has set PJRT_NPROC.
    """
    import jax

    # A call runs in the calling thread, so that a backend can run several calls in parallel.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if _XLA_THREADS[0] in os.environ:
        return
    before = os.environ.get(_XLA_THREADS[1])
    os.environ.update(dict.fromkeys(_XLA_THREADS, _N_XLA_THREADS))
    try:
        jax.devices()
    finally:
        for name in _XLA_THREADS:
            del os.environ[name]
        if before is not None:
            os.environ[_XLA_THREADS[1]] = before
