"""What is known of the data sets that presets deal out: which files, how large they were published, their pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.data.archives import how, read_split, read_testpart, read_written
from coterie.data.decoded import Read
from coterie.data.readers.archive import read_lengths
from coterie.data.sources import Source


@dataclass(frozen=True)
class Images:
    """A published data set of images.

    Attributes:
        title: Its name and who made it.
        file: The archive that holds it; `sources` knows which files of the publisher can stand for it.
        published: How many images for training and for testing it has.
        shape: Of an image.
        mean: Of the pixels, in 0..1, for each channel; empty: they are used as they are stored.
        deviation: Of the pixels, in 0..1, for each channel.
        classes: How many.
        crops: Whether an archive with an array `image_train` holds crops that somebody made anew.
        read: Reads the archive.
        parts: The arrays of the archive that are as long as there are images for training and for testing; "": none.
    """

    title: str
    file: str
    published: tuple[int, int]
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    classes: int = 10
    crops: bool = False
    read: Read = read_split
    parts: tuple[str, str] = ("y_train", "y_test")

    @property
    def normalize(self) -> tuple[Any, Any] | None:
        """Published mean and deviation in units of stored pixels, 0..255."""
        if not self.mean:
            return None
        if len(self.mean) == 1:
            return 255 * self.mean[0], 255 * self.deviation[0]
        return 255 * np.asarray(self.mean, np.float32), 255 * np.asarray(self.deviation, np.float32)

    def text(self, origin: Source, count: tuple[int, int] | None = None) -> str:
        """Where the images come from, and whether these files hold them all.

        Args:
            origin: The files.
            count: How many images for training and for testing they hold. None: as many as an archive's headers say,
                or all that were published: a publisher's files are not counted before they are read.
        """
        remade = ""
        if origin.published is None:
            lengths, names = self._lengths(origin)
            count = count or lengths
            remade = ", cropped anew from the full pictures" if self.crops and "image_train" in names else ""
        return f"{self.title}{self._subset(count or self.published)}{remade}, from {origin}"

    def share(self, origin: Source) -> float:
        """Which share of the published images the files hold, as far as it is known without reading them."""
        return sum(self._lengths(origin)[0]) / sum(self.published) if origin.published is None else 1.0

    def _lengths(self, origin: Source) -> tuple[tuple[int, int], set[str]]:
        """How many images an archive holds, and the names of its arrays."""
        wanted = [part for part in self.parts if part]
        lengths, names = read_lengths(origin.paths[0], wanted, how(wanted))
        counted = dict(zip(wanted, lengths, strict=True))
        return (counted.get(self.parts[0], 0), counted.get(self.parts[1], 0)), names

    def _subset(self, count: tuple[int, int]) -> str:
        pairs = zip(count, self.published, ("training", "test"), strict=True)
        if all(here >= there for here, there in zip(count, self.published, strict=True)):
            return ""
        kinds = [f"{here:,} of {there:,} {kind}" for here, there, kind in pairs if there]
        return f", a subset: {' and '.join(kinds)} images"


#: Name → what is known of it.
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
    "cifar100": Images(
        "CIFAR-100 (Krizhevsky 2009)",
        "cifar100.npz",
        (50_000, 10_000),
        (32, 32, 3),
        mean=(0.4914, 0.4822, 0.4465),  # of CIFAR-10
        deviation=(0.2023, 0.1994, 0.2010),
        classes=100,
    ),
    "femnist": Images(
        "LEAF FEMNIST (Caldas et al. 2018)",
        "femnist.npz",
        (805_263, 0),  # of 3,550 writers, in Table 1 of arXiv:1812.01097; the published script makes a few more
        (28, 28),
        mean=(0.0,),
        deviation=(1.0,),
        classes=62,
        read=read_written,
        parts=("y", ""),
    ),
    "chars74k": Images(
        "Chars74K EnglishHnd (de Campos et al. 2009), drawn from its pen strokes",
        "chars74k_hnd.npz",
        (3410, 0),
        (28, 28),
        mean=(0.0,),
        deviation=(1.0,),
        classes=62,
        read=read_written,
        parts=("y", ""),
    ),
    "fed-mex": Images(
        "Fed-MEx (Palihawadana et al. 2022)",
        "fed_mex_testpart.npz",
        (934, 250),
        (5, 16, 16),
        mean=(),
        deviation=(),
        classes=7,
        read=read_testpart,
        parts=("", "y"),
    ),
}
