"""Bytes by purpose and over rounds; lost and rejected replies, and skipped rounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.runs.record import JsonObject
from coterie.types import Array

#: Purpose that totals do not include: an evaluation is part of the experiment, not of the method.
EVALUATION = "evaluate"


@dataclass(frozen=True)
class Traffic:
    """Bytes that were sent.

    Attributes:
        by_purpose: Purpose → (bytes down, bytes up).
        round: Rounds, from 1; 0 is the preparation before the first round.
        down: Bytes down until the end of each of these rounds, without evaluation, with the placement of newcomers.
        up: The same for bytes up.
    """

    by_purpose: Mapping[str, tuple[int, int]]
    round: Array
    down: Array
    up: Array

    @property
    def total(self) -> tuple[int, int]:
        """Bytes down and up, without evaluation."""
        counted = [ways for purpose, ways in self.by_purpose.items() if purpose != EVALUATION]
        return sum(down for down, _ in counted), sum(up for _, up in counted)

    def until(self, rounds: Array) -> Array:
        """Bytes down and up together until the end of these rounds."""
        if not len(self.round):
            return np.zeros(len(rounds))
        places = np.searchsorted(self.round, rounds, side="right") - 1
        found: Array = np.where(places >= 0, (self.down + self.up)[np.maximum(places, 0)], 0)
        return found


@dataclass(frozen=True)
class Faults:
    """What went wrong.

    Attributes:
        rejected: Reason → number of replies that arrived and were rejected; None if the record has no summary.
        lost: Number of replies that never arrived; None if the record has no summary.
        skipped: (round, reason) of each skipped round.
    """

    rejected: Mapping[str, int] | None
    lost: int | None
    skipped: tuple[tuple[int, str], ...]


def traffic_of(rows: Sequence[JsonObject], summary: JsonObject) -> Traffic:
    """The traffic of a run; by purpose from the summary, or from the lines of a run that has none."""
    recorded = (summary.get("traffic") or {}).get("by_purpose")
    purposes: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for entry in [recorded] if recorded is not None else [row.get("traffic") or {} for row in rows]:
        for purpose, ways in entry.items():
            purposes[purpose][0] += ways.get("down", 0)
            purposes[purpose][1] += ways.get("up", 0)
    rounds: dict[int, list[int]] = {}
    sent, t = [0, 0], 0
    for row in rows:
        t = row["t"] + 1 if row["stage"] == "train" else t  # a later preparation step belongs to the round before it
        for place, way in enumerate(("down", "up")):
            sent[place] += _bytes(row, way)
        rounds[t] = list(sent)
    cumulative = np.array(list(rounds.values()), np.int64).reshape(-1, 2)
    by_purpose = {purpose: (down, up) for purpose, (down, up) in sorted(purposes.items())}
    return Traffic(by_purpose, np.array(list(rounds), np.int64), cumulative[:, 0], cumulative[:, 1])


def faults_of(rows: Sequence[JsonObject], summary: JsonObject) -> Faults:
    """What went wrong in a run."""
    skipped = tuple((row["t"] + 1, str(row["skipped"])) for row in rows if row.get("skipped"))
    return Faults(summary.get("rejected_replies"), summary.get("lost_replies"), skipped)


def _bytes(row: JsonObject, way: str) -> int:
    traffic = row.get("traffic") or {}
    sent = sum(ways.get(way, 0) for purpose, ways in traffic.items() if purpose != EVALUATION)
    joined = [(row.get(key) or {}).get("bytes", {}) for key in ("newcomers", "last_newcomers")]
    return int(sent + sum(entry.get(way, 0) for entry in joined))
