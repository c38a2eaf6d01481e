"""Replies with compressed updates: what a client sends and keeps, and the models that the server rebuilds.

Both sides compute start + C(a + e) with the same function, so that simulated and remote clients give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from coterie import tree
from coterie.clients.update_compression import decompressed
from coterie.federation.messages import Answer, Request
from coterie.federation.starts import reply_starts
from coterie.models import trainable
from coterie.types import Array, Bank, Params


class CompressedReplies(NamedTuple):
    """Answers of some clients after compression.

    Attributes:
        answers: The answers as the server gets them.
        coded: Name → the compressed form of an answer, which is sent instead of it.
        residuals: What each client keeps: name → (d,), the part of its update that it did not send.
    """

    answers: Mapping[str, Answer]
    coded: Mapping[str, Bank]
    residuals: list[Params]


def compress_answers(
    request: Request, answers: Mapping[str, Answer], residuals: Sequence[Params | None]
) -> CompressedReplies:
    """Compress the answers of the clients of a request that it names.

    Args:
        request: The request.
        answers: The answers of all its clients.
        residuals: What each client kept in the version that the request names; None: nothing.
    """
    sent, coded = dict(answers), {}
    kept: list[Params] = [{} for _ in request.clients]
    for name in request.compressed:
        bank = answers[name]
        assert isinstance(bank, dict)
        starts = reply_starts(request, name, request.clients, answers)
        with np.errstate(invalid="ignore", over="ignore"):  # a model that is not finite is rejected by the server
            wanted = tree.flatten_rows(trainable(bank))
            if starts is not None:
                wanted = wanted - tree.flatten_rows(trainable(starts))
            wanted = wanted + _stacked(residuals, name, wanted)
            code = request.compression.compress(wanted, sizes_of(bank))
            lost = wanted - decompressed(code, sizes_of(bank))
        rest = statistics_of(bank)
        sent[name] = rebuilt(bank, starts, code, rest)
        coded[name] = {**code, "rest": rest}
        for place, row in enumerate(lost):
            kept[place][name] = row.copy()  # a view would keep the rows of all clients in memory
    return CompressedReplies(sent, coded, kept)


def rebuilt(like: Bank, starts: Bank | None, coded: Mapping[str, Array], rest: Mapping[str, Array]) -> Bank:
    """Models from compressed updates: start + C(a + e).

    Args:
        like: A bank with the structure of the result.
        starts: The model from which each client started; None: the answers are updates or gradients.
        coded: Compressed updates.
        rest: Path → running statistics, which are not compressed.
    """
    vectors = decompressed(coded, sizes_of(like))
    with np.errstate(invalid="ignore", over="ignore"):
        if starts is not None:
            vectors = tree.flatten_rows(trainable(starts)) + vectors
    offset = 0

    def take(path: str, leaf: Array) -> Array:
        nonlocal offset
        if path in rest:
            return rest[path]
        width = leaf[0].size
        part = vectors[:, offset : offset + width]
        offset += width
        return np.ascontiguousarray(part.reshape(len(vectors), *leaf.shape[1:]))

    return tree.map_paths(take, like)


def sizes_of(bank: Bank) -> list[int]:
    """Number of entries of each array of a model whose updates are compressed."""
    return [int(leaf[0].size) for leaf in tree.leaves(trainable(bank))]


def statistics_of(bank: Bank) -> dict[str, Array]:
    """Path → running statistics of a bank, which are sent in full: with an error, a variance could be negative."""
    compressed = {path for path, _ in tree.paths(trainable(bank))}
    return {path: leaf for path, leaf in tree.paths(bank) if path not in compressed}


def _stacked(residuals: Sequence[Params | None], name: str, like: Array) -> Array:
    """The residuals of all clients; zeros for clients without one."""
    rows = np.zeros_like(like)
    for place, residual in enumerate(residuals):
        if residual is not None:
            rows[place] = residual[name]
    return rows
