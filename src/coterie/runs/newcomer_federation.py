"""The federation on which a newcomer is placed: the newcomer alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from coterie.clients.work import Work
from coterie.errors import SpecError
from coterie.federation import Cohort, Replies, Server, Traffic
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params


class NewcomerFederation:
    """A federation of the newcomer and of its repetitions: requests to the clients of the run get no reply.

    Attributes:
        server: Reaches the newcomer.
    """

    def __init__(self, server: Server, *, labeled: bool) -> None:
        """Create the federation.

        Args:
            server: Reaches the newcomer.
            labeled: Whether the labels of its examples are known; otherwise it cannot be asked anything.
        """
        self.server = server
        self._placing = server.placing()
        self._labeled = labeled
        self._seen: set[str] = set()  # shared with the federations of other tasks

    @property
    def asked(self) -> bool:
        """Whether the newcomer was asked for anything."""
        return "asked" in self._seen

    @property
    def trained(self) -> bool:
        """Whether the newcomer had to train."""
        return "trained" in self._seen

    @property
    def others(self) -> bool:
        """Whether clients of the run would have been asked."""
        return "others" in self._seen

    @property
    def clients(self) -> Sequence[ClientId]:
        """Client ids, sorted."""
        return self.server.clients

    @property
    def task(self) -> Task:
        """The task that the clients learn."""
        return self.server.task

    @property
    def traffic(self) -> Traffic:
        """Bytes sent down and up."""
        return self.server.traffic

    @property
    def robust(self) -> bool:
        """Whether models are averaged by a robust rule."""
        return self.server.robust

    def average(self, bank: Bank, weights: Sequence[float] | Array, **about: Any) -> Params:
        """Average a bank of models; see `Federation.average`."""
        return self._placing.average(bank, weights, **about)

    def on(self, task: Task) -> NewcomerFederation:
        """The same newcomer with another task."""
        other = NewcomerFederation(self.server.on(task), labeled=self._labeled)
        other._seen = self._seen
        return other

    def ask(self, cohort: Cohort | Iterable[ClientId], work: Work, seed: Seed, /, **given: Any) -> Replies:
        """Ask the newcomer; see `Federation.ask`."""
        clients, known = list(cohort), set(self.clients)
        present = [client for client in clients if client in known]
        if len(present) < len(clients):
            self._seen.add("others")
        if present and not self._labeled:
            raise SpecError(
                f"The method needs labels to place a newcomer (work {work.name!r}); give the labels of the examples"
            )
        if present:
            self._seen.update({"asked", "trained"} if work.trains else {"asked"})
        return self._placing.ask(present, work, seed, **given)
