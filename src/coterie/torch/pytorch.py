"""PyTorch, loaded when it is used: it is an extra, and large."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coterie.errors import SpecError

#: PyTorch has one generator for the whole process.
_GENERATOR = threading.RLock()


def pytorch() -> Any:
    """The package itself, or an error that says how to get it."""
    try:
        import torch
    except ImportError as fault:
        raise SpecError("PyTorch's modules need an extra: pip install 'coterie[torch]'") from fault
    return torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """PyTorch's generator started from this seed, and left as it was before."""
    torch = pytorch()
    with _GENERATOR, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch on one thread: it splits sums by the number of its threads, and the bytes would depend on the machine."""
    torch = pytorch()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
