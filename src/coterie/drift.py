"""How a method follows clients whose data change: what it notices, how late, and whether it moves them rightly.

Told of each round who shifted before it, whom the method flagged and which cluster it gave to whom, `measure` counts

    detection    a client that the method flags as drifted; for a method that does not look for drift, a client whose
                 cluster is another one than the last it had
    delay        rounds from a shift to the first detection of that client after it; 0 is the round before which it
                 shifted. `delay_heard` counts those rounds only in which the client took part
    miss         a shift that is not detected before the client shifts again, or before the run ends
    false alarm  a detection of a client that has not shifted since its last detection, or since its first cluster
    migration    a client's cluster is another one than the last it had. It is right if most of the other clients of
                 its true cluster, as the world is then, are in the new one (equal numbers will do), otherwise wrong;
                 neither where there is no other client of its true cluster

Shifts of clients that have no cluster yet count as `unseen` and nothing else: there is nothing to compare with. A shift
need not call for another cluster: more of the same data, or a new class for everybody, leave a client's true cluster
as it is. `moved` are the shifts after which it is another one; those a clustered method has to follow.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from coterie.types import ClientId

__all__ = ["Drift", "Look", "measure"]


@dataclass(frozen=True)
class Look:
    """One round, as it is measured.

    Attributes:
        shifted: Whose data changed before it.
        kinds: The true cluster of each of those from then on, where it is known.
        flagged: Whom the method took to have drifted; None where it did not look.
        assignment: Client → cluster, of those who took part or were given another one.
    """

    shifted: Collection[ClientId] = ()
    kinds: Mapping[ClientId, int] = field(default_factory=dict)
    flagged: Collection[ClientId] | None = None
    assignment: Mapping[ClientId, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Drift:
    """What a method made of shifts; see the module's text for the words.

    Attributes:
        shifts: Of clients that had a cluster.
        unseen: Of clients that had none yet.
        detected: Shifts that were noticed.
        missed: Shifts that were not.
        missed_unheard: Of those, where the client took no part before it shifted again or the run ended.
        delay: Mean rounds from shift to detection; None without any.
        delay_longest: The most rounds.
        delay_heard: Mean rounds that the client took part in before that of the detection.
        false_alarms: Detections without a shift.
        early_alarms: Of those, before anybody's first shift: a method that is still settling.
        migrations: Changes of a client's cluster.
        right: Migrations to where the client belongs; None where true clusters are not known.
        wrong: Migrations to elsewhere.
        moved: Shifts to another true cluster; None where these are not known.
        moved_detected: Of those, how many were noticed.
    """

    shifts: int
    unseen: int
    detected: int
    missed: int
    missed_unheard: int
    delay: float | None
    delay_longest: int | None
    delay_heard: float | None
    false_alarms: int
    early_alarms: int
    migrations: int
    right: int | None
    wrong: int | None
    moved: int | None
    moved_detected: int | None


@dataclass
class _Shift:
    """A shift while the method may still notice it; then what became of it."""

    begun: int
    moved: bool
    heard: int = 0  # rounds that the client took part in since
    noticed: int | None = None


def measure(rounds: Sequence[Look], kinds: Mapping[ClientId, int] | None = None) -> Drift:
    """What a method made of the shifts of a run.

    Args:
        rounds: One after the other, none left out; steps of preparing may come first.
        kinds: The true cluster of each client before the first round; None or empty where nobody knows.
    """
    looks = any(each.flagged is not None for each in rounds)
    where = _Where(kinds or {})
    shifts: list[_Shift] = []
    pending: dict[ClientId, _Shift] = {}
    unseen = false_alarms = early_alarms = 0
    for t, now in enumerate(rounds):
        for client in now.shifted:
            moved = where.shift(client, now.kinds.get(client))
            if client not in where.group:
                unseen += 1
                continue
            pending[client] = _Shift(t, moved)  # the one before it, if it is still there, is missed
            shifts.append(pending[client])
        migrants = where.assign(now.assignment)
        for client in (now.flagged or ()) if looks else migrants:
            if client in pending:
                pending.pop(client).noticed = t
            else:
                false_alarms += 1
                early_alarms += not shifts and not unseen
        for client in now.assignment:
            if client in pending:
                pending[client].heard += 1
    return _figures(shifts, where, bool(kinds), unseen, false_alarms, early_alarms)


def _figures(shifts: list[_Shift], where: _Where, known: bool, unseen: int, alarms: int, early: int) -> Drift:
    delays = [shift.noticed - shift.begun for shift in shifts if shift.noticed is not None]
    missed = [shift for shift in shifts if shift.noticed is None]
    return Drift(
        shifts=len(shifts),
        unseen=unseen,
        detected=len(delays),
        missed=len(missed),
        missed_unheard=sum(not shift.heard for shift in missed),
        delay=fmean(delays) if delays else None,
        delay_longest=max(delays, default=None),
        delay_heard=fmean(shift.heard for shift in shifts if shift.noticed is not None) if delays else None,
        false_alarms=alarms,
        early_alarms=early,
        migrations=where.migrations,
        right=where.right if known else None,
        wrong=where.wrong if known else None,
        moved=sum(shift.moved for shift in shifts) if known else None,
        moved_detected=sum(shift.moved and shift.noticed is not None for shift in shifts) if known else None,
    )


class _Where:
    """The cluster and the true cluster of every client, and how many of each true cluster are where."""

    def __init__(self, kinds: Mapping[ClientId, int]) -> None:
        self.kind = dict(kinds)
        self.group: dict[ClientId, int] = {}
        self.migrations = self.right = self.wrong = 0
        self._together: defaultdict[int, Counter[int]] = defaultdict(Counter)

    def shift(self, client: ClientId, kind: int | None) -> bool:
        """Give a client its new true cluster; whether it is another one."""
        old = self.kind.get(client)
        if kind is None or kind == old:
            return False
        self._count(client, -1)
        self.kind[client] = kind
        self._count(client, 1)
        return True

    def assign(self, assignment: Mapping[ClientId, int]) -> list[ClientId]:
        """Give clients their clusters; those who had another one, judged when all are where they are now."""
        migrants = [client for client, group in assignment.items() if self.group.get(client, group) != group]
        for client, group in assignment.items():
            self._count(client, -1)
            self.group[client] = group
            self._count(client, 1)
        self.migrations += len(migrants)
        for client in migrants:
            self._judge(client)
        return migrants

    def _judge(self, client: ClientId) -> None:
        if client not in self.kind:
            return
        mine = self.group[client]
        others = self._together[self.kind[client]] - Counter([mine])
        if others:
            fits = others[mine] == max(others.values())
            self.right += fits
            self.wrong += not fits

    def _count(self, client: ClientId, by: int) -> None:
        if client in self.kind and client in self.group:
            self._together[self.kind[client]][self.group[client]] += by
