"""Simulated drift: the clients' data change between rounds, and the method is not asked."""

from __future__ import annotations

from coterie.shift.settings import SHIFTS, ShiftSettings
from coterie.shift.world import World

__all__ = ["SHIFTS", "ShiftSettings", "World"]
