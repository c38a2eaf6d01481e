"""Simulated drift: the clients' data change between rounds, and the method is not asked."""

from __future__ import annotations

from coterie.shift.drifting_data import DriftingData
from coterie.shift.settings import SHIFTS, ShiftSettings

__all__ = ["SHIFTS", "DriftingData", "ShiftSettings"]
