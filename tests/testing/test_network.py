"""`serve_in_process`: the result of the simulator over the network code, and the number of exchanges."""

from __future__ import annotations

import itertools

import pytest

import coterie
from coterie import codec
from coterie.errors import SpecError
from coterie.testing import serve_in_process, tiny_data


def spec(method, rounds=4, **sections):
    run = {"rounds": rounds, "clients_per_round": 5, "seed": 1, "backend": "sequential"}
    return {"method": method, "local": {"epochs": 1}, "run": run, **sections}


def steps_of(method, **how):
    """Round, or -1, and number of exchanges of each step but the last."""
    begins = []
    serve_in_process(spec(method), tiny_data(), on_step=lambda t, sent: begins.append((t, sent.exchanges)), **how)
    return [(t, after - before) for (t, before), (_, after) in itertools.pairwise(begins)]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("method", ["fedavg", "flexcfl"])
def test_the_record_is_that_of_the_simulator(method, alone):
    record, _ = serve_in_process(spec(method), tiny_data(), alone=alone)
    expected = coterie.run(spec(method), data=tiny_data())
    assert record.summary["accuracy"] == expected.summary["accuracy"]
    assert codec.encode(record.served["bank"]) == codec.encode(expected.served["bank"])
    assert record.summary["truth"] == expected.summary["truth"]
    assert not record.summary["rejected_replies"]


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "ifca"])
def test_a_round_of_one_request_takes_one_exchange(method):
    assert steps_of(method) == [(0, 1), (1, 1), (2, 1)]


def test_alone_each_request_takes_an_exchange():
    assert steps_of("fedavg", alone=True) == [(0, 2), (1, 2), (2, 2)]  # fit, score
    # fit, choice, score; and the score of clients whose choice has changed since their last round, if there are any.
    assert {count for _, count in steps_of("ifca", alone=True)} <= {3, 4}


def test_a_round_of_flexcfl_takes_two_exchanges():
    steps = steps_of("flexcfl")
    assert steps[0][0] == -1  # the cold start is a preparation step
    # Drift check with the choice of a group, then fit.
    assert [count for t, count in steps if t >= 0] == [2, 2, 2]


def test_the_whole_run_takes_one_exchange_more_for_the_last_evaluation():
    _, sent = serve_in_process(spec("fedavg", rounds=3), tiny_data())
    assert sent.exchanges == 3 + 1
    # Real bytes: at least the models, 10 clients with 204 bytes, for the first evaluation.
    assert sent.down > 10 * 204
    assert sent.up > 0


def test_settings_that_need_simulated_clients_are_refused():
    with pytest.raises(SpecError, match=r"faults needs simulated clients"):
        serve_in_process(spec("fedavg", faults={"drop": 0.5}), tiny_data())
