"""Preparation ends with an error if clients never reply."""

from __future__ import annotations

import pytest

from coterie.clients import LocalSGD
from coterie.errors import TooFewReplies
from coterie.federation import Faults
from coterie.methods.ifca import IFCA
from coterie.runs.session import MAX_ATTEMPTS
from coterie.testing import Harness


def test_preparation_gives_up_when_no_client_ever_replies():
    harness = Harness(lambda given: IFCA(LocalSGD(), clusters=2, warm_rounds=MAX_ATTEMPTS + 1))
    session = harness.session(faults=Faults(drop=1.0))
    for _ in range(MAX_ATTEMPTS - 1):
        assert session.step().skipped
    with pytest.raises(TooFewReplies, match=f"Preparation failed {MAX_ATTEMPTS} times"):
        session.step()
