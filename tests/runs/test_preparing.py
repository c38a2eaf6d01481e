"""Preparing that nobody answers comes to an end."""

from __future__ import annotations

import pytest

from coterie.clients import LocalSGD
from coterie.errors import TooFewReplies
from coterie.federation import Faults
from coterie.methods.ifca import IFCA
from coterie.runs.play import PATIENCE
from coterie.testing import Stand


def test_preparing_gives_up_when_nobody_ever_answers():
    stand = Stand(lambda given: IFCA(LocalSGD(), clusters=2, warm_rounds=PATIENCE + 1))
    play = stand.play(faults=Faults(drop=1.0))
    for _ in range(PATIENCE - 1):
        assert play.step().skipped
    with pytest.raises(TooFewReplies, match=f"Preparing was tried {PATIENCE} times"):
        play.step()
