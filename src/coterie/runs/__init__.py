"""Runs: a spec is resolved and built into a session, which the run loop steps through and writes to a record."""

from __future__ import annotations

from coterie.runs.compare import compare
from coterie.runs.comparison import Comparison
from coterie.runs.estimate import estimate
from coterie.runs.loop import resume, run
from coterie.runs.record import RunRecord
from coterie.runs.spec import Spec

__all__ = ["Comparison", "RunRecord", "Spec", "compare", "estimate", "resume", "run"]
