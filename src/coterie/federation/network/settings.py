"""`NetworkSettings`: the `network` section of a spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from coterie.bounds import Bound, check


@dataclass(frozen=True)
class NetworkSettings:
    """Settings of a federation between machines (coterie serve).

    Attributes:
        clients: Number of clients that must have joined before the run begins.
        wait: Seconds to wait for clients: for `clients` before the run begins, for `min_replies` before a round.
        deadline: Seconds after which the reply of a client is late; the client is away until it answers again.
        min_replies: Minimum number of valid replies to a request; with fewer, the round is skipped.
        max_reply_bytes: Largest reply of a client after decompression, in bytes.
        max_samples: Largest number of examples that a client may state; its weight in means is proportional to it.
        merge: Whether requests of evaluations travel with those of the next rounds. The line of a round is then written
            when its scores have arrived, up to three rounds later.
    """

    clients: Annotated[int, Bound(at_least=1)] = 2
    wait: Annotated[float, Bound(above=0)] = 3600.0
    deadline: Annotated[float, Bound(above=0)] = 600.0
    min_replies: Annotated[int, Bound(at_least=1)] = 1
    max_reply_bytes: Annotated[int, Bound(at_least=1024)] = 1 << 30
    max_samples: Annotated[int, Bound(at_least=1)] = 10_000_000
    merge: bool = True

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "network")
