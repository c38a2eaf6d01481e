"""The server's half of compressed answers: check what a client sent, and rebuild the models that it stands for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import cast

import numpy as np

from coterie import tree
from coterie.federation.compressed_replies import rebuilt, sizes_of, statistics_of
from coterie.federation.messages import Answer, ReplyBatch, Request
from coterie.federation.network.wire import WireError
from coterie.federation.starts import repeated, reply_starts
from coterie.types import Array, Bank, Params


def rebuilt_batch(request: Request, batch: ReplyBatch, template: Params) -> ReplyBatch:
    """The reply of one client with the models instead of their compressed updates.

    Args:
        request: The request that it answers.
        batch: The reply as it was received.
        template: A model of the task.

    Raises:
        WireError: If a compressed answer is malformed.
    """
    if not request.compressed:
        return batch
    if batch.problem is not None or batch.request != request.id or batch.clients[0] not in request.clients:
        return dataclasses.replace(batch, answers={})  # it is rejected, whatever the answers are
    answers = dict(batch.answers)
    like = repeated(template, 1)
    for name in request.compressed:
        coded = _checked(request, batch.answers.get(name), like)
        rest = cast("dict[str, Array]", coded.pop("rest"))
        starts = _starts(request, name, batch)
        answers[name] = rebuilt(like, starts, cast("dict[str, Array]", coded), rest)
    return dataclasses.replace(batch, answers=answers)


def _checked(request: Request, coded: Answer | None, like: Bank) -> Bank:
    """The compressed form of a model, if all its arrays have the expected types and shapes."""
    sizes, rest = sizes_of(like), statistics_of(like)
    d = sum(sizes)
    k = request.compression.entries(d)
    expected = {
        "int8": {"levels": ("int8", (1, d)), "scales": ("float32", (1, len(sizes)))},
        "top-k": {"indices": ("int32", (1, k)), "values": ("float32", (1, k))},
    }[request.compression.updates]
    if not isinstance(coded, dict) or set(coded) != {*expected, "rest"} or not isinstance(coded["rest"], dict):
        raise WireError(f"has an answer that is not compressed with {request.compression.updates}")
    for name, (dtype, shape) in expected.items():
        _check_array(name, coded[name], dtype, shape)
    if set(coded["rest"]) != set(rest):
        raise WireError("has a compressed answer without the running statistics of the model")
    for path, leaf in rest.items():
        _check_array(path, coded["rest"][path], str(leaf.dtype), leaf.shape)
    indices = coded.get("indices")
    if indices is not None and (indices.min() < 0 or indices.max() >= d or (np.diff(indices) <= 0).any()):
        raise WireError(f"has indices that are not increasing from 0 to {d - 1}")
    return dict(coded)


def _check_array(name: str, value: object, dtype: str, shape: tuple[int, ...]) -> None:
    if not isinstance(value, np.ndarray) or value.dtype != np.dtype(dtype) or value.shape != shape:
        raise WireError(f"has a compressed answer whose {name[:40]} are not {dtype} of shape {shape}")


def _starts(request: Request, name: str, batch: ReplyBatch) -> Bank | None:
    """The model from which the client started; the choice that it may depend on is checked first."""
    if "start" not in request.work.takes and "heads" in request.work.takes:
        choice, heads = batch.answers.get("choice"), _rows_of_heads(request)
        valid = isinstance(choice, np.ndarray) and choice.shape == (1,) and choice.dtype.kind in "iu"
        if not valid or not 0 <= int(cast("Array", choice)[0]) < heads:
            raise WireError(f"has a choice that is not from 0 to {heads - 1}")
    return reply_starts(request, name, batch.clients, batch.answers)


def _rows_of_heads(request: Request) -> int:
    """The number of models among which clients choose."""
    shared: Mapping[str, object] = request.shared
    if "heads" in shared:
        return tree.rows(cast("Bank", shared["heads"]))
    heads, _ = request.per_client["heads"]
    return tree.rows(tree.row(heads, 0))
