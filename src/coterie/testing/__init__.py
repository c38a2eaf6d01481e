"""Contract suites that anyone can run on their own method.

In a test file of your own:

    from coterie.testing import CHECKS, Stand

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_method_keeps_the_contract(check):
        check(Stand(lambda given: MyMethod(clusters=2)))

`CHECKS` are what every method must keep; a stand plays it on `tiny_data` with `tiny_task`.
"""

from __future__ import annotations

from coterie.testing.contract import CHECKS
from coterie.testing.harness import Harness, tiny_data, tiny_task

__all__ = ["CHECKS", "Harness", "tiny_data", "tiny_task"]
