"""Which method to use: `recommend` runs several on validation examples and says which one, and why."""

from __future__ import annotations

from coterie.runs.recommending.method_choice import recommend
from coterie.runs.recommending.recommendation import MethodResult, Recommendation

__all__ = ["MethodResult", "Recommendation", "recommend"]
