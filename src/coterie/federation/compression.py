"""The `compression` section: which answers clients compress, and to how many bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from coterie import tree
from coterie.bounds import Bound, check
from coterie.clients.schema import Model
from coterie.clients.update_compression import largest_entries, quantized
from coterie.clients.work import Work
from coterie.errors import SpecError
from coterie.models import trainable
from coterie.types import Array, Bank, Params

#: Default of `fraction`.
FRACTION = 0.1


@dataclass(frozen=True)
class Compression:
    """Settings of the `compression` section.

    A client compresses its update a, adds what was lost before, and keeps what is lost now (error feedback):

        C(a + e) is sent,    e ← a + e - C(a + e)

    It keeps one e for each work, whatever the number of models that the server trains with it.

    Attributes:
        updates: Compression of the updates that clients send: none; int8, 8 bits per entry and a scale per array; or
            top-k, the entries of largest magnitude.
        fraction: Fraction of the entries that top-k sends.
    """

    updates: Literal["none", "int8", "top-k"] = "none"
    fraction: Annotated[float, Bound(above=0, at_most=1)] = FRACTION

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "compression")
        if self.fraction != FRACTION and self.updates != "top-k":
            raise SpecError(
                f"compression.fraction = {self.fraction:g} needs compression.updates = 'top-k', got {self.updates!r}"
            )

    def entries(self, d: int) -> int:
        """The number of entries that top-k sends of an update with d entries: ⌈fraction · d⌉."""
        return max(1, math.ceil(round(self.fraction * d, 6)))  # 0.07 · 100 is slightly more than 7

    def compress(self, updates: Array, sizes: Sequence[int]) -> dict[str, Array]:
        """Compress updates, one per row; `sizes` are the numbers of entries of the arrays of a model."""
        return (
            quantized(updates, sizes) if self.updates == "int8" else largest_entries(updates, self.entries(sum(sizes)))
        )

    def nbytes(self, bank: Bank) -> int:
        """Bytes of the compressed updates of a bank of models; running statistics are sent in full."""
        parts = tree.leaves(trainable(bank))
        rows = max(len(parts[0]), 1)
        rest = tree.nbytes(bank) - tree.nbytes(trainable(bank))
        return rows * self._nbytes([leaf.size // rows for leaf in parts]) + rest

    def _nbytes(self, sizes: Sequence[int]) -> int:
        return sum(sizes) + 4 * len(sizes) if self.updates == "int8" else 8 * self.entries(sum(sizes))

    def answers(self, work: Work, template: Params) -> tuple[str, ...]:
        """Names of the answers of a work that clients compress.

        These are models trained from one that the client was sent, updates and gradients. A work with a memory sends
        the client's own model, which is no update of what the server has: it is not compressed. Neither are partial
        models, nor models that would not get smaller.

        Args:
            work: The work.
            template: A model of the task.
        """
        sizes = [int(leaf.size) for leaf in tree.leaves(trainable(template))]
        if self.updates == "none" or work.memory is not None or self._nbytes(sizes) >= 4 * sum(sizes):
            return ()
        models = {name: schema for name, schema in work.gives.items() if isinstance(schema, Model)}
        return tuple(sorted(name for name, schema in models.items() if not schema.stack and not schema.partial))
