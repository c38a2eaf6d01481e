"""Which files publishers hand out, from where they can be had, and where they are looked for.

A publisher's files stand for the .npz file under whose name they are listed here. Each checksum has a source: those of
MNIST, Fashion-MNIST and SVHN are in TensorFlow Datasets (`tensorflow_datasets/url_checksums/` of
github.com/tensorflow/datasets: mnist.txt at commit 31f1255e, fashion_mnist.txt and svhn_cropped.txt at 333639b3), those
of both CIFARs in Keras (`keras/src/datasets/cifar10.py` of github.com/keras-team/keras at commit 7e4b17c5 and
`cifar100.py` at 69b9ad08), those of QMNIST in torchvision (`torchvision/datasets/mnist.py` of
github.com/pytorch/vision at commit 01977a18). Nobody has published any for Fed-MEx.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coterie.data.decoded import Read
from coterie.data.publishers import cifar, idx, leaf, svhn

# The site on which MNIST was published, yann.lecun.com/exdb/mnist, has no files any more (github.com/pytorch/pytorch,
# pull request 164238); these two hold the same bytes.
_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
_FASHION = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)
_CIFAR = ("https://www.cs.toronto.edu/~kriz/",)
_SVHN = ("http://ufldl.stanford.edu/housenumbers/",)
_QMNIST = ("https://raw.githubusercontent.com/facebookresearch/qmnist/master/",)
_FED_MEX = "https://raw.githubusercontent.com/chamathpali/Fed-MEx/52d68cfb421f82aa953d409836d89763c0eb7dbd/data"


@dataclass(frozen=True)
class File:
    """A file that a publisher hands out.

    Attributes:
        name: Of the file.
        addresses: From where it can be downloaded, in the order in which they are tried.
        checksum: Kind and digits, such as "sha256:6d95…"; None: nobody has published any.
    """

    name: str
    addresses: tuple[str, ...]
    checksum: str | None


@dataclass(frozen=True)
class Published:
    """A data set as its publisher hands it out.

    Attributes:
        title: Its name.
        folders: Sub-folders in which the files are looked for, all of them in one; downloads go to the first.
        files: Which, in the order in which `read` takes them.
        read: Reads them; None: it takes more than the files.
        pattern: The files' names where their number is not fixed; then there is nothing to download. Several patterns,
            each of which must have a file, are put together with " and ".
        how: What makes such files.
    """

    title: str
    folders: tuple[str, ...]
    files: tuple[File, ...]
    read: Read | None
    pattern: str = ""
    how: str = ""

    def within(self, folder: Path) -> tuple[Path, ...] | None:
        """The files in one of the sub-folders, all of them, or None."""
        for place in self.folders:
            if self.pattern:
                each_of = self.pattern.split(" and ")
                found = [[path for path in (folder / place).glob(each) if path.is_file()] for each in each_of]
                ordered = (sorted(each, key=lambda path: (len(path.name), path.name)) for each in found)  # 2 before 10
                paths = tuple(path for each in ordered for path in each) if all(found) else ()
            else:
                paths = tuple(folder / place / file.name for file in self.files)
            if paths and all(path.is_file() for path in paths):
                return paths
        return None

    @property
    def names(self) -> str:
        """The names of the files, in a text."""
        return self.pattern or " and ".join(file.name for file in self.files)


def _four(addresses: tuple[str, ...], *checksums: str) -> tuple[File, ...]:
    """The files of MNIST and its relatives."""
    names = [f"{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")]
    return tuple(
        File(name, tuple(address + name for address in addresses), f"sha256:{checksum}")
        for name, checksum in zip(names, checksums, strict=True)
    )


def _one(addresses: tuple[str, ...], name: str, checksum: str) -> File:
    return File(name, tuple(address + name for address in addresses), checksum)


#: Name of an archive for which no publisher's files can stand → what it holds, and where that comes from.
MADE: dict[str, str] = {
    "chars74k_hnd.npz": "It holds x, 3,410 images of 28×28 bytes drawn from the pen strokes of Chars74K's EnglishHnd,"
    " which char74k.json of github.com/aparrish/chars74k-json-dump has, y, the classes 0..61, and writer, 0..54",
}

#: Name of a file → the publisher's files that can stand for it.
PUBLISHED: dict[str, Published] = {
    "mnist.npz": Published(
        "MNIST",
        ("mnist", "MNIST/raw"),  # the second as torchvision has it
        _four(
            _MNIST,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
        idx.read_images,
    ),
    "fashion_mnist.npz": Published(
        "Fashion-MNIST",
        ("fashion_mnist", "FashionMNIST/raw"),
        _four(
            _FASHION,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
        idx.read_images,
    ),
    "mnist_writers.npz": Published(
        "QMNIST's labels",
        ("qmnist", "QMNIST/raw"),
        (
            _one(_QMNIST, "qmnist-train-labels-idx2-int.gz", "md5:0058f8dd561b90ffdd0f734c6a30e5e4"),
            _one(_QMNIST, "qmnist-test-labels-idx2-int.gz", "md5:5b5b05890a5e13444e108efe57b788aa"),
        ),
        None,
    ),
    "cifar10.npz": Published(
        "CIFAR-10",
        ("cifar10", ""),
        (
            _one(
                _CIFAR,
                "cifar-10-python.tar.gz",
                "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            ),
        ),
        cifar.read_cifar10,
    ),
    "cifar100.npz": Published(
        "CIFAR-100",
        ("cifar100", ""),
        (
            _one(
                _CIFAR,
                "cifar-100-python.tar.gz",
                "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            ),
        ),
        cifar.read_cifar100,
    ),
    "svhn.npz": Published(
        "SVHN",
        ("svhn", ""),
        (
            _one(
                _SVHN,
                "train_32x32.mat",
                "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            ),
            _one(
                _SVHN,
                "test_32x32.mat",
                "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            ),
        ),
        svhn.read_digits,
    ),
    "femnist.npz": Published(
        "LEAF FEMNIST",
        ("femnist", "femnist/data/all_data"),  # the second as LEAF's script has it
        (),
        leaf.read_femnist,
        pattern="all_data*.json",
        how="LEAF's data/femnist/preprocess.sh (github.com/TalwalkarLab/leaf) makes them in data/all_data",
    ),
    "fed_mex_testpart.npz": Published(
        "Fed-MEx",
        ("fed_mex",),
        (
            File("train.json", (f"{_FED_MEX}/train/train.json",), None),
            File("test.json", (f"{_FED_MEX}/test/test.json",), None),
        ),
        leaf.read_fed_mex,
    ),
    "shakespeare.json.gz": Published(
        "LEAF Shakespeare",
        ("shakespeare", "shakespeare/data"),  # the second as LEAF's script has it
        (),
        None,
        pattern="train/*.json and test/*.json",
        how="LEAF's data/shakespeare/preprocess.sh -s niid --sf 1.0 -k 0 -t sample -tf 0.8"
        " (github.com/TalwalkarLab/leaf) makes them in data. Or put shakespeare.json.gz into $COTERIE_DATA itself",
    ),
    "training.1600000.processed.noemoticon.csv": Published(
        "LEAF Sent140",
        ("sent140", "sent140/data"),
        (),
        None,
        pattern="train/*.json and test/*.json",
        how="LEAF's data/sent140/preprocess.sh -s niid --sf 0.3 -k 30 -tf 0.8 -t sample"
        " (github.com/TalwalkarLab/leaf) makes them in data. Or put training.1600000.processed.noemoticon.csv, which is"
        " in trainingandtestdata.zip of cs.stanford.edu/people/alecmgo, into $COTERIE_DATA itself",
    ),
    "fed_goodreads.npz": Published(
        "Fed-Goodreads",
        ("goodreads",),
        (),
        None,
        pattern="data/train/*.json and data/test/*.json and data_text/train/*.json and data_text/test/*.json",
        how="They are in data/goodreads of github.com/chamathpali/FedSim. Or put fed_goodreads.npz into $COTERIE_DATA"
        " itself",
    ),
}
