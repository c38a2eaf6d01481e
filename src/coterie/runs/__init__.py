"""Runs: spec → resolve → build → session → loop → record."""

from __future__ import annotations

from coterie.runs.compare import Comparison, compare
from coterie.runs.estimate import estimate
from coterie.runs.loop import resume, run
from coterie.runs.record import RunRecord
from coterie.runs.spec import Spec

__all__ = ["Comparison", "RunRecord", "Spec", "compare", "estimate", "resume", "run"]
