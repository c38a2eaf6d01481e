"""Transforms of a client's images, rotation and inversion, applied when a batch is gathered.

Each function takes a batch (rows, height, width) or (rows, height, width, channels) and uses slicing, `swapaxes` and
arithmetic only, so that it works on NumPy arrays and on traced arrays. For NumPy the result may be a view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coterie.errors import SpecError, unknown


def identity(x: Any) -> Any:
    """Return the images unchanged."""
    return x


def rot90(x: Any) -> Any:
    """Rotate the images by 90° counterclockwise, as `numpy.rot90` does."""
    return x.swapaxes(1, 2)[:, ::-1]


def rot180(x: Any) -> Any:
    """Rotate the images by 180°."""
    return x[:, ::-1, ::-1]


def rot270(x: Any) -> Any:
    """Rotate the images by 270° counterclockwise."""
    return x[:, ::-1].swapaxes(1, 2)


def invert(x: Any) -> Any:
    """Invert the images: 255 - x for uint8, 1 - x for floats, which must be in [0, 1]."""
    return 255 - x if x.dtype == "uint8" else 1 - x


def invert16(x: Any) -> Any:
    """Invert images with gray levels 0..16, such as scikit-learn's digits: 16 - x."""
    return 16 - x


#: Name → function on a batch of images.
TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "identity": identity,
    "rot90": rot90,
    "rot180": rot180,
    "rot270": rot270,
    "invert": invert,
    "invert16": invert16,
}

#: Transforms that need square images.
ROTATIONS = ("rot90", "rot180", "rot270")


def apply(name: str, x: Any) -> Any:
    """Apply the transform of this name to the batch `x`."""
    if name not in TRANSFORMS:
        raise SpecError(unknown("transform", name, TRANSFORMS))
    return TRANSFORMS[name](x)
