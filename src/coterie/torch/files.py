"""State dicts of PyTorch as files."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np

from coterie.torch.pytorch import pytorch
from coterie.types import Array


def state_dict_bytes(arrays: Mapping[str, Array]) -> bytes:
    """The bytes of a file from which `torch.load` reads a dict of tensors.

    Args:
        arrays: Name → array; slashes in names become dots.

    Raises:
        SpecError: If PyTorch is not installed.
    """
    torch = pytorch()
    buffer = io.BytesIO()
    torch.save({name.replace("/", "."): torch.from_numpy(np.array(array)) for name, array in arrays.items()}, buffer)
    return buffer.getvalue()
