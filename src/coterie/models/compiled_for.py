"""The kind of device that layers are compiled for.

Layers have two forms where one form is slow on the other kind of device: for CPUs and for GPUs. The form is chosen when
a function is traced, and does not depend on the device on which it runs, so that the form for GPUs can be tested on a
CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_GPU: ContextVar[bool] = ContextVar("gpu", default=False)


def for_gpu() -> bool:
    """Whether the function that is being traced will run on a GPU."""
    return _GPU.get()


@contextmanager
def compiled_for(*, gpu: bool) -> Iterator[None]:
    """A context in which functions are traced for a GPU, or for a CPU."""
    before = _GPU.set(gpu)
    try:
        yield
    finally:
        _GPU.reset(before)
