"""The images of a data set as one array, of which presets deal out numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data.decoded import decoded
from coterie.data.federated import FederatedData, Index
from coterie.data.known import IMAGES, Images
from coterie.data.partition import assemble
from coterie.data.sources import source
from coterie.errors import DataError, SpecError
from coterie.types import Array

_BLOCK = 256  # 256·255² is less than 2²⁴: sums of squares over a block are exact in float32


@dataclass(frozen=True, eq=False)
class Pool:
    """All images of a data set, those for training first.

    Attributes:
        images: What is known of the data set.
        x: (images, *shape).
        y: (images,) labels.
        train: How many are for training.
        source: Where they come from, in a sentence.
        classes: How many.
        columns: Further whole numbers, one for each image, such as its writer.
        names: What the numbers of a column stand for, where they stand for names.
    """

    images: Images
    x: Array
    y: Array
    train: int
    source: str
    classes: int
    columns: Mapping[str, Array] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def labels(self) -> Array:
        """Of the training images."""
        return self.y[: self.train]

    @property
    def test_labels(self) -> Array:
        """Of the test images."""
        return self.y[self.train :]

    def labeled(self, column: str, classes: int) -> Pool:
        """The same images with the numbers of a column as labels."""
        if column not in self.columns:
            raise SpecError(f"There are no {column} labels in {self.source}; take the publisher's files")
        return replace(self, y=self.columns[column], classes=classes)

    def called(self, column: str, numbers: Sequence[str]) -> list[str]:
        """What numbers of a column stand for: names, or themselves with leading zeros."""
        if column in self.names:
            return [self.names[column][int(number)] for number in numbers]
        width = len(str(self.columns[column].max()))
        return [number.zfill(width) for number in numbers]

    def per_pixel(self, count: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Mean, and deviation plus 0.001, of each pixel over the first `count` images."""
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

    def dealt(
        self,
        name: str,
        fit: Index,
        tested: Index | None = None,
        *,
        normalize: tuple[Any, Any] | None = None,
        **more: Any,
    ) -> FederatedData:
        """Federated data of these images, which are not copied.

        Args:
            name: What to call the data.
            fit: Numbers of images for each client.
            tested: Numbers of test images for each client, from 0 on; None splits each client's images.
            normalize: None: the published one.
            more: Further arguments of `partition.assemble`.
        """
        if tested is not None:
            tested = Index(tested.order + self.train, tested.offsets)
        return assemble(
            name,
            (self.x, self.y),
            fit,
            tested=tested,
            classes=self.classes,
            normalize=self.images.normalize if normalize is None else normalize,
            source=self.source,
            **more,
        )


def pool(name: str) -> Pool:
    """The images of a data set in `IMAGES`, from its archive or from the publisher's files."""
    images = IMAGES[name]
    origin = source(images.file)
    read = images.read if origin.published is None or origin.published.read is None else origin.published.read
    kept = decoded(name, origin.paths, read)
    if kept.x.shape[1:] != images.shape:
        path = origin.paths[0]
        raise DataError(f"{path}: images of {images.title} have shape {images.shape}, got {kept.x.shape[1:]}")
    text = images.text(origin.checked(kept.digests), (kept.train, len(kept.y) - kept.train))
    return Pool(images, kept.x, kept.y, kept.train, text, images.classes, kept.columns, kept.names)
