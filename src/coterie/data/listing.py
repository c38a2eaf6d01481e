"""The data sets with names, group by group, as `coterie data` lists them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coterie.data.known import IMAGES
from coterie.data.preset import Preset

_FEDPROX = "Li et al., FedProx, MLSys 2020, arXiv:1812.06127"
_FEDGROUP = "Duan et al., FedGroup, ISPA 2021, arXiv:2010.06870"
_FLEXCFL = "Duan et al., FlexCFL, TPDS 2022, arXiv:2108.09749"
_SRFCA = "Vardhan et al., SR-FCA, TMLR 2024, arXiv:2210.11538"
_IFCA = "Ghosh et al., IFCA, NeurIPS 2020, arXiv:2006.04088"
_FEDSIM = "Palihawadana et al., FedSim, Neurocomputing 2022"
_FLAG = "FLAG, submitted to ICLR 2025, openreview.net/forum?id=8OrXrdPbef"
_QMNIST = "Yadav and Bottou, QMNIST, NeurIPS 2019, arXiv:1905.10498"
_LEAF = "Caldas et al., LEAF, arXiv:1812.01097"
_CHARS74K = "de Campos, Babu and Varma, Chars74K, VISAPP 2009"

_NAMES = {"mnist": "MNIST", "fmnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "svhn": "SVHN", "cifar100": "CIFAR-100"}


def _of(images: str, name: str, **fields: Any) -> Preset:
    """A preset on a file of images; if nothing else is said, each image is used once."""
    fields.setdefault("samples", sum(IMAGES[images].published))
    fields.setdefault("needs", (IMAGES[images].file,))
    fields.setdefault("classes", IMAGES[images].classes)
    return Preset(name, images=images, **fields)


def embedded() -> Iterator[Preset]:
    """What needs no files."""
    yield Preset(
        "digits",
        "1,797 handwritten digits, 8×8, from scikit-learn; turned, inverted or dealt out by class",
        None,
        "Equal pieces, client i turned by 90°·(i mod 4); other partitions by option; split 80/20.",
        "The rotation: client i is in cluster i mod 4; another partition may plant others, or none.",
        40,
        1797,
    )
    yield Preset(
        "blobs",
        "images of Gaussian blobs with planted clusters, of any size and number of clients",
        None,
        "Prototypes with noise, seen turned, inverted, shifted or with other labels by each cluster; split 80/20.",
        "Client i is in cluster i mod 4.",
        40,
        2000,
        4,
    )
    yield Preset(
        "regression",
        "linear regression with planted clusters, as in IFCA and SR-FCA",
        f"{_IFCA}; {_SRFCA}",
        "y = <x, θ> + noise with one θ for each cluster.",
        "Client i is in cluster i mod 2.",
        50,
        10_000,
        None,
    )


def synthetic() -> Iterator[Preset]:
    """Draws of FedProx's generator."""
    ours = "Synthetic(α, β) of FedProx: each client its own linear classifier and feature means"
    how = "60 features, 10 classes, sizes int(LogNormal(4, 2)) + 50, split 90/10, not normalized."
    yield Preset("synthetic", ours, _FEDPROX, f"Any α and β. {how}", None, 30, 8332)
    text = "Synthetic(1, 1) of FedProx for 100 clients, as in FedGroup and FlexCFL"
    yield Preset("synthetic-1-1", text, f"{_FEDGROUP}; {_FLEXCFL}", f"α = β = 1. {how}", None, 100, 34_504)
    for number in ("0.75", "0.5", "0.25", "0"):
        text = f"Synthetic({number}, {number}) of FedProx for 30 clients, as in FedSim"
        name = f"synthetic-{number}-{number}"
        yield Preset(name, text, _FEDSIM, f"α = β = {number}. {how}", None, 30, 8332)
    text = "one linear classifier for all of 30 clients, the IID case of FedProx and FedSim"
    yield Preset("synthetic-iid", text, _FEDSIM, f"One W, b and mean for all. {how}", None, 30, 8332)


def by_paper() -> Iterator[Preset]:
    """Images as papers deal them out."""
    yield _of(
        "mnist",
        "mnist-powerlaw",
        description="MNIST, 2 digits for each of 1,000 clients, sizes by a power law (FedProx)",
        paper=f"{_FEDPROX}; {_FEDGROUP}; {_FLEXCFL}; {_FEDSIM}",
        settings="Client u has digits u and u + 1 mod 10; pixels standardized over the pool; split 90/10.",
        truth=None,
        clients=1000,
        samples=69_037,
    )
    yield _of(
        "mnist",
        "mnist-classes",
        description="MNIST, 1, 3, 5 or 10 digits for each of 1,000 clients, sizes by a power law",
        paper=f"{_FEDGROUP}, Table I; {_FLEXCFL}, Table 1",
        settings="Client u has digits u + j mod 10, j < per_client; pixels standardized over the pool; split 90/10.",
        truth=None,
        clients=1000,
        samples=68_627,
    )
    yield _of(
        "fmnist",
        "fmnist-500",
        description="Fashion-MNIST, 5 classes for each of 500 clients (Ditto's generator)",
        paper=_FLEXCFL,
        settings="Client u has classes u + j mod 10, j < 5; pixels standardized by the training images; own test set.",
        truth=None,
        clients=500,
        samples=72_502,
    )
    yield _of(
        "mnist",
        "mnist-rotated",
        description="MNIST in 100 equal pieces, client i turned by 90°·(i mod 4) (SR-FCA)",
        paper=_SRFCA,
        settings="600 training and 100 test images each; pixels from 0 to 1.",
        truth="The rotation: client i is in cluster i mod 4.",
        clients=100,
    )
    yield _of(
        "mnist",
        "mnist-inverted",
        description="MNIST in 100 equal pieces, every other client inverted (SR-FCA)",
        paper=_SRFCA,
        settings="600 training and 100 test images each; pixels from 0 to 255, as in the published code.",
        truth="Inverted or not: client i is in cluster i mod 2.",
        clients=100,
    )
    yield _of(
        "mnist",
        "mnist-rotated-ifca",
        description="MNIST, all of it in each of four rotations, for 1,200, 2,400 or 4,800 clients (IFCA)",
        paper=_IFCA,
        settings="240,000/m training images each, all test images dealt out in each rotation; pixels from 0 to 1.",
        truth="The rotation: client i is in cluster i mod 4.",
        clients=1200,
        samples=4 * 70_000,
    )
    yield _of(
        "cifar10",
        "cifar10-rotated",
        description="CIFAR-10 as it is and turned by 180°, 8 clients each (SR-FCA)",
        paper=_SRFCA,
        settings="Each cluster cuts all images into 16 pieces and uses 8; channels standardized.",
        truth="Turned or not: client i is in cluster i mod 2.",
        clients=16,
    )
    yield _of(
        "cifar10",
        "cifar10-classes",
        description="CIFAR-10, classes 0 to 5 for 8 clients and 4 to 9 for 8 others (SR-FCA)",
        paper=_SRFCA,
        settings="Each cluster cuts the images of its six classes into 16 pieces and uses 8; channels standardized.",
        truth="The classes: client i is in cluster i mod 2.",
        clients=16,
        samples=36_000,
    )


def by_person() -> Iterator[Preset]:
    """Clients that are people, and FedProx's partition of what some of them wrote."""
    yield _of(
        "mnist",
        "mnist-writers",
        description="MNIST by writer: 539 people, in two NIST series",
        paper=_QMNIST,
        settings="A client for each writer of the training images, whose images are split 90/10.",
        truth="The NIST series: 0 for Census Bureau employees (hsf_0), 1 for high-school students (hsf_4).",
        clients=539,
        samples=60_000,
        needs=(IMAGES["mnist"].file, "mnist_writers.npz"),
    )
    yield _of(
        "femnist",
        "femnist",
        description="LEAF FEMNIST by writer: digits and letters of 50 people, of all 62 classes",
        paper=f"{_LEAF}; {_SRFCA}; {_IFCA}",
        settings="50 writers drawn at random, about 227 images each, split 90/10; pixels from 0 to 1, on white.",
        truth=None,
        clients=50,
        samples=round(50 * 805_263 / 3550),  # the mean: whom a seed draws is known with the files only
    )
    yield _of(
        "femnist",
        "femnist-200",
        description="FEMNIST-200: 5 of the letters a to j for each of 200 clients (FedProx)",
        paper=f"{_FEDPROX}; {_FEDGROUP}; {_FLEXCFL}; {_FEDSIM}",
        settings="Letters u + j mod 10, j < 5; sizes LogNormal(4, 1) + 5; split 90/10. Without the published script's"
        " leak; compat_prefix=true gives every client the same first images, as the script does.",
        truth=None,
        clients=200,
        samples=17_395,
        classes=10,
    )
    yield _of(
        "chars74k",
        "chars74k",
        description="Chars74K by writer: 55 people, who wrote each of 62 characters once",
        paper=_CHARS74K,
        settings="A client for each writer, whose images are split 90/10; pixels from 0 to 1, on black.",
        truth=None,
        clients=55,
    )
    yield _of(
        "fed-mex",
        "fed-mex",
        description="Fed-MEx: exercises on a pressure mat, two each of 30 people (FedSim)",
        paper=_FEDSIM,
        settings="The published split; five pictures of 16×16 pressures an example.",
        truth=None,
        clients=30,
    )


def by_labels() -> Iterator[Preset]:
    """The plain images and FLAG's partitions of them."""
    for images, title in _NAMES.items():
        whose = _FLAG if images != "mnist" else None  # FLAG does not use MNIST
        yield _of(
            images,
            images,
            description=f"{title} for 100 clients alike, or with a partition of your choice",
            paper=None,
            settings="Training images by the partition (iid by default, without clusters), test images in proportion.",
            truth=None,
            clients=100,
        )
        for share, number in ((20, "five"), (30, "four")):
            groups = f"{number} groups with {share * IMAGES[images].classes // 100} labels"
            yield _of(
                images,
                f"{images}-skew{share}",
                description=f"{title} for 100 clients in {groups} each, unequal quantities (FLAG)",
                paper=whose,
                settings="Quantities by Dirichlet(alpha); tested on all test images of a client's labels.",
                truth="The group, whose clients own the same labels.",
                clients=100,
            )
        yield _of(
            images,
            f"{images}-dirichlet",
            description=f"{title} for 100 clients, labels by Dirichlet(0.25) for each (FLAG)",
            paper=whose,
            settings="Equally many training images; tested on all test images of the labels that a client has.",
            truth=None,
            clients=100,
        )
