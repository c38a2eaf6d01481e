"""`Pool`: the processes of workers, as the transport sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from coterie.types import Array


class WorkerLost(Exception):
    """A worker has ended, or cannot be reached any more."""


class Pool(Protocol):
    """Workers in other processes. Calls of one worker run one after another."""

    def workers(self, arrays: Mapping[str, Array]) -> Sequence[Any]:
        """The workers that can be used now, at least one; new ones are started if there is room.

        Args:
            arrays: The examples, which new workers open.

        Raises:
            FederationError: If there is none, even after some time.
        """

    def put(self, value: object) -> Any:
        """Store a value where all workers can fetch it; returns what their `fetch` takes."""

    def submit(self, worker: Any, method: str, *args: object) -> Any:
        """Call a method of a `Worker`; returns a future."""

    def wait(self, futures: Sequence[Any], timeout: float | None = None) -> Sequence[Any]:
        """Wait until at least one future is done, or for so many seconds; returns those that are done."""

    def result(self, future: Any) -> Any:
        """The result of a future that is done.

        Raises:
            WorkerLost: If its worker was lost.
            Exception: What the method raised.
        """

    def drop(self, worker: Any) -> None:
        """Forget a lost worker."""

    def close(self) -> None:
        """End all workers."""
