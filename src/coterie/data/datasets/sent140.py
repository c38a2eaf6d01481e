"""Sent140: positive and negative tweets, with one client per account.

Go, Bhayani, Huang, "Twitter Sentiment Classification using Distant Supervision", 2009, by account as in LEAF (Caldas
et al., arXiv:1812.01097), FedProx (arXiv:1812.06127), FedGroup (arXiv:2010.06870) and FlexCFL (arXiv:2108.09749): 25
words of a tweet as frozen vectors (see `coterie.data.formats.text`). A tweet is positive if its polarity is 4. LEAF's
files are used with their sample and split if they are available: 772 accounts in the papers. From the original file,
30 % of the accounts with at least 30 tweets are drawn at random, and each account's tweets are split 80/20: LEAF's
settings, but other accounts. The 498 original test tweets, which LEAF adds, are not used. The true clusters are
unknown.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.catalog import CATALOG
from coterie.data.checks import at_least, at_most, check_share
from coterie.data.federated import FederatedData, Index, aligned
from coterie.data.files import obtain
from coterie.data.formats import text
from coterie.data.formats.leaf import read_split
from coterie.data.partition import assemble
from coterie.data.partition.assembling import split
from coterie.errors import DataError
from coterie.seeds import Seed

#: Words per tweet.
WORDS = 25
#: Fraction of accounts in LEAF's sample.
SHARE = 0.3

_POLARITIES = ("0", "2", "4")
_HOW = 'Each line must be "polarity","id","date","query","account","text", polarity 0, 2 or 4, as published'

#: Tweets and labels of an account.
_Tweets = tuple[list[str], list[int]]


def sent140(
    *,
    clients: int = 0,
    min_samples: int = 30,
    vectors: text.Vectors = "auto",
    padding: text.Padding = "after",
    test_share: float = 0.2,
    seed: int = 0,
) -> FederatedData:
    """One client per account; its id is the account's name.

    Args:
        clients: Number of accounts, drawn at random; 0 for all in LEAF's files, or 30 % of those in the original file.
        min_samples: Minimum number of tweets per account, in the original file.
        vectors: Word vectors: "glove", random ones by hash ("hashed"), or GloVe's if available ("auto").
        padding: Where short tweets are padded: "after" the words, or "before" them as in FlexCFL.
        test_share: Fraction of each account's tweets used for testing, in the original file.
        seed: Random seed.
    """
    at_least("clients", clients, 0)
    check_share(test_share)
    origin = obtain(CATALOG["sent140"].files[0])
    draw = Seed(seed).fold("accounts")
    if not origin.published:
        tweets = {name: own for name, own in _read(origin.paths[0]).items() if len(own[1]) >= min_samples}
        if not tweets:
            raise DataError(
                f"{origin.paths[0]} has no account with {min_samples} tweets. Set min_samples to a smaller number"
            )
        names = _drawn(sorted(tweets), clients or max(1, round(SHARE * len(tweets))), draw)
        accounts = [_split(tweets[name], test_share, Seed(seed).fold("split", name)) for name in names]
    else:
        users = read_split(
            origin.paths, _is_tweet, "x must be a list with the tweet as fifth item, y one of 0, 1, 2, 4"
        )
        names = _drawn(list(users), clients or len(users), draw)
        accounts = [(_of_leaf(*users[name].train), _of_leaf(*users[name].test)) for name in names]
    parts = [[own[side] for own in accounts] for side in (0, 1)]  # training part first
    texts = [tweet for part in parts for own, _ in part for tweet in own]
    labels = np.array([label for part in parts for _, own in part for label in own], np.int32)
    made = text.embedded(texts, WORDS, vectors=vectors, padding=padding, seed=seed)
    fit, test = (_index([len(own) for _, own in part]) for part in parts)
    return assemble(
        "sent140",
        (aligned(made.x), labels),
        fit,
        tested=Index(test.order + len(fit.order), test.offsets),
        seed=seed,
        classes=2,
        tokens=len(made.table),
        table=made.table,
        clients=names,
        source=f"{origin.describe()}; {text.describe_vectors(vectors)}",
    )


def _drawn(names: Sequence[str], count: int, draw: Seed) -> list[str]:
    at_most("clients", count, len(names), "the number of accounts")
    return [names[i] for i in sorted(draw.sample(len(names), count))]


def _read(path: Path) -> dict[str, _Tweets]:
    """Tweets and labels by account, in the order of the file."""
    tweets: dict[str, _Tweets] = {}
    try:
        with path.open(encoding="latin-1", newline="") as stream:
            for number, row in enumerate(csv.reader(stream), start=1):
                if len(row) != 6 or row[0] not in _POLARITIES:
                    raise DataError(f"{path}, line {number}: {_HOW}")
                own = tweets.setdefault(row[4], ([], []))
                own[0].append(row[5])
                own[1].append(int(row[0] == "4"))
    except (OSError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}. {_HOW}") from error
    return tweets


def _split(tweets: _Tweets, test_share: float, seed: Seed) -> tuple[_Tweets, _Tweets]:
    texts, labels = tweets
    fit, test = (
        ([texts[i] for i in part], [labels[i] for i in part])
        for part in split(np.arange(len(labels)), test_share, seed)
    )
    return fit, test


def _is_tweet(x: Any, y: Any) -> bool:
    return isinstance(x, list) and len(x) >= 5 and isinstance(x[4], str) and str(y) in ("0", "1", "2", "4")


def _of_leaf(x: list[Any], y: list[Any]) -> _Tweets:
    # A positive tweet is 1 in LEAF's files and "4" in those of FedProx.
    return [each[4] for each in x], [int(str(each) in ("1", "4")) for each in y]


def _index(sizes: list[int]) -> Index:
    return Index.from_sizes(np.arange(sum(sizes)), np.array(sizes, np.int64))
