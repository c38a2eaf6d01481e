"""Requests and replies as bytes.

Requests that travel together are one message per client, in two parts. The common part is encoded once for all clients
that get the same requests; the own part has what concerns one client: its seed, its rows, its memory versions, a nonce.
Nothing of any other client is in it. Works are named, settings are plain values, tasks are recipes: no code is sent.

    common   version, run, backend, requests, values
    own      client, nonce, held, requests, values
    reply    version, nonce, seconds, replies

Values (models, arrays, recipes) are referred to by their hash and sent once per message, however many requests use
them. Cached values and recipes are sent only to clients that do not have them yet.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from coterie import codec, tree
from coterie.clients.schema import Settings, settings_dict
from coterie.clients.work import known_work
from coterie.errors import RecordError, SpecError
from coterie.federation.compression import Compression
from coterie.federation.messages import RESIDUAL, ReplyBatch, Request
from coterie.federation.traffic import HASH_BYTES
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Part

#: Version of the format. Server and clients must have the same.
VERSION = 1

#: Beginning of the reason why a client does not run a work that its owner has not agreed to.
NOT_ALLOWED = "not allowed"

#: Default limit for one message after decompression, in bytes.
MAX_BYTES = 1 << 30

#: Level of zstd: parameters hardly compress, whatever the level.
_LEVEL = 1


class WireError(RecordError):
    """A message from another machine that is not valid."""


class MissingValue(Exception):
    """A client does not have a value that a message refers to."""


@dataclass(frozen=True)
class Held:
    """How a client splits its training examples into `rest` and `held`, as in `FederatedData`."""

    share: float = 0.1
    seed: Seed = field(default_factory=lambda: Seed(0))


@dataclass
class Values:
    """Values by hash, encoded once.

    Attributes:
        encoded: Hash → encoded value.
    """

    encoded: dict[str, bytes] = field(default_factory=dict)

    def add(self, value: object) -> str:
        """Add a value; returns its hash."""
        data = codec.encode(value)
        digest = hash_of(data)
        self.encoded[digest] = data
        return digest


def hash_of(data: bytes) -> str:
    """The hash by which an encoded value is referred to."""
    return hashlib.blake2b(data, digest_size=HASH_BYTES).hexdigest()


# ------------------------------------------------------------------------------------------------------------- messages


def pack(content: Mapping[str, object]) -> bytes:
    """Encode and compress one part of a message."""
    return cast("bytes", _zstandard().ZstdCompressor(level=_LEVEL).compress(codec.encode(dict(content))))


def unpack(data: bytes, limit: int = MAX_BYTES) -> dict[str, Any]:
    """Decode one part of a message from another machine; it may contain only plain data.

    Raises:
        WireError: If it is malformed, too large, or of another version.
    """
    zstandard = _zstandard()
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= limit:  # -1: unknown size
            raise WireError(f"A message of {size} bytes is larger than the limit of {limit} bytes")
        content = codec.decode(zstandard.ZstdDecompressor().decompress(data), kinds=())
    except (zstandard.ZstdError, RecordError) as fault:
        raise WireError(f"A message cannot be read: {fault}") from fault
    if not isinstance(content, dict):
        raise WireError("A message cannot be read: it is not a dict")
    return content


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as fault:
        raise SpecError("Messages between machines need an extra: pip install 'coterie[network]'") from fault
    return zstandard


# ------------------------------------------------------------------------------------------------------ server → client


def common_part(request: Request, task: str, values: Values) -> dict[str, object]:
    """What all recipients of a request get.

    Args:
        request: The request.
        task: Hash of the recipe of its task.
        values: Collects the shared values.
    """
    return {
        "id": request.id,
        "work": request.work.name,
        "part": request.part,
        "task": task,
        "evaluating": request.evaluating,
        "settings": {name: settings_dict(value) for name, value in request.settings.items()},
        "shared": {name: values.add(value) for name, value in request.shared.items() if name not in request.cached},
        "cached": {name: digest for name, (digest, _) in request.cached.items()},
        "clipped": request.clipped,
        "max_update_norm": float(request.max_update_norm),
        "when": None if request.when is None else {"request": request.when[0], "answer": request.when[1]},
        "compressed": request.compressed,
        "compression": settings_dict(request.compression),
        "residual": request.residual,
        "after": None if request.after is None else common_part(request.after, task, values),
    }


def own_part(request: Request, client: ClientId, values: Values) -> dict[str, object]:
    """What one recipient of a request gets in addition.

    Args:
        request: The request.
        client: The recipient.
        values: Collects its rows and cached values.
    """
    place = request.clients.index(client)
    for name, (digest, attached) in request.cached.items():
        if client in attached:
            added = values.add(request.shared[name])
            assert added == digest
    return {
        "seed": request.client_seed(client),
        "effort": float(request.efforts.get(client, 1.0)),
        "version": request.versions.get(client),
        "version_before_round": request.versions_before_round.get(client),
        "versions_in_checkpoints": request.versions_in_checkpoints.get(client, ()),
        "rows": {name: values.add(tree.row(bank, int(row[place]))) for name, (bank, row) in request.per_client.items()},
        "always": client in request.always,
        "after": None if request.after is None else own_part(request.after, client, values),
    }


def request_for(
    client: ClientId, common: Mapping[str, Any], own: Mapping[str, Any], value: Callable[[str], object]
) -> Request:
    """The client's half: a request for this client alone.

    Args:
        client: The client.
        common: The common part of the request.
        own: The client's part of it.
        value: Hash → value.

    Raises:
        MissingValue: If the client does not have one of the values.
        WireError: If the parts are malformed.
    """
    try:
        return _request_for(client, common, own, value)
    except (AttributeError, KeyError, TypeError, ValueError, SpecError) as fault:
        raise WireError(f"A request cannot be read: {fault}") from fault


def _request_for(
    client: ClientId, common: Mapping[str, Any], own: Mapping[str, Any], value: Callable[[str], object]
) -> Request:
    work = known_work(common["work"])
    settings = {}
    for name, fields in common["settings"].items():
        schema = work.takes[name]
        if not isinstance(schema, Settings):
            raise WireError(f"Work {work.name!r} takes no settings {name!r}")
        settings[name] = schema.kind(**fields)
    shared = {name: value(digest) for name, digest in {**common["shared"], **common["cached"]}.items()}
    rows = {name: cast("Bank | Array", _stacked(value(digest))) for name, digest in own["rows"].items()}
    before, version = own["version_before_round"], own["version"]
    return Request(
        id=int(common["id"]),
        work=work,
        part=cast("Part", str(common["part"])),
        seed=Seed(0),
        clients=(client,),
        settings=settings,
        shared=shared,
        per_client={name: (bank, np.zeros(1, np.int64)) for name, bank in rows.items()},
        versions={} if version is None else {client: int(version)},
        versions_before_round={} if before is None else {client: int(before)},
        versions_in_checkpoints={client: tuple(int(each) for each in own["versions_in_checkpoints"])},
        own_seeds={client: own["seed"]},
        efforts={client: float(own["effort"])} if own["effort"] < 1 else {},
        evaluating=bool(common["evaluating"]),
        clipped=tuple(map(str, common["clipped"])),
        max_update_norm=float(common["max_update_norm"]),
        compressed=tuple(map(str, common["compressed"])),
        compression=Compression(**common["compression"]),
        residual=_residual(common),
        after=None if common["after"] is None else _request_for(client, common["after"], own["after"], value),
    )


def _residual(common: Mapping[str, Any]) -> str:
    """The name of the memory of compression; a server must not replace another memory of the client with it."""
    name = str(common["residual"])
    if bool(name) != bool(common["compressed"]) or (name and not name.startswith(f"{RESIDUAL}/")):
        raise WireError("A request cannot be read: it names no valid memory for compression")
    return name


def _stacked(value: object) -> object:
    """A row as a stack of one."""
    return tree.map(lambda leaf: np.asarray(leaf)[None], value)


# ------------------------------------------------------------------------------------------------------ client → server


def reply_part(batch: ReplyBatch) -> dict[str, object]:
    """The reply of one client to one request; compressed answers are sent in their compressed form."""
    (samples,) = np.asarray(batch.samples).tolist()
    answers = {**batch.answers, **batch.coded}
    return {"id": batch.request, "samples": samples, "answers": answers, "problem": batch.problem}


def replies_of(client: ClientId, data: bytes, nonce: str, limits: Limits) -> tuple[float, list[ReplyBatch]]:
    """The server's half: how long one client worked, in seconds, and its replies.

    Args:
        client: The client, as its key says.
        data: What it sent.
        nonce: The nonce of the message that it answers.
        limits: Limits of replies.

    Raises:
        WireError: If the reply is malformed, too large, or to another message.
    """
    content = unpack(data, limits.bytes)
    if content.get("version") != VERSION:
        raise WireError(f"has version {str(content.get('version'))[:20]} of the format, this server has {VERSION}")
    if content.get("nonce") != nonce:
        raise WireError("answers another message")
    replies = content.get("replies")
    if not isinstance(replies, list):
        raise WireError("has no list of replies")
    seconds = content.get("seconds")
    if not isinstance(seconds, float) or not 0 <= seconds < math.inf:
        raise WireError("does not state how long the client worked")
    return seconds, [_batch(client, reply, limits) for reply in replies]


@dataclass(frozen=True)
class Limits:
    """Limits of the replies of clients.

    Attributes:
        bytes: Size of one reply after decompression.
        samples: Number of examples that a client may state; its weight in means is proportional to it.
    """

    bytes: int = MAX_BYTES
    samples: int = 10_000_000


def _batch(client: ClientId, reply: object, limits: Limits) -> ReplyBatch:
    if not isinstance(reply, dict) or set(reply) != {"id", "samples", "answers", "problem"}:
        raise WireError("has no id, samples, answers and problem")
    number, samples, answers, problem = reply["id"], reply["samples"], reply["answers"], reply["problem"]
    if type(number) is not int or type(samples) is not int or not 0 <= samples <= limits.samples:
        raise WireError(f"states a number of examples that is not from 0 to {limits.samples}")
    if not isinstance(answers, dict) or not all(map(_is_answer, answers.values())):
        raise WireError("has answers that are not arrays")
    if problem is not None and (not isinstance(problem, str) or len(problem) > 200):
        raise WireError("has a problem that is not a short text")
    return ReplyBatch(number, (client,), np.array([samples]), answers, problem)


def _is_answer(value: object) -> bool:
    """Whether a value is an array, nested dicts of arrays, or a list of lists of arrays."""
    if isinstance(value, dict):
        return all(
            isinstance(key, str) and _is_answer(item) and not isinstance(item, list) for key, item in value.items()
        )
    if isinstance(value, list):
        return all(isinstance(items, list) and all(isinstance(item, np.ndarray) for item in items) for items in value)
    return isinstance(value, np.ndarray)
