"""Simulated drift: the clients' data change between rounds, independently of the method."""

from __future__ import annotations

from coterie.shift.drifting_data import SHIFTS, DriftingData, ShiftSettings

__all__ = ["SHIFTS", "DriftingData", "ShiftSettings"]
