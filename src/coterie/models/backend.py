"""How JAX is started: so that the bytes it computes do not depend on the number of cores."""

from __future__ import annotations

import os
from functools import lru_cache

#: What XLA reads, the first before the second, to learn among how many threads it may split one product or sum.
_THREADS = ("PJRT_NPROC", "NPROC")
#: Among so many it splits, on every machine.
_PARTS = "2"


@lru_cache(maxsize=1)
def start() -> None:
    """Start JAX with a fixed number of threads for splitting; federations run several calls at a time beside.

    XLA splits products, and sums over examples, by the number of its threads, whatever their size, and adds the parts
    up: as many parts on one core as on many give the same bytes. Nothing can be done where JAX was in use before
    Coterie; and whoever sets PJRT_NPROC decides.
    """
    import jax

    # A call runs in the thread that makes it, beside the calls of other threads.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if _THREADS[0] in os.environ:
        return
    before = os.environ.get(_THREADS[1])
    os.environ.update(dict.fromkeys(_THREADS, _PARTS))
    try:
        jax.devices()
    finally:
        for name in _THREADS:
            del os.environ[name]
        if before is not None:
            os.environ[_THREADS[1]] = before
