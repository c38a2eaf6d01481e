"""The contract suite: checks that every method must pass, including methods of other packages.

In a test file:

    from coterie.testing import CHECKS, Harness

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_method_keeps_the_contract(check):
        check(Harness(lambda given: MyMethod(clusters=2)))

A harness runs the method on `tiny_data` with `tiny_task`. A check that fails raises AssertionError, or MethodError if
the method does not follow the protocol; the message is a sentence about what the method did. `CHEAP_CHECKS` are the
checks that need only one or two short runs.

    same_round_on_every_federation            the backends give the same states, assignments and traffic
    every_value_survives_the_codec            values do not change when they are encoded
    same_seed_same_bytes                      no dependence on global generators, clock, hashes or true clusters
    resumes_after_any_step                    a checkpoint holds everything
    leaves_its_arguments_alone                states, replies and the method object are not changed in place
    tolerates_faults                          lost, late, repeated and malformed replies
    a_round_without_replies_changes_nothing   also a round that the method reports as skipped
    a_lost_reply_is_like_an_absent_client     reports, cluster numbers and weights are those of the replies
    asks_only_the_clients_of_the_round        the cohort, no test examples, stragglers, new batches in each round
    learns                                    the served models are better than an untrained one
    places_every_client                       newcomers, rows, fallback model
    keeps_paid_placements                     a newcomer computes what is needed to place it once

`serve_in_process` runs a spec over the network code, with clients in this process: what does a method cost between
machines?

What the suite cannot know is the paper: weights of a mean, distances, thresholds. Test these by hand-computed numbers.
"""

from __future__ import annotations

from coterie.testing.contract import CHEAP_CHECKS, CHECKS
from coterie.testing.harness import Harness, tiny_data, tiny_task
from coterie.testing.network import serve_in_process

__all__ = ["CHEAP_CHECKS", "CHECKS", "Harness", "serve_in_process", "tiny_data", "tiny_task"]
