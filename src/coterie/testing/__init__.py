"""The contract suite: checks that every method must pass, including methods of other packages.

In a test file:

    from coterie.testing import CHECKS, Harness

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_method_keeps_the_contract(check):
        check(Harness(lambda given: MyMethod(clusters=2)))

A harness runs the method on `tiny_data` with `tiny_task`. `CHEAP_CHECKS` are the checks that need only one short run.
"""

from __future__ import annotations

from coterie.testing.contract import CHEAP_CHECKS, CHECKS
from coterie.testing.harness import Harness, tiny_data, tiny_task

__all__ = ["CHEAP_CHECKS", "CHECKS", "Harness", "tiny_data", "tiny_task"]
