"""The table of data sets: for each name its loader, paper, settings, true clusters, size and files.

`CATALOG` is the only place where a data set is described. To add one, write a loader in `coterie.data.datasets` and add
a row here. This module loads no data and imports no loader: loaders and readers are named as "module:function" and
imported when they are used.

Numbers of clients and samples are those of the default options and seed 0, with all published files. If the files on
disk are a subset, the number of clients stays the same and there are fewer samples.

Sources of the checksums: MNIST, Fashion-MNIST and SVHN from TensorFlow Datasets (`tensorflow_datasets/url_checksums/`
of github.com/tensorflow/datasets: mnist.txt at commit 31f1255e, fashion_mnist.txt and svhn_cropped.txt at 333639b3);
CIFAR-10 and CIFAR-100 from Keras (`keras/src/datasets/cifar10.py` of github.com/keras-team/keras at commit 7e4b17c5,
`cifar100.py` at 69b9ad08); QMNIST from torchvision (`torchvision/datasets/mnist.py` of github.com/pytorch/vision at
commit 01977a18). No checksums are published for Fed-MEx.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Download:
    """A file that the publisher of a data set distributes.

    Attributes:
        name: File name.
        addresses: URLs, in the order in which they are tried.
        checksum: Algorithm and digits, such as "sha256:6d95…"; None if the publisher gives none.
    """

    name: str
    addresses: tuple[str, ...]
    checksum: str | None


@dataclass(frozen=True)
class Images:
    """Format of the examples in image files.

    Attributes:
        shape: Shape of one example.
        mean: Published mean of the pixels in 0..1, per channel. Empty: examples are used as stored.
        deviation: Published standard deviation of the pixels in 0..1, per channel.
        classes: Number of classes.
        lengths: Arrays of the archive whose lengths are the numbers of training and test examples; "": no such array.
        recropped: Whether an array `image_train` in the archive means that its images were cropped again from full
            pictures.
    """

    shape: tuple[int, ...]
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    classes: int = 10
    lengths: tuple[str, str] = ("y_train", "y_test")
    recropped: bool = False


@dataclass(frozen=True)
class Files:
    """The files that one or more data sets are read from: an archive, or the files of the publisher.

    Attributes:
        key: Short name; copies in the cache are named after it.
        name: Name for error messages.
        title: Name and citation.
        archive: File name of the archive, which is searched in $COTERIE_DATA and in the cache.
        size: Published number of training and test examples; None if it is not fixed.
        images: Format of the images; None for other data.
        read: Reader of the archive, as "module:function" in `coterie.data.formats`.
        read_published: Reader of the publisher's files; empty if the loader reads them itself.
        folders: Subfolders in which the publisher's files are searched; one of them must have all files. Downloads go
            to the first. Empty: only the archive can be used.
        downloads: The publisher's files, in the order in which the reader takes them.
        pattern: Glob pattern, for files whose number is not fixed and which cannot be downloaded. Several patterns
            are joined with " and "; each must match a file.
        how: How to get or make the files by hand.
    """

    key: str
    name: str
    title: str
    archive: str
    size: tuple[int, int] | None = None
    images: Images | None = None
    read: str = ""
    read_published: str = ""
    folders: tuple[str, ...] = ()
    downloads: tuple[Download, ...] = ()
    pattern: str = ""
    how: str = ""

    @property
    def names(self) -> str:
        """Names of the publisher's files, as text."""
        return self.pattern or " and ".join(file.name for file in self.downloads)


@dataclass(frozen=True)
class Dataset:
    """A row of the catalog.

    Attributes:
        name: Name for `coterie.data.load`.
        loader: The function that loads it, as "module:function" in `coterie.data.datasets`.
        description: One line.
        settings: How the data are made and partitioned, in a sentence or two.
        clients: Default number of clients.
        samples: Total number of training and test examples.
        classes: Number of classes; None for regression targets.
        paper: Papers that use these settings; None if no paper does.
        truth: Description of the true clusters; None if they do not exist or are unknown.
        files: Files of the data set; empty for generated data.
        source: Where data without files come from.
        word_vectors: Whether words are represented by frozen vectors.
    """

    name: str
    loader: str
    description: str
    settings: str
    clients: int
    samples: int
    classes: int | None = 10
    paper: str | None = None
    truth: str | None = None
    files: tuple[Files, ...] = ()
    source: str = "generated from a seed"
    word_vectors: bool = False


# Papers.
_CHARS74K_PAPER = "de Campos, Babu and Varma, Chars74K, VISAPP 2009"
_FEDGROUP = "Duan et al., FedGroup, ISPA 2021, arXiv:2010.06870"
_FEDPROX = "Li et al., FedProx, MLSys 2020, arXiv:1812.06127"
_FEDSIM = "Palihawadana et al., FedSim, Neurocomputing 2022"
_FLAG = "FLAG, submitted to ICLR 2025, openreview.net/forum?id=8OrXrdPbef"
_FLEXCFL = "Duan et al., FlexCFL, TPDS 2022, arXiv:2108.09749"
_IFCA = "Ghosh et al., IFCA, NeurIPS 2020, arXiv:2006.04088"
_LEAF = "Caldas et al., LEAF, arXiv:1812.01097"
_QMNIST_PAPER = "Yadav and Bottou, QMNIST, NeurIPS 2019, arXiv:1905.10498"
_SRFCA = "Vardhan et al., SR-FCA, TMLR 2024, arXiv:2210.11538"

# Addresses. The original site of MNIST, yann.lecun.com/exdb/mnist, no longer has the files (github.com/pytorch/pytorch,
# pull request 164238); these two mirrors have the same bytes.
_MNIST_AT = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
_FASHION_AT = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)
_CIFAR_AT = ("https://www.cs.toronto.edu/~kriz/",)
_SVHN_AT = ("http://ufldl.stanford.edu/housenumbers/",)
_QMNIST_AT = ("https://raw.githubusercontent.com/facebookresearch/qmnist/master/",)
_FED_MEX_AT = "https://raw.githubusercontent.com/chamathpali/Fed-MEx/52d68cfb421f82aa953d409836d89763c0eb7dbd/data/"


def _download(addresses: tuple[str, ...], name: str, checksum: str) -> Download:
    return Download(name, tuple(address + name for address in addresses), checksum)


def _idx(addresses: tuple[str, ...], *checksums: str) -> tuple[Download, ...]:
    """The four files of MNIST and of data sets in the same format."""
    names = [f"{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")]
    return tuple(_download(addresses, name, f"sha256:{sum_}") for name, sum_ in zip(names, checksums, strict=True))


# Files that several rows share.
_MNIST = Files(
    key="mnist",
    name="MNIST",
    title="MNIST (LeCun et al. 1998)",
    archive="mnist.npz",
    size=(60_000, 10_000),
    images=Images((28, 28), (0.1307,), (0.3081,)),
    read="npz:read_split",
    read_published="idx:read_images",
    folders=("mnist", "MNIST/raw"),  # the second is torchvision's
    downloads=_idx(
        _MNIST_AT,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)
_FASHION = Files(
    key="fmnist",
    name="Fashion-MNIST",
    title="Fashion-MNIST (Xiao et al. 2017)",
    archive="fashion_mnist.npz",
    size=(60_000, 10_000),
    # Mean and deviation of MNIST, as in the code of PACFL, whose protocol FLAG follows.
    images=Images((28, 28), (0.1307,), (0.3081,)),
    read="npz:read_split",
    read_published="idx:read_images",
    folders=("fashion_mnist", "FashionMNIST/raw"),
    downloads=_idx(
        _FASHION_AT,
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
)
_CIFAR10 = Files(
    key="cifar10",
    name="CIFAR-10",
    title="CIFAR-10 (Krizhevsky 2009)",
    archive="cifar10.npz",
    size=(50_000, 10_000),
    images=Images((32, 32, 3), (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    read="npz:read_split",
    read_published="cifar:read_cifar10",
    folders=("cifar10", ""),
    downloads=(
        _download(
            _CIFAR_AT,
            "cifar-10-python.tar.gz",
            "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
    ),
)
_CIFAR100 = Files(
    key="cifar100",
    name="CIFAR-100",
    title="CIFAR-100 (Krizhevsky 2009)",
    archive="cifar100.npz",
    size=(50_000, 10_000),
    # Mean and deviation of CIFAR-10.
    images=Images((32, 32, 3), (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), classes=100),
    read="npz:read_split",
    read_published="cifar:read_cifar100",
    folders=("cifar100", ""),
    downloads=(
        _download(
            _CIFAR_AT,
            "cifar-100-python.tar.gz",
            "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        ),
    ),
)
_SVHN = Files(
    key="svhn",
    name="SVHN",
    title="SVHN cropped digits (Netzer et al. 2011)",
    archive="svhn.npz",
    size=(73_257, 26_032),
    images=Images((32, 32, 3), (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970), recropped=True),
    read="npz:read_split",
    read_published="svhn:read_digits",
    folders=("svhn", ""),
    downloads=(
        _download(
            _SVHN_AT,
            "train_32x32.mat",
            "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        ),
        _download(
            _SVHN_AT,
            "test_32x32.mat",
            "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        ),
    ),
)
_FEMNIST = Files(
    key="femnist",
    name="LEAF FEMNIST",
    title="LEAF FEMNIST (Caldas et al. 2018)",
    archive="femnist.npz",
    size=(805_263, 0),  # of 3,550 writers, Table 1 of arXiv:1812.01097; the published script produces a few more
    images=Images((28, 28), (0.0,), (1.0,), classes=62, lengths=("y", "")),
    read="npz:read_written",
    read_published="leaf:read_femnist",
    folders=("femnist", "femnist/data/all_data"),  # the second is where LEAF's script writes them
    pattern="all_data*.json",
    how="LEAF's data/femnist/preprocess.sh (github.com/TalwalkarLab/leaf) makes them in data/all_data",
)
_GOODREADS = Files(
    key="goodreads",
    name="Fed-Goodreads",
    title="Fed-Goodreads (Palihawadana et al. 2022)",
    archive="fed_goodreads.npz",
    folders=("goodreads",),
    pattern="data/train/*.json and data/test/*.json and data_text/train/*.json and data_text/test/*.json",
    how="They are in data/goodreads of github.com/chamathpali/FedSim. Or put fed_goodreads.npz into $COTERIE_DATA"
    " itself",
)


def _generated() -> Iterator[Dataset]:
    """Data that need no files."""
    yield Dataset(
        "digits",
        "digits:digits",
        "1,797 handwritten digits, 8×8, from scikit-learn; rotated, inverted or partitioned by class",
        "Equal parts, client i rotated by 90°·(i mod 4); other partitions by option; split 80/20.",
        clients=40,
        samples=1797,
        truth="The rotation: client i is in cluster i mod 4. Other partitions have other true clusters, or none.",
        source="scikit-learn",
    )
    yield Dataset(
        "blobs",
        "blobs:blobs",
        "images of Gaussian blobs with planted clusters, of any size and number of clients",
        "Class prototypes plus noise; clusters differ by rotation, inversion, shift or label permutation; split 80/20.",
        clients=40,
        samples=2000,
        classes=4,
        truth="Client i is in cluster i mod 4.",
    )
    yield Dataset(
        "regression",
        "regression:regression",
        "linear regression with planted clusters, as in IFCA and SR-FCA",
        "y = <x, θ> + noise with one θ per cluster.",
        clients=50,
        samples=10_000,
        classes=None,
        paper=f"{_IFCA}; {_SRFCA}",
        truth="Client i is in cluster i mod 2.",
    )
    common = "60 features, 10 classes, sizes int(LogNormal(4, 2)) + 50, split 90/10, not normalized."
    yield Dataset(
        "synthetic",
        "synthetic:synthetic",
        "Synthetic(α, β) of FedProx: each client has its own linear classifier and feature means",
        f"Any α and β. {common}",
        clients=30,
        samples=8332,
        paper=_FEDPROX,
    )
    yield Dataset(
        "synthetic-1-1",
        "synthetic:synthetic_1_1",
        "Synthetic(1, 1) of FedProx for 100 clients, as in FedGroup and FlexCFL",
        f"α = β = 1. {common}",
        clients=100,
        samples=34_504,
        paper=f"{_FEDGROUP}; {_FLEXCFL}",
    )
    for number in ("0.75", "0.5", "0.25", "0"):
        yield Dataset(
            f"synthetic-{number}-{number}",
            f"synthetic:synthetic_{number.replace('.', '')}_{number.replace('.', '')}",
            f"Synthetic({number}, {number}) of FedProx for 30 clients, as in FedSim",
            f"α = β = {number}. {common}",
            clients=30,
            samples=8332,
            paper=_FEDSIM,
        )
    yield Dataset(
        "synthetic-0-0-fedsim",
        "synthetic_fedsim:synthetic_0_0_fedsim",
        "Synthetic(0, 0) as drawn by the authors of FedSim, with their split",
        "60 features, 10 classes, 4,491 and 516 examples of 30 clients, not normalized.",
        clients=30,
        samples=5007,
        paper=_FEDSIM,
        files=(
            Files(
                key="synthetic-0-0-fedsim",
                name="FedSim's Synthetic(0, 0)",
                title="Synthetic(0, 0) of FedSim (Palihawadana et al. 2022)",
                archive="synthetic_0_0_fedsim.npz",
                how="data/synthetic_0_0/synthetic_0_0.zip of github.com/chamathpali/FedSim has the examples. Write them"
                " as arrays x_train, y_train, offsets_train, x_test, y_test, offsets_test with numpy.savez; client k"
                " has the rows offsets[k] to before offsets[k + 1]",
            ),
        ),
    )
    yield Dataset(
        "synthetic-iid",
        "synthetic:synthetic_iid",
        "one linear classifier for all of 30 clients, the IID case of FedProx and FedSim",
        f"The same W, b and mean for all clients. {common}",
        clients=30,
        samples=8332,
        paper=_FEDSIM,
    )


def _images_of_papers() -> Iterator[Dataset]:
    """Image data with the partitions of papers."""
    yield Dataset(
        "mnist-powerlaw",
        "images:mnist_powerlaw",
        "MNIST, 2 digits for each of 1,000 clients, sizes by a power law (FedProx)",
        "Client u has digits u and u + 1 mod 10; pixels standardized over all images; split 90/10.",
        clients=1000,
        samples=69_037,
        paper=f"{_FEDPROX}; {_FEDGROUP}; {_FLEXCFL}; {_FEDSIM}",
        files=(_MNIST,),
    )
    yield Dataset(
        "mnist-classes",
        "images:mnist_classes",
        "MNIST, 1, 3, 5 or 10 digits for each of 1,000 clients, sizes by a power law",
        "Client u has digits u + j mod 10, j < per_client; pixels standardized over all images; split 90/10.",
        clients=1000,
        samples=69_782,
        paper=f"{_FEDGROUP}, Table I; {_FLEXCFL}, Table 1",
        files=(_MNIST,),
    )
    yield Dataset(
        "fmnist-500",
        "images:fmnist_500",
        "Fashion-MNIST, 5 classes for each of 500 clients (Ditto's generator)",
        "Client u has classes u + j mod 10, j < 5; pixels standardized by the training images; own test set.",
        clients=500,
        samples=72_502,
        paper=_FLEXCFL,
        files=(_FASHION,),
    )
    yield Dataset(
        "mnist-rotated",
        "rotated:mnist_rotated",
        "MNIST in 100 equal parts, client i rotated by 90°·(i mod 4) (SR-FCA)",
        "600 training and 100 test images per client; pixels from 0 to 1. SR-FCA: mlp with widths = 200 and"
        " init = torch, Adam 2e-4, B = 50, 250 batches alone, 42 rounds × 5 batches.",
        clients=100,
        samples=70_000,
        paper=_SRFCA,
        truth="The rotation: client i is in cluster i mod 4.",
        files=(_MNIST,),
    )
    yield Dataset(
        "mnist-inverted",
        "rotated:mnist_inverted",
        "MNIST in 100 equal parts, every other client inverted (SR-FCA)",
        "600 training and 100 test images per client; pixels from 0 to 255, as in the published code. SR-FCA: mlp with"
        " widths = 200 and init = torch, Adam 2e-4, B = 50, 280 batches alone, 56 rounds × 5 batches.",
        clients=100,
        samples=70_000,
        paper=_SRFCA,
        truth="Inverted or not: client i is in cluster i mod 2.",
        files=(_MNIST,),
    )
    yield Dataset(
        "mnist-rotated-ifca",
        "rotated:mnist_rotated_ifca",
        "MNIST, all of it in each of four rotations, for 1,200, 2,400 or 4,800 clients (IFCA)",
        "240,000/m training images per client; the test images are split among the clients of each rotation; pixels"
        " from 0 to 1.",
        clients=1200,
        samples=4 * 70_000,
        paper=_IFCA,
        truth="The rotation: client i is in cluster i mod 4.",
        files=(_MNIST,),
    )
    yield Dataset(
        "cifar10-rotated",
        "rotated:cifar10_rotated",
        "CIFAR-10, 8 clients with original images and 8 with images rotated by 180° (SR-FCA)",
        "Each cluster cuts all images into 16 parts and uses 8; channels standardized.",
        clients=16,
        samples=60_000,
        paper=_SRFCA,
        truth="Rotated or not: client i is in cluster i mod 2.",
        files=(_CIFAR10,),
    )
    yield Dataset(
        "cifar10-classes",
        "rotated:cifar10_classes",
        "CIFAR-10, classes 0 to 5 for 8 clients and 4 to 9 for 8 others (SR-FCA)",
        "Each cluster cuts the images of its six classes into 16 parts and uses 8; channels standardized.",
        clients=16,
        samples=36_000,
        paper=_SRFCA,
        truth="The classes: client i is in cluster i mod 2.",
        files=(_CIFAR10,),
    )


def _by_person() -> Iterator[Dataset]:
    """Data with one person per client, and FedProx's partition of handwritten letters."""
    yield Dataset(
        "mnist-writers",
        "writers:mnist_writers",
        "MNIST by writer: 539 people, in two NIST series",
        "One client per writer of the training images; each writer's images are split 90/10.",
        clients=539,
        samples=60_000,
        paper=_QMNIST_PAPER,
        truth="The NIST series: 0 for Census Bureau employees (hsf_0), 1 for high-school students (hsf_4).",
        files=(
            _MNIST,
            Files(
                key="mnist-writers",
                name="QMNIST's labels",
                title="QMNIST's labels (Yadav and Bottou 2019)",
                archive="mnist_writers.npz",
                folders=("qmnist", "QMNIST/raw"),
                downloads=(
                    _download(_QMNIST_AT, "qmnist-train-labels-idx2-int.gz", "md5:0058f8dd561b90ffdd0f734c6a30e5e4"),
                    _download(_QMNIST_AT, "qmnist-test-labels-idx2-int.gz", "md5:5b5b05890a5e13444e108efe57b788aa"),
                ),
            ),
        ),
    )
    yield Dataset(
        "femnist",
        "writers:femnist",
        "LEAF FEMNIST by writer: digits and letters of 50 people, of all 62 classes",
        "50 writers drawn at random, about 227 images each, split 90/10; pixels from 0 to 1, white background.",
        clients=50,
        samples=round(50 * 805_263 / 3550),  # on average; the exact number depends on the writers that are drawn
        classes=62,
        paper=f"{_LEAF}; {_SRFCA}; {_IFCA}",
        files=(_FEMNIST,),
    )
    yield Dataset(
        "femnist-200",
        "writers:femnist_200",
        "FEMNIST-200: 5 of the letters a to j for each of 200 clients (FedProx)",
        "Letters u + j mod 10, j < 5; sizes LogNormal(4, 1) + 5; split 90/10. Without the published script's leak;"
        " compat_prefix=true gives every client the same first images, as the script does.",
        clients=200,
        samples=17_395,
        paper=f"{_FEDPROX}; {_FEDGROUP}; {_FLEXCFL}; {_FEDSIM}",
        files=(_FEMNIST,),
    )
    yield Dataset(
        "chars74k",
        "writers:chars74k",
        "Chars74K by writer: 55 people who each wrote 62 characters once",
        "One client per writer; each writer's images are split 90/10; pixels from 0 to 1, black background.",
        clients=55,
        samples=3410,
        classes=62,
        paper=_CHARS74K_PAPER,
        files=(
            Files(
                key="chars74k",
                name="Chars74K",
                title="Chars74K EnglishHnd (de Campos et al. 2009), drawn from its pen strokes",
                archive="chars74k_hnd.npz",
                size=(3410, 0),
                images=Images((28, 28), (0.0,), (1.0,), classes=62, lengths=("y", "")),
                read="npz:read_written",
                how="It holds x, 3,410 images of 28×28 bytes drawn from the pen strokes of Chars74K's EnglishHnd, which"
                " char74k.json of github.com/aparrish/chars74k-json-dump has, y, the classes 0..61, and writer, 0..54",
            ),
        ),
    )
    yield Dataset(
        "fed-mex",
        "fed_mex:fed_mex",
        "Fed-MEx: exercises on a pressure mat, two for each of 30 people (FedSim)",
        "The published split; each example is five pictures of 16×16 pressures.",
        clients=30,
        samples=934 + 250,
        classes=7,
        paper=_FEDSIM,
        files=(
            Files(
                key="fed-mex",
                name="Fed-MEx",
                title="Fed-MEx (Palihawadana et al. 2022)",
                archive="fed_mex_testpart.npz",
                size=(934, 250),
                images=Images((5, 16, 16), classes=7, lengths=("", "y")),
                read="npz:read_testpart",
                read_published="leaf:read_fed_mex",
                folders=("fed_mex",),
                downloads=(
                    Download("train.json", (f"{_FED_MEX_AT}train/train.json",), None),
                    Download("test.json", (f"{_FED_MEX_AT}test/test.json",), None),
                ),
            ),
        ),
    )


def _text() -> Iterator[Dataset]:
    """Text: characters of plays, words of tweets and reviews."""
    yield Dataset(
        "shakespeare",
        "shakespeare:shakespeare",
        "Shakespeare's plays: the next character, for 50 roles (LEAF, SR-FCA)",
        "50 roles drawn at random; the input is the 80 characters before the one to predict, from an alphabet of 80;"
        " the first 80 % are for training. SR-FCA: char-lstm, SGD 0.8, B = 10, 6 rounds × 400 batches.",
        clients=50,
        samples=200_247,
        classes=80,
        paper=f"{_LEAF}; {_SRFCA}",
        files=(
            Files(
                key="shakespeare",
                name="LEAF Shakespeare",
                title="Shakespeare's plays by role",
                archive="shakespeare.json.gz",
                folders=("shakespeare", "shakespeare/data"),  # the second is where LEAF's script writes them
                pattern="train/*.json and test/*.json",
                how="LEAF's data/shakespeare/preprocess.sh -s niid --sf 1.0 -k 0 -t sample -tf 0.8"
                " (github.com/TalwalkarLab/leaf) makes them in data. Or put shakespeare.json.gz into $COTERIE_DATA"
                " itself",
            ),
        ),
    )
    yield Dataset(
        "sent140",
        "sent140:sent140",
        "Sentiment140: positive or negative tweets, by account, 25 words as frozen vectors (LEAF)",
        "Accounts with 30 tweets or more, 30 % of them; split 80/20. lstm (FedProx, FedGroup), bilstm and bigru"
        " (FlexCFL), SGD 0.3; FlexCFL pads short tweets at the front.",
        clients=772,
        samples=40_783,
        classes=2,
        paper=f"{_LEAF}; {_FEDPROX}; {_FEDGROUP}; {_FLEXCFL}",
        word_vectors=True,
        files=(
            Files(
                key="sent140",
                name="LEAF Sent140",
                title="Sentiment140 (Go et al. 2009)",
                archive="training.1600000.processed.noemoticon.csv",
                folders=("sent140", "sent140/data"),
                pattern="train/*.json and test/*.json",
                how="LEAF's data/sent140/preprocess.sh -s niid --sf 0.3 -k 30 -tf 0.8 -t sample"
                " (github.com/TalwalkarLab/leaf) makes them in data. Or put training.1600000.processed.noemoticon.csv,"
                " which is in trainingandtestdata.zip of cs.stanford.edu/people/alecmgo, into $COTERIE_DATA itself",
            ),
        ),
    )
    split = "The published split, 355 and 130 sentences of 100 reviewers."
    yield Dataset(
        "goodreads",
        "goodreads:goodreads",
        "Fed-Goodreads: spoiler or not, by reviewer, sentences as counts of 2,517 words (FedSim)",
        f"{split} mclr, SGD 0.3.",
        clients=100,
        samples=485,
        classes=2,
        paper=_FEDSIM,
        files=(_GOODREADS,),
    )
    yield Dataset(
        "goodreads-sentences",
        "goodreads:goodreads_sentences",
        "Fed-Goodreads: the same sentences as 40 words, each a frozen vector (FedSim)",
        f"{split} rnn, Adam 1e-4, E = 10.",
        clients=100,
        samples=485,
        classes=2,
        paper=_FEDSIM,
        word_vectors=True,
        files=(_GOODREADS,),
    )


def _images_by_label() -> Iterator[Dataset]:
    """Image data with a partition of the user's choice, and FLAG's two partitions of the same images."""
    sizes = {"mnist": 70_000, "fmnist": 70_000, "cifar10": 60_000, "svhn": 99_289, "cifar100": 60_000}
    for files in (_MNIST, _FASHION, _CIFAR10, _SVHN, _CIFAR100):
        key, classes = files.key, 100 if files is _CIFAR100 else 10
        paper = None if files is _MNIST else _FLAG  # FLAG does not use MNIST
        yield Dataset(
            key,
            f"images:{key}",
            f"{files.name} for 100 clients, IID or with a partition of your choice",
            "Training images by the partition (iid by default, without clusters), test images in proportion.",
            clients=100,
            samples=sizes[key],
            classes=classes,
            files=(files,),
        )
        for percent, groups in ((20, "five"), (30, "four")):
            yield Dataset(
                f"{key}-skew{percent}",
                f"label_skew:{key}_skew{percent}",
                f"{files.name} for 100 clients in {groups} groups with {percent * classes // 100} labels each, unequal"
                " quantities (FLAG)",
                "Quantities by Dirichlet(alpha); each client is tested on all test images of its labels.",
                clients=100,
                samples=sizes[key],
                classes=classes,
                paper=paper,
                truth="The group: clients of a group own the same labels.",
                files=(files,),
            )
        yield Dataset(
            f"{key}-dirichlet",
            f"label_skew:{key}_dirichlet",
            f"{files.name} for 100 clients, labels by Dirichlet(0.25) for each (FLAG)",
            "Equal numbers of training images; each client is tested on all test images of its labels.",
            clients=100,
            samples=sizes[key],
            classes=classes,
            paper=paper,
            files=(files,),
        )


#: Name → data set.
CATALOG: dict[str, Dataset] = {
    row.name: row
    for rows in (_generated(), _images_of_papers(), _by_person(), _text(), _images_by_label())
    for row in rows
}
