"""`Work`: a named computation that a method can ask clients to run.

A work is made of up to three functions, which run in this order:

    plan    NumPy, on the host: the batches (positions of examples), from the number of examples and a seed
    each    traced by JAX: values per example, which the federation adds up for each client
    body    traced by JAX: the reply, from the planned batches, the sums of `each` and the client's memory

Alternatively it is one function:

    plain   NumPy: the reply, from the examples of one client; for computations that cannot be batched

The simulator runs `body` for a whole cohort in one compiled call, and `each` on the examples of many clients at once. A
network client runs the same functions on its own examples. Functions receive the values sent by the method as keyword
arguments (`plan` and `lengths` only the settings); `takes` and `gives` declare the values sent and returned.

With `each` alone, the sums over examples are the reply. For example, the number of correct answers of a model:

    def _correct(task, x, y, *, params):
        return {"correct": task.hits(task.outputs(params, x), y)}  # (rows,)

    correct = Work(
        "mylab.correct",
        takes={"params": Model()},
        gives={"correct": Values("float32")},
        each=_correct,
        trains=False,
    )

    replies = fed.ask(cohort, correct, seed, params=params)
    replies["correct"]  # (replies,), one sum per client

With `plan` and `body`: local training that also returns the distance from the initial model. `plan` and `lengths` of
`coterie.clients.local_training` draw the batches that `train` uses:

    def _fit(task, client, *, start, local):
        trained = train(task, start, client, local)
        moves = tree.map(lambda after, before: jnp.sum((after - before) ** 2), trained["params"], start)
        return {**trained, "distance": jnp.sqrt(sum(tree.leaves(moves)))}

    fit_with_distance = Work(
        "mylab.fit",
        takes={"start": Model(), "local": Settings(LocalSGD)},
        gives={**TRAINED, "distance": Values("float32")},
        stream="batches",
        plan=plan,
        lengths=lengths,
        body=_fit,
        trains=True,
    )
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from coterie.clients.schema import Model, Schema
from coterie.errors import SpecError, unknown
from coterie.types import Params, TracedArray

Carry = TypeVar("Carry")

#: Maximum number of examples in one matrix product. XLA splits larger products by the number of cores, and the bytes of
#: the result would depend on it.
CHUNK = 512


@dataclass(frozen=True)
class Steps:
    """The planned batches of one client.

    Attributes:
        index: (rows, width) int32, positions among the client's examples, -1 for padding; width at most 512.
        last: (rows,) bool, for batches that span several rows: true on the last row of a batch. None: each row is a
            batch.
    """

    index: npt.NDArray[np.int32]
    last: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Batch:
    """One row of planned examples inside a traced body.

    Attributes:
        x: Inputs.
        y: Labels or targets.
        weight: 1 for an example, 0 for padding.
        sample_weight: Weight of each example in the loss, 0 for padding; None: all examples count 1.
    """

    x: TracedArray
    y: TracedArray
    weight: TracedArray
    sample_weight: TracedArray | None = None


@dataclass(frozen=True)
class Batches:
    """Planned batches inside a traced body.

    Attributes:
        count: Number of rows of the plan (traced).
        take: Row number → examples of the row.
        last: Row number → whether a batch ends in this row; None: each row is a batch.
        weighted: Whether the examples have sample weights.
    """

    count: TracedArray
    take: Callable[[TracedArray], Batch]
    last: Callable[[TracedArray], TracedArray] | None = None
    weighted: bool = False

    def fold(self, fn: Callable[[TracedArray, Carry], Carry], start: Carry) -> Carry:
        """Apply `carry = fn(row number, carry)` to all rows in order, beginning with `start`."""
        from jax import lax

        result: Carry = lax.fori_loop(0, self.count, fn, start)
        return result


@dataclass(frozen=True)
class Client:
    """One client inside a traced body.

    Attributes:
        n: Number of examples of the requested part.
        key: `jax.random` key of this client and request.
        batches: Planned batches by name.
        sums: Sums of `each` over the client's examples, by name.
        memory: Memory written by the last request whose reply the server accepted, or the work's blank memory.
        weight: Sum of the sample weights of the requested part; None: the data have none.
    """

    n: TracedArray
    key: TracedArray
    batches: Mapping[str, Batches] = field(default_factory=dict)
    sums: Mapping[str, TracedArray] = field(default_factory=dict)
    memory: Params = field(default_factory=dict)
    weight: TracedArray | None = None


@dataclass(frozen=True, eq=False)
class Work:
    """A named computation that clients can run. The module docstring explains its functions, with examples.

    Attributes:
        name: Unique name. A network client runs works by name; code is never sent.
        takes: Schemas of the values sent, by name.
        gives: Schemas of the values returned, by name. Every reply also has the client's number of examples.
        purpose: Purpose under which the bytes of models and arrays are counted.
        stream: Name of the random stream. The main local training of a round uses `batches` in every method, so that
            methods that should agree do so to the bit. Default: the name of the work.
        plan: (n, seed, effort, **sent settings) → batches by name.
        lengths: (n, **sent settings) → maximum number of rows of each plan; required with `plan`.
        each: (task, x, y, **sent) → values per example by name, (rows, ...).
        body: (task, client, **sent) → reply. Without it, the sums of `each` are the reply.
        plain: (task, x, y, seed, **sent) → reply; also gets `memory` if the work has one.
        memory: Name of the client memory that this work uses; works may share one. The reply must contain the new
            `memory`, which stays with the client.
        recalls: Whether the work only reads the memory; then its reply contains no `memory`.
        blank: (task, **sent settings) → initial memory of a client; required with `memory`. Works that share a memory
            see the entries that their own `blank` has.
        trains: Whether the client trains a model. Evaluation never trains: there such a work gets no reply.
        weighted: Whether sample weights apply: values of `each` are multiplied by the weight of their example, and
            `plain` gets `sample_weight`, which is None if the data have no weights. Batches of a `body` always have
            the weights.
        simulation_only: Whether only simulated clients run it, because its reply shows single examples.
        of_examples: Whether `each` depends on the examples only, not on sent values or the seed. Its sums are then
            computed once, and again when the examples of a client change.
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
    trains: bool = field(kw_only=True)
    weighted: bool = field(default=False, kw_only=True)
    simulation_only: bool = field(default=False, kw_only=True)
    of_examples: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        """Check that the functions fit together, and register the work."""
        if self.plain is not None and (self.plan or self.each or self.body):
            raise SpecError(f"Work {self.name!r} is plain and cannot have plan, each or body")
        if self.plain is None and self.each is None and self.body is None:
            raise SpecError(f"Work {self.name!r} has no function: give it each, body or plain")
        if (self.plan is None) != (self.lengths is None) or (self.plan is not None and self.body is None):
            raise SpecError(f"Work {self.name!r} needs plan, lengths and body together")
        if (self.memory is None) != (self.blank is None):
            raise SpecError(f"Work {self.name!r} needs memory and blank together")
        chosen = {"base", "heads"} <= set(self.takes) and "choice" in self.gives
        for name, schema in self.gives.items():
            if isinstance(schema, Model) and schema.moved and "start" not in self.takes and not chosen:
                raise SpecError(
                    f"Work {self.name!r} gives {name!r} as a moved model, but takes no initial model: it must take "
                    "start, or take base and heads and give a choice"
                )
        if not self.stream:
            object.__setattr__(self, "stream", self.name)
        known = _KNOWN.get(self.name)
        if known is not None and known.functions() != self.functions():
            raise SpecError(f"There is already a work {self.name!r}; names must be unique, choose another")
        _KNOWN[self.name] = self

    def functions(self) -> tuple[str, ...]:
        """Names of the functions, to distinguish a reloaded module from two works with the same name."""
        parts = (self.plan, self.each, self.body, self.plain)
        return tuple(f"{part.__module__}.{part.__qualname__}" for part in parts if part is not None)


_KNOWN: dict[str, Work] = {}


def known_work(name: str) -> Work:
    """The work with this name.

    Raises:
        SpecError: If there is none; lists the known names.
    """
    if name not in _KNOWN:
        raise SpecError(unknown("work", name, _KNOWN))
    return _KNOWN[name]
