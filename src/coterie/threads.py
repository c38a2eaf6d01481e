"""One thread for BLAS and OpenMP, for the matrices of the server and of plain works."""

from __future__ import annotations

from contextlib import AbstractContextManager


def one_thread() -> AbstractContextManager[object]:
    """Within it, BLAS and OpenMP use one thread each.

    Several add up in the order in which they happen to finish, so that the last bits depend on the number of cores; and
    on a machine that does other work they wait for each other: a product of 0.3 s was seen to take 9.
    """
    import scipy.linalg  # noqa: F401  # SciPy has a BLAS of its own, and what is loaded later would not be limited
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    limits: AbstractContextManager[object] = threadpool_limits(1)
    return limits
