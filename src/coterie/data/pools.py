"""The image data sets that presets deal out: which file, how large it was published, how pixels are normalised."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data import files
from coterie.data.decoded import HOW, decoded
from coterie.data.federated import FederatedData, Index
from coterie.data.partition import assemble
from coterie.data.readers.archive import read_lengths
from coterie.errors import DataError
from coterie.types import Array

_BLOCK = 256  # 256·255² is less than 2²⁴: sums of squares over a block are exact in float32


@dataclass(frozen=True)
class Images:
    """A published data set of images.

    Attributes:
        title: Its name and who made it.
        file: The file that holds it.
        published: How many images for training and for testing it has.
        shape: Of an image.
        mean: Of the pixels, in 0..1, for each channel.
        deviation: Of the pixels, in 0..1, for each channel.
        classes: How many.
        crops: Whether a file with an array `image_train` holds crops that somebody made anew.
    """

    title: str
    file: str
    published: tuple[int, int]
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    classes: int = 10
    crops: bool = False

    @property
    def normalise(self) -> tuple[Any, Any]:
        """Published mean and deviation in units of stored pixels, 0..255."""
        if len(self.mean) == 1:
            return 255 * self.mean[0], 255 * self.deviation[0]
        return 255 * np.asarray(self.mean, np.float32), 255 * np.asarray(self.deviation, np.float32)

    def source(self, path: Path) -> str:
        """Where the images come from, and whether the file holds them all."""
        (train, test), names = read_lengths(path, ("y_train", "y_test"), HOW)
        subset = ""
        if (train, test) != self.published:
            all_train, all_test = self.published
            subset = f", a subset: {train:,} of {all_train:,} training and {test:,} of {all_test:,} test images"
        remade = ", cropped anew from the full pictures" if self.crops and "image_train" in names else ""
        return f"{self.title}{subset}{remade}, from {self.file}"

    def share(self, path: Path) -> float:
        """Which share of the published images the file holds."""
        return sum(read_lengths(path, ("y_train", "y_test"), HOW)[0]) / sum(self.published)


IMAGES: dict[str, Images] = {
    "mnist": Images(
        "MNIST (LeCun et al. 1998)", "mnist.npz", (60_000, 10_000), (28, 28), mean=(0.1307,), deviation=(0.3081,)
    ),
    "fmnist": Images(
        "Fashion-MNIST (Xiao et al. 2017)",
        "fashion_mnist.npz",
        (60_000, 10_000),
        (28, 28),
        mean=(0.1307,),  # of MNIST; so does the code of PACFL, whose protocol FLAG follows
        deviation=(0.3081,),
    ),
    "cifar10": Images(
        "CIFAR-10 (Krizhevsky 2009)",
        "cifar10.npz",
        (50_000, 10_000),
        (32, 32, 3),
        mean=(0.4914, 0.4822, 0.4465),
        deviation=(0.2023, 0.1994, 0.2010),
    ),
    "svhn": Images(
        "SVHN cropped digits (Netzer et al. 2011)",
        "svhn.npz",
        (73_257, 26_032),
        (32, 32, 3),
        mean=(0.4377, 0.4438, 0.4728),
        deviation=(0.1980, 0.2010, 0.1970),
        crops=True,
    ),
}


@dataclass(frozen=True, eq=False)
class Pool:
    """All images of a data set, those for training first."""

    images: Images
    x: Array
    y: Array
    train: int
    source: str

    @property
    def labels(self) -> Array:
        """Of the training images."""
        return self.y[: self.train]

    @property
    def test_labels(self) -> Array:
        """Of the test images."""
        return self.y[self.train :]

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
        normalise: tuple[Any, Any] | None = None,
        **more: Any,
    ) -> FederatedData:
        """Federated data of these images, which are not copied.

        Args:
            name: What to call the data.
            fit: Numbers of images for each client.
            tested: Numbers of test images for each client, from 0 on; None splits each client's images.
            normalise: None: the published one.
            more: Further arguments of `partition.assemble`.
        """
        if tested is not None:
            tested = Index(tested.order + self.train, tested.offsets)
        return assemble(
            name,
            (self.x, self.y),
            fit,
            tested=tested,
            classes=self.images.classes,
            normalise=self.images.normalise if normalise is None else normalise,
            source=self.source,
            **more,
        )


def pool(name: str) -> Pool:
    """The images of a data set in `IMAGES`."""
    images = IMAGES[name]
    path = files.find(images.file)
    kept = decoded(name, path)
    if kept.x.shape[1:] != images.shape:
        raise DataError(f"{path}: images of {images.title} have shape {images.shape}, got {kept.x.shape[1:]}")
    return Pool(images, kept.x, kept.y, kept.train, images.source(path))
