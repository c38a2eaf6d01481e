"""Simulated faults: replies that are lost, late, duplicated, not finite or of the wrong shape, drawn by seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from coterie import tree
from coterie.bounds import Bound, check
from coterie.errors import SpecError
from coterie.federation.messages import Answer, ReplyBatch, Request
from coterie.federation.transport import Transport, TransportWrapper
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array

Probability = Annotated[float, Bound(at_least=0, at_most=1)]


@dataclass(frozen=True)
class Faults:
    """Settings of the `faults` section: probability of each fault per reply. A reply has at most one fault.

    Attributes:
        drop: Probability that a reply is lost.
        late: Probability that a reply arrives after the deadline and is rejected.
        duplicate: Probability that a reply arrives twice; the second copy is rejected.
        nan: Probability of NaN in the reply, which is then rejected.
        shape: Probability that the arrays of a reply have the wrong shape; it is then rejected.
    """

    drop: Probability = 0.0
    late: Probability = 0.0
    duplicate: Probability = 0.0
    nan: Probability = 0.0
    shape: Probability = 0.0

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "faults")
        total = sum(dataclasses.asdict(self).values())
        if total > 1 + 1e-9:
            raise SpecError(f"The probabilities of all faults must add up to at most 1, got {total:g}")

    def draw(self, seed: Seed) -> str | None:
        """The fault that happens to one reply, or None."""
        u = float(seed.uniform(1)[0])
        for name, probability in dataclasses.asdict(self).items():
            if u < probability:
                return str(name)
            u -= probability
        return None


class FaultTransport(TransportWrapper):
    """A transport that adds faults to replies, after the clients have done their work and stored their memory."""

    def __init__(self, transport: Transport, faults: Faults, seed: Seed) -> None:
        """Add faults to a transport."""
        super().__init__(transport)
        self._faults = faults
        self._seed = seed

    def on(self, task: Task) -> FaultTransport:
        """Return a transport with the same faults and another task."""
        return FaultTransport(self._transport.on(task), self._faults, self._seed)

    def send(self, request: Request) -> Iterator[ReplyBatch]:
        """Send the request and add faults to the replies. Evaluation has no faults."""
        for batch in self._transport.send(request):
            if batch.problem is not None or request.evaluating:
                yield batch
                continue
            # Drawn by request id and client, so that a resumed run has the same faults.
            faults = [self._faults.draw(self._seed.fold("fault", request.id, client)) for client in batch.clients]
            in_time = [place for place, fault in enumerate(faults) if fault in (None, "duplicate", "nan")]
            if in_time:
                yield _with_nan(batch.take(in_time), np.array([faults[place] == "nan" for place in in_time]))
            for place, fault in enumerate(faults):
                one = batch.take([place])
                if fault == "duplicate":
                    yield one
                elif fault == "late":
                    yield dataclasses.replace(one, late=True)
                elif fault == "shape":
                    yield dataclasses.replace(one, answers={k: _wrong_shape(v) for k, v in one.answers.items()})


def _with_nan(batch: ReplyBatch, replies: Array) -> ReplyBatch:
    """The batch with all floats of some replies set to NaN."""
    if not replies.any():
        return batch

    def set_rows(leaf: Array) -> Array:
        if leaf.dtype.kind != "f":
            return leaf
        leaf = leaf.copy()
        leaf[replies] = np.nan
        return leaf

    def changed(value: Answer) -> Answer:
        if isinstance(value, list):
            pairs = zip(value, replies, strict=True)
            return [[_nan_like(array) for array in arrays] if bad else arrays for arrays, bad in pairs]
        return tree.map(set_rows, value)

    return dataclasses.replace(batch, answers={name: changed(value) for name, value in batch.answers.items()})


def _nan_like(array: Array) -> Array:
    return np.full_like(array, np.nan) if array.dtype.kind == "f" else array


def _wrong_shape(value: Answer) -> Answer:
    if isinstance(value, list):
        return [[array[None] for array in arrays] for arrays in value]
    return tree.map(lambda leaf: leaf[..., None], value)
