"""`Pool`: all images of a data set in one array, before they are partitioned among clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data.cache import decoded
from coterie.data.catalog import CATALOG, Images
from coterie.data.federated import FederatedData, Index
from coterie.data.files import obtain
from coterie.data.partition import assemble
from coterie.errors import DataError, SpecError
from coterie.types import Array

_BLOCK = 256  # 256·255² is less than 2²⁴: sums of squares over a block are exact in float32


@dataclass(frozen=True, eq=False)
class Pool:
    """All images of a data set, training images first.

    Attributes:
        name: Name of the data set.
        x: (images, *shape).
        y: (images,) labels.
        train: Number of training images.
        source: Where the images come from, in a sentence.
        classes: Number of classes.
        normalize: Published mean and standard deviation in units of stored pixels, 0..255, if there are any.
        columns: More integers per image, such as its writer.
        names: Names that the integers of a column stand for, if there are names.
    """

    name: str
    x: Array
    y: Array
    train: int
    source: str
    classes: int
    normalize: tuple[Any, Any] | None
    columns: Mapping[str, Array] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def labels(self) -> Array:
        """Labels of the training images."""
        return self.y[: self.train]

    @property
    def test_labels(self) -> Array:
        """Labels of the test images."""
        return self.y[self.train :]

    def labeled(self, column: str, classes: int) -> Pool:
        """Return the same images with a column as labels."""
        if column not in self.columns:
            raise SpecError(f"There are no {column} labels in {self.source}; use the publisher's files")
        return replace(self, y=self.columns[column], classes=classes)

    def names_of(self, column: str, numbers: Sequence[str]) -> list[str]:
        """The names that numbers of a column stand for, or the numbers with leading zeros."""
        if column in self.names:
            return [self.names[column][int(number)] for number in numbers]
        width = len(str(self.columns[column].max()))
        return [number.zfill(width) for number in numbers]

    def per_pixel(self, count: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Mean, and standard deviation plus 0.001, of each pixel over the first `count` images."""
        total = np.zeros(self.x.shape[1:])
        squares = np.zeros(self.x.shape[1:])
        for start in range(0, count, _BLOCK):
            block = self.x[start : min(count, start + _BLOCK)].astype(np.float32)
            total += block.sum(axis=0)
            block *= block
            squares += block.sum(axis=0)
        mean = total / count
        deviation = np.sqrt(np.maximum(0, squares / count - mean**2))
        return mean.astype(np.float32), (deviation + 0.001).astype(np.float32)

    def federated(
        self, fit: Index, tested: Index | None = None, *, normalize: tuple[Any, Any] | None = None, **more: Any
    ) -> FederatedData:
        """Create federated data from these images, without copying them.

        Args:
            fit: Images of each client.
            tested: Test images of each client, numbered from 0; None: each client's images are split.
            normalize: Mean and standard deviation; None: the published ones.
            more: Other arguments of `partition.assemble`.
        """
        if tested is not None:
            tested = Index(tested.order + self.train, tested.offsets)
        return assemble(
            self.name,
            (self.x, self.y),
            fit,
            tested=tested,
            classes=self.classes,
            normalize=self.normalize if normalize is None else normalize,
            source=self.source,
            **more,
        )


def pool(name: str) -> Pool:
    """The images of a data set in the catalog, from the archive or from the publisher's files."""
    files = CATALOG[name].files[0]
    images = files.images
    assert images is not None
    origin = obtain(files)
    content = decoded(files.key, origin.paths, origin.reader())
    if content.x.shape[1:] != images.shape:
        path = origin.paths[0]
        raise DataError(f"{path}: images of {files.title} have shape {images.shape}, got {content.x.shape[1:]}")
    return Pool(
        name,
        content.x,
        content.y,
        content.train,
        origin.checked(content.digests).describe((content.train, len(content.y) - content.train)),
        images.classes,
        _in_stored_units(images),
        content.columns,
        content.names,
    )


def _in_stored_units(images: Images) -> tuple[Any, Any] | None:
    """Published mean and deviation in units of stored pixels, 0..255."""
    if not images.mean:
        return None
    if len(images.mean) == 1:
        return 255 * images.mean[0], 255 * images.deviation[0]
    return 255 * np.asarray(images.mean, np.float32), 255 * np.asarray(images.deviation, np.float32)
