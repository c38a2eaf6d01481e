"""Work: what a client can be asked to do, by name.

A work has up to three parts that run in this order, or is plain:

    plan    on the host, in NumPy: which examples in which order, from the number of examples and a seed
    each    a function of single examples, whose values the federation adds up per client in chunks of at most 512 rows
    body    traced by JAX: from the planned batches, the sums of `each` and the client's memory to the answer
    plain   NumPy on one client's examples, for what cannot be batched (class subspaces)

The simulator fuses plan and body of a whole cohort into one compiled call and runs `each` over the examples of many
clients at once; a network client runs the same functions on its own examples. Nothing here knows which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.clients.schema import Model, Schema
from coterie.errors import SpecError, unknown
from coterie.types import Params

#: Rows of examples that go into one product at the most: larger ones are split by core, and sums would depend on it.
CHUNK = 512


@dataclass(frozen=True)
class Steps:
    """A client's batches: positions among its own examples, -1 where a batch is short.

    Attributes:
        index: (steps, width) int32, width at most 512.
        last: (steps,) bool, where one batch is spread over several rows: true on its last row. None where each row
            is a batch of its own.
    """

    index: npt.NDArray[np.int32]
    last: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Batch:
    """Examples inside a traced body; `weight` is 1 for an example and 0 for filling."""

    x: Any
    y: Any
    weight: Any


@dataclass(frozen=True)
class Batches:
    """Planned batches inside a traced body.

    Attributes:
        count: How many rows the plan has (traced).
        take: Row number → Batch.
        last: Row number → whether a batch ends there; None where each row is a batch.
    """

    count: Any
    take: Callable[[Any], Batch]
    last: Callable[[Any], Any] | None = None

    def fold(self, fn: Callable[[Any, Any], Any], start: Any) -> Any:
        """`fn(row number, carried)` over all rows, one after the other."""
        from jax import lax

        return lax.fori_loop(0, self.count, fn, start)


@dataclass(frozen=True)
class Client:
    """What a traced body sees of its client.

    Attributes:
        n: The number of examples of the part asked for.
        key: A `jax.random` key of its own.
        batches: The plan's batches by name.
        sums: What `each` added up, by name.
        memory: What the client kept from the last ask that the server accepted, or the work's blank memory.
    """

    n: Any
    key: Any
    batches: Mapping[str, Batches] = field(default_factory=dict)
    sums: Mapping[str, Any] = field(default_factory=dict)
    memory: Params = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Work:
    """A named piece of work; see the module's text for its parts.

    Attributes:
        name: Under which clients know it.
        takes: What is sent, by name.
        gives: What comes back, by name; each client's number of examples comes with every reply.
        purpose: Whose bytes its models are in the ledger.
        stream: The name of its seeds: `batches` for the main local training of a round, whatever the method is
            called, so that identities between methods hold to the bit; its own name otherwise.
        plan: (n, seed, effort, **sent settings) → batches by name.
        lengths: (n, **sent settings) → how many rows each plan has at the most; needed beside `plan`.
        each: (task, x, y, **sent) → values per example, (rows, ...) by name.
        body: (task, client, **sent) → answer. Without it the sums of `each` are the answer.
        plain: (task, x, y, seed, **sent) → answer; gets `memory` too where it has one.
        memory: The name of the client's memory that this work reads; works may share one. The answer of its body
            must hold the new `memory`, which stays with the client.
        recalls: Whether the work only reads its memory.
        blank: task → the memory of a client that has none.
    """

    name: str
    takes: Mapping[str, Schema]
    gives: Mapping[str, Schema]
    purpose: str = "train"
    stream: str = ""
    plan: Callable[..., dict[str, Steps]] | None = None
    lengths: Callable[..., dict[str, int]] | None = None
    each: Callable[..., dict[str, Any]] | None = None
    body: Callable[..., dict[str, Any]] | None = None
    plain: Callable[..., dict[str, Any]] | None = None
    memory: str | None = None
    recalls: bool = False
    blank: Callable[..., Params] | None = None

    def __post_init__(self) -> None:
        """Register the name; refuse parts that do not go together."""
        if self.plain is not None and (self.plan or self.each or self.body):
            raise SpecError(f"Work {self.name!r} is plain and can have no plan, each or body")
        if self.plain is None and self.each is None and self.body is None:
            raise SpecError(f"Work {self.name!r} has nothing to do: give it each, body or plain")
        if (self.plan is None) != (self.lengths is None) or (self.plan is not None and self.body is None):
            raise SpecError(f"Work {self.name!r} needs plan, lengths and body together")
        if (self.memory is None) != (self.blank is None):
            raise SpecError(f"Work {self.name!r} needs memory and blank together")
        chosen = {"base", "heads"} <= set(self.takes) and "choice" in self.gives
        for name, schema in self.gives.items():
            if isinstance(schema, Model) and schema.moved and "start" not in self.takes and not chosen:
                raise SpecError(
                    f"Work {self.name!r} gives {name!r} as a moved model, but takes none to move from: it needs start, "
                    "or base and heads with a choice among what it gives"
                )
        if not self.stream:
            object.__setattr__(self, "stream", self.name)
        known = _KNOWN.get(self.name)
        if known is not None and known.functions() != self.functions():
            raise SpecError(f"There is a work {self.name!r} already; names are what the network goes by")
        _KNOWN[self.name] = self

    def functions(self) -> tuple[str, ...]:
        """Where the parts are written, to tell a module that is loaded again from two works of one name."""
        parts = (self.plan, self.each, self.body, self.plain)
        return tuple(f"{part.__module__}.{part.__qualname__}" for part in parts if part is not None)


_KNOWN: dict[str, Work] = {}


def known_work(name: str) -> Work:
    """The work of this name, or an error that lists the names that this client knows."""
    if name not in _KNOWN:
        raise SpecError(unknown("work", name, _KNOWN))
    return _KNOWN[name]
