"""The data sets of text with names, and where each comes from."""

from __future__ import annotations

from collections.abc import Iterator

from coterie.data import sources
from coterie.data.papers import goodreads, sent140, shakespeare
from coterie.data.preset import Preset
from coterie.data.text import said

_LEAF = "Caldas et al., LEAF, arXiv:1812.01097"
_FEDPROX = "Li et al., FedProx, MLSys 2020, arXiv:1812.06127"
_FEDGROUP = "Duan et al., FedGroup, ISPA 2021, arXiv:2010.06870"
_FLEXCFL = "Duan et al., FlexCFL, TPDS 2022, arXiv:2108.09749"
_SRFCA = "Vardhan et al., SR-FCA, TMLR 2024, arXiv:2210.11538"
_FEDSIM = "Palihawadana et al., FedSim, Neurocomputing 2022"

_TITLES = {module.FILE: module.TITLE for module in (goodreads, sent140, shakespeare)}
#: Those in which a frozen vector stands for each word.
_EMBEDDED = ("sent140", "goodreads-sentences")


def by_text() -> Iterator[Preset]:
    """What people and roles write and say."""
    yield Preset(
        "shakespeare",
        "Shakespeare's plays: the next character, for 50 roles (LEAF, SR-FCA)",
        f"{_LEAF}; {_SRFCA}",
        "50 roles drawn at random; 80 characters before the one to predict, of 80 kinds; the first 80 % for training."
        " SR-FCA: char-lstm, SGD 0.8, B = 10, 6 rounds × 400 batches.",
        None,
        50,
        200_247,
        80,
        (shakespeare.FILE,),
    )
    yield Preset(
        "sent140",
        "Sentiment140: positive tweets or not, by account, 25 words as frozen vectors (LEAF)",
        f"{_LEAF}; {_FEDPROX}; {_FEDGROUP}; {_FLEXCFL}",
        "Accounts with 30 tweets or more, three in ten of them; split 80/20. lstm (FedProx, FedGroup), bilstm and bigru"
        " (FlexCFL), SGD 0.3; FlexCFL fills short tweets up in front.",
        None,
        772,
        40_783,
        2,
        (sent140.FILE,),
    )
    few = "The published split, 355 and 130 sentences of 100 reviewers."
    yield Preset(
        "goodreads",
        "Fed-Goodreads: spoilers or not, by reviewer, sentences as counts of 2,517 words (FedSim)",
        _FEDSIM,
        f"{few} mclr, SGD 0.3.",
        None,
        100,
        485,
        2,
        (goodreads.FILE,),
    )
    yield Preset(
        "goodreads-sentences",
        "Fed-Goodreads: the same sentences as 40 words, each a frozen vector (FedSim)",
        _FEDSIM,
        f"{few} rnn, Adam 1e-4, E = 10.",
        None,
        100,
        485,
        2,
        (goodreads.FILE,),
    )


def source_of(preset: Preset) -> str:
    """Where a data set of text comes from, and which vectors stand for its words."""
    (file,) = preset.needs
    words = f"; {said('auto')}" if preset.name in _EMBEDDED else ""
    return f"{_TITLES[file]}, from {sources.found(file) or file}{words}"
