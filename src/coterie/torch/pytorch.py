"""Lazy import of PyTorch, which is an optional dependency, and control of its seed and threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coterie.errors import SpecError

#: PyTorch has one random generator for the whole process.
_GENERATOR = threading.RLock()


def pytorch() -> Any:
    """The module `torch`.

    Raises:
        SpecError: If PyTorch is not installed.
    """
    try:
        import torch
    except ImportError as fault:
        raise SpecError("PyTorch modules need an extra: pip install 'coterie[torch]'") from fault
    return torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """A context in which PyTorch's generator is seeded; its state is restored afterward."""
    torch = pytorch()
    with _GENERATOR, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """A context in which PyTorch uses one thread, because the bytes of its sums depend on the number of threads."""
    torch = pytorch()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
