"""`RaySettings`: the `ray` section of a spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from coterie.bounds import Bound, check
from coterie.errors import SpecError, shown


@dataclass(frozen=True)
class RaySettings:
    """Settings of `run.backend = "ray"`. Results do not depend on them.

    Attributes:
        address: local, which starts Ray on this machine; auto, the cluster of this machine; ray://HOST:PORT or
            HOST:PORT, another cluster.
        workers: Number of worker processes; 0: as many as the cores of the cluster allow.
        threads_per_worker: Threads of each worker, which are also the cores that Ray reserves for it.
    """

    address: str = "local"
    workers: Annotated[int, Bound(at_least=0)] = 0
    threads_per_worker: Annotated[int, Bound(at_least=1)] = 1

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "ray")
        if self.address not in ("local", "auto") and ":" not in self.address.removeprefix("ray://"):
            raise SpecError(
                f"ray.address must be local, auto, ray://HOST:PORT or HOST:PORT, got {shown(self.address)}; ray start "
                "prints the address of a cluster"
            )
