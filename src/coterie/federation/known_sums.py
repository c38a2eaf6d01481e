"""`KnownSums`: sums of a per-example function that depends on the examples only, kept between requests."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from coterie.types import Array


@dataclass
class KnownSums:
    """Sums of a per-example function that depends on the examples only.

    Attributes:
        version: Version of the examples.
        computed: (clients,) whether the sums of a client are known.
        sums: Name → (clients, ...) sums.
    """

    version: int
    computed: Array
    sums: dict[str, Array] = field(default_factory=dict)

    def add(self, positions: Array, new: dict[str, Array]) -> None:
        """Store the sums of the clients at these positions."""
        for name, values in new.items():
            if name not in self.sums:
                self.sums[name] = np.zeros((len(self.computed), *values.shape[1:]), values.dtype)
            self.sums[name][positions] = values
        self.computed[positions] = True
