"""How JAX is started: so that the bytes it computes do not depend on the number of cores."""

from __future__ import annotations

import os
from functools import lru_cache

#: What XLA reads, the first before the second, to learn among how many threads it may split one product or sum.
_THREADS = ("PJRT_NPROC", "NPROC")


@lru_cache(maxsize=1)
def start() -> None:
    """Start JAX with one thread for each compiled call; federations run several calls at a time instead.

    XLA splits products, and sums over examples, among its threads, whatever their size, and adds the parts up in
    another order than one thread would. Nothing can be done where JAX was in use before Coterie; and whoever sets
    PJRT_NPROC decides.
    """
    import jax

    if _THREADS[0] in os.environ:
        return
    before = os.environ.get(_THREADS[1])
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        jax.devices()
    finally:
        for name in _THREADS:
            del os.environ[name]
        if before is not None:
            os.environ[_THREADS[1]] = before
