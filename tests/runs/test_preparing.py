"""Preparing that nobody answers comes to an end."""

from __future__ import annotations

import pytest

from coterie.clients import LocalSGD
from coterie.errors import TooFewReplies
from coterie.federation import Faults
from coterie.methods.ifca import IFCA
from coterie.runs.session import PATIENCE
from coterie.testing import Harness


def test_preparing_gives_up_when_nobody_ever_answers():
    harness = Harness(lambda given: IFCA(LocalSGD(), clusters=2, warm_rounds=PATIENCE + 1))
    session = harness.session(faults=Faults(drop=1.0))
    for _ in range(PATIENCE - 1):
        assert session.step().skipped
    with pytest.raises(TooFewReplies, match=f"Preparing was tried {PATIENCE} times"):
        session.step()
