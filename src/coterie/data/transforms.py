"""What is done to a client's images when a batch is gathered: turned or inverted.

Each function takes a batch (rows, height, width) or (rows, height, width, channels) and uses slicing, `swapaxes` and
arithmetic only, so that it works on NumPy arrays and on traced arrays alike. NumPy arrays may come back as views.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coterie.errors import SpecError, unknown


def identity(x: Any) -> Any:
    """The images as they are."""
    return x


def rot90(x: Any) -> Any:
    """The images turned by 90° against the clock, as `numpy.rot90` turns them."""
    return x.swapaxes(1, 2)[:, ::-1]


def rot180(x: Any) -> Any:
    """The images turned by 180°."""
    return x[:, ::-1, ::-1]


def rot270(x: Any) -> Any:
    """The images turned by 270° against the clock."""
    return x[:, ::-1].swapaxes(1, 2)


def invert(x: Any) -> Any:
    """Black for white: 255 - x for uint8, 1 - x for floats, which are then taken to lie in [0, 1]."""
    return 255 - x if x.dtype == "uint8" else 1 - x


def invert16(x: Any) -> Any:
    """Black for white in images whose gray levels are 0..16, such as scikit-learn's digits: 16 - x."""
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

#: Those that need images, that is, rows of height and width.
TURNS = ("rot90", "rot180", "rot270")


def apply(name: str, x: Any) -> Any:
    """The batch `x` under the transform of this name."""
    if name not in TRANSFORMS:
        raise SpecError(unknown("transform", name, TRANSFORMS))
    return TRANSFORMS[name](x)
