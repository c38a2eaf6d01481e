"""Drift metrics: which shifts of the clients' data a method detects, how late, and whether clients migrate correctly.

`measure` takes, for each round, the clients that shifted before it, the clients that the method flagged as drifted and
the clusters that it assigned. It counts:

    detection    a client that the method flags as drifted; for a method without drift detection, a client that changes
                 its cluster
    delay        rounds from a shift of a client to its first detection; 0 if it is detected in the round directly after
                 the shift. `delay_in_cohort` counts only rounds in which the client took part
    miss         a shift that is not detected before the client shifts again or the run ends
    false alarm  a detection of a client that has not shifted since its last detection or its first assignment
    migration    a client changes its cluster. It is correct if the new cluster holds most of the other clients of the
                 client's current true cluster (ties count as correct), and wrong otherwise. Without other clients of
                 its true cluster it is neither

A shift of a client that has no cluster yet counts as `shifts_unassigned` and nowhere else. A shift need not change a
client's true cluster: the client may get more of the same data, or all clients a new class. `true_cluster_changes`
counts the shifts that do change it; only these require a migration.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from coterie.types import ClientId

__all__ = ["Drift", "ObservedRound", "measure"]


@dataclass(frozen=True)
class ObservedRound:
    """The input of `measure` for one round.

    Attributes:
        shifted: Clients whose data changed before the round.
        true_clusters: New true cluster of each of these clients, if known.
        flagged: Clients that the method flagged as drifted; None if it does not detect drift.
        assignment: Client → cluster, of the clients that took part or changed their cluster.
    """

    shifted: Collection[ClientId] = ()
    true_clusters: Mapping[ClientId, int] = field(default_factory=dict)
    flagged: Collection[ClientId] | None = None
    assignment: Mapping[ClientId, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Drift:
    """Drift metrics of a run; the module's docstring defines the terms.

    Attributes:
        shifts: Number of shifts of clients that had a cluster.
        shifts_unassigned: Number of shifts of clients that had no cluster yet.
        detected: Number of shifts that were detected.
        missed: Number of shifts that were not detected.
        missed_not_in_cohort: Number of missed shifts whose client took part in no round before it shifted again or the
            run ended.
        delay: Mean number of rounds from shift to detection; None without a detection.
        delay_max: Largest number of rounds from shift to detection.
        delay_in_cohort: Mean number of rounds, from shift to detection, in which the client took part.
        false_alarms: Number of false alarms.
        early_alarms: Number of false alarms before the first shift of any client.
        migrations: Number of migrations.
        migrations_correct: Number of correct migrations; None if true clusters are not known.
        migrations_wrong: Number of wrong migrations; None if true clusters are not known.
        true_cluster_changes: Number of shifts to another true cluster; None if true clusters are not known.
        true_cluster_changes_detected: Number of these that were detected.
    """

    shifts: int
    shifts_unassigned: int
    detected: int
    missed: int
    missed_not_in_cohort: int
    delay: float | None
    delay_max: int | None
    delay_in_cohort: float | None
    false_alarms: int
    early_alarms: int
    migrations: int
    migrations_correct: int | None
    migrations_wrong: int | None
    true_cluster_changes: int | None
    true_cluster_changes_detected: int | None


@dataclass
class _Shift:
    """A shift of one client."""

    begun: int  # round before which it happened
    changed_cluster: bool
    rounds_in_cohort: int = 0  # since then, before it was detected
    detected: int | None = None  # round


def measure(rounds: Sequence[ObservedRound], true_clusters: Mapping[ClientId, int] | None = None) -> Drift:
    """Measure how a method followed the shifts of a run.

    Args:
        rounds: All rounds in order; preparation steps may come first.
        true_clusters: Client → true cluster before the first round; None or empty if not known.
    """
    detects = any(each.flagged is not None for each in rounds)
    clusters = _Clusters(true_clusters or {})
    shifts: list[_Shift] = []
    pending: dict[ClientId, _Shift] = {}
    unassigned = false_alarms = early_alarms = 0
    for t, now in enumerate(rounds):
        for client in now.shifted:
            changed = clusters.set_true(client, now.true_clusters.get(client))
            if client not in clusters.found:
                unassigned += 1
                continue
            pending[client] = _Shift(t, changed)  # replaces an undetected earlier shift, which is missed
            shifts.append(pending[client])
        migrated = clusters.assign(now.assignment)
        for client in (now.flagged or ()) if detects else migrated:
            if client in pending:
                pending.pop(client).detected = t
            else:
                false_alarms += 1
                early_alarms += not shifts and not unassigned
        for client in now.assignment:
            if client in pending:
                pending[client].rounds_in_cohort += 1
    detected = [shift for shift in shifts if shift.detected is not None]
    missed = [shift for shift in shifts if shift.detected is None]
    delays = [shift.detected - shift.begun for shift in shifts if shift.detected is not None]
    known = bool(true_clusters)
    return Drift(
        shifts=len(shifts),
        shifts_unassigned=unassigned,
        detected=len(detected),
        missed=len(missed),
        missed_not_in_cohort=sum(not shift.rounds_in_cohort for shift in missed),
        delay=fmean(delays) if delays else None,
        delay_max=max(delays, default=None),
        delay_in_cohort=fmean(shift.rounds_in_cohort for shift in detected) if detected else None,
        false_alarms=false_alarms,
        early_alarms=early_alarms,
        migrations=clusters.migrations,
        migrations_correct=clusters.correct if known else None,
        migrations_wrong=clusters.wrong if known else None,
        true_cluster_changes=sum(shift.changed_cluster for shift in shifts) if known else None,
        true_cluster_changes_detected=sum(shift.changed_cluster for shift in detected) if known else None,
    )


class _Clusters:
    """The found and the true cluster of every client, and the migrations between found clusters."""

    def __init__(self, true: Mapping[ClientId, int]) -> None:
        self.true = dict(true)
        self.found: dict[ClientId, int] = {}
        self.migrations = self.correct = self.wrong = 0
        self._counts: defaultdict[int, Counter[int]] = defaultdict(Counter)  # true cluster → found cluster → clients

    def set_true(self, client: ClientId, cluster: int | None) -> bool:
        """Set the true cluster of a client; returns whether it changed."""
        if cluster is None or cluster == self.true.get(client):
            return False
        self._count(client, -1)
        self.true[client] = cluster
        self._count(client, 1)
        return True

    def assign(self, assignment: Mapping[ClientId, int]) -> list[ClientId]:
        """Set the found clusters of clients; returns the clients that migrated."""
        migrated = [client for client, new in assignment.items() if self.found.get(client, new) != new]
        for client, new in assignment.items():
            self._count(client, -1)
            self.found[client] = new
            self._count(client, 1)
        self.migrations += len(migrated)
        for client in migrated:  # only after all clients are in their new clusters
            self._check(client)
        return migrated

    def _check(self, client: ClientId) -> None:
        if client not in self.true:
            return
        new = self.found[client]
        others = self._counts[self.true[client]] - Counter([new])
        if others:
            correct = others[new] == max(others.values())
            self.correct += correct
            self.wrong += not correct

    def _count(self, client: ClientId, by: int) -> None:
        if client in self.true and client in self.found:
            self._counts[self.true[client]][self.found[client]] += by
