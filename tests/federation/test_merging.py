"""Evaluations in the background: which requests travel together, and what happens when something goes wrong."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from coterie.clients import losses_of, score
from coterie.federation import Cached, Sequential, Server
from coterie.federation.merging import MergingTransport
from coterie.federation.messages import Request
from coterie.federation.transport import TransportWrapper
from coterie.models import Normalize, mclr
from coterie.seeds import Seed
from coterie.testing import tiny_data, tiny_task

SOME = ("0", "1")


class Exchanges(TransportWrapper):
    """A transport that sends several requests in one exchange, and lists the ids of each exchange."""

    def __init__(self, transport=None, log=None, tasks=None) -> None:
        super().__init__(transport or Sequential(tiny_data(), tiny_task()))
        self.log = [] if log is None else log
        self.tasks = {} if tasks is None else tasks
        self.tasks[self._transport.task] = self._transport
        self.broken = False

    @property
    def store(self):
        return self._transport._store

    def on(self, task):
        return Exchanges(self._transport.on(task), self.log, self.tasks)

    def send(self, request):
        return iter(self.send_all([request])[0])

    def send_all(self, requests):
        if self.broken:
            raise ConnectionError("no network")
        self.log.append([request.id for request in requests])
        return [list(self.tasks[each.task or self.task].send(each)) for each in requests]


@pytest.fixture
def exchanges():
    return Exchanges()


@pytest.fixture
def merging(exchanges):
    made = MergingTransport(exchanges)
    yield made
    made.close()


def request(number, model, task=None, clients=SOME):
    """A request to score a model."""
    return Request(
        id=number, work=score, part="fit", seed=Seed(0), clients=clients, shared={"params": model}, task=task
    )


def evaluation(transport, model, *numbers):
    """A function that sends requests one after the other, and returns the clients that replied to each."""

    def run():
        return [[batch.clients[0] for batch in transport.send(request(number, model))] for number in numbers]

    return run


def evaluations():
    """The threads of evaluations that have not ended."""
    return [each for each in threading.enumerate() if each.name == "evaluation"]


# --------------------------------------------------------------------------------------------------- what travels when


def test_each_request_of_an_evaluation_travels_with_the_next_request_of_the_rounds(merging, exchanges, model):
    list(merging.send(request(1, model)))
    background = merging.start(evaluation(merging, model, -1, -2))
    assert exchanges.log == [[1]]  # it waits
    list(merging.send(request(2, model)))
    assert not background.done
    list(merging.send(request(3, model)))
    assert exchanges.log == [[1], [2, -1], [3, -2]]
    assert background.result() == [list(SOME), list(SOME)]


def test_a_request_of_the_rounds_gets_only_its_own_replies(merging, model):
    merging.start(evaluation(merging, model, -1))
    batches = list(merging.send(request(1, model, clients=("3",))))
    assert [(batch.request, batch.clients) for batch in batches] == [(1, ("3",))]


def test_evaluations_of_several_rounds_wait_in_the_order_in_which_they_began(merging, exchanges, model):
    first = merging.start(evaluation(merging, model, -1, -2))
    second = merging.start(evaluation(merging, model, -3))
    list(merging.send(request(1, model)))
    list(merging.send(request(2, model)))
    assert exchanges.log == [[1, -1, -3], [2, -2]]
    assert (len(first.result()), len(second.result())) == (2, 1)


def test_two_requests_of_a_round_take_the_waiting_one_with_them(merging, exchanges, model):
    merging.start(evaluation(merging, model, -1))
    replies = merging.send_all([request(1, model), request(2, model)])
    assert exchanges.log == [[1, 2, -1]]
    assert [batches[0].request for batches in replies] == [1, 2]


def test_an_evaluation_without_requests_has_ended_when_it_was_started(merging, exchanges):
    background = merging.start(lambda: 7)
    assert background.done
    assert background.result() == 7
    assert exchanges.log == []
    list(merging.send(request(1, tiny_task().init(Seed(1)))))
    assert exchanges.log == [[1]]


@pytest.mark.parametrize("count", [1, 3])
def test_flush_sends_what_waits_one_exchange_for_each_request(merging, exchanges, model, count):
    background = merging.start(evaluation(merging, model, *range(-1, -1 - count, -1)))
    merging.flush()
    assert exchanges.log == [[-number] for number in range(1, count + 1)]
    assert background.result() == [list(SOME)] * count


def test_flush_lets_evaluations_of_several_rounds_travel_together(merging, exchanges, model):
    merging.start(evaluation(merging, model, -1, -2))
    merging.start(evaluation(merging, model, -3))
    merging.flush()
    assert exchanges.log == [[-1, -3], [-2]]


def test_flush_without_evaluations_sends_nothing(merging, exchanges):
    merging.flush()
    assert exchanges.log == []


def test_requests_of_two_tasks_travel_together(merging, exchanges, model):
    other = mclr(tiny_data().shape, tiny_data().classes, normalize=Normalize(0.0, 100.0))
    light = merging.on(other)
    losses = []

    def run():
        (one, _) = light.send(request(-1, model, other))
        losses.append(float(one.answers["loss"][0]))

    merging.start(run)
    (mine, _) = merging.send(request(1, model))
    assert exchanges.log == [[1, -1]]
    alone = next(iter(Sequential(tiny_data(), other).send(request(9, model))))
    assert losses == [float(alone.answers["loss"][0])]
    assert losses != [float(mine.answers["loss"][0])]  # the tasks normalize differently


def test_an_evaluation_of_another_task_is_sent_by_a_request_over_either_transport(merging, exchanges, model):
    other = mclr(tiny_data().shape, tiny_data().classes, normalize=Normalize(0.0, 100.0))
    merging.start(evaluation(merging, model, -1))
    list(merging.on(other).send(request(1, model, other)))
    assert exchanges.log == [[1, -1]]


# ------------------------------------------------------------------------------------------------------------ failures


def test_an_exception_before_the_first_request_is_raised_by_result(merging):
    background = merging.start(lambda: 1 // 0)
    assert background.done
    with pytest.raises(ZeroDivisionError):
        background.result()


def test_an_exception_after_a_request_is_raised_by_result_and_not_in_the_round(merging, model):
    def run():
        list(merging.send(request(-1, model)))
        raise ValueError("of the evaluation")

    background = merging.start(run)
    assert len(list(merging.send(request(1, model)))) == 2
    with pytest.raises(ValueError, match="of the evaluation"):
        background.result()


def test_after_an_exchange_that_failed_the_evaluation_still_waits(merging, exchanges, model):
    background = merging.start(evaluation(merging, model, -1))
    exchanges.broken = True
    with pytest.raises(ConnectionError):
        merging.send(request(1, model))
    assert not background.done
    exchanges.broken = False
    list(merging.send(request(2, model)))
    assert exchanges.log == [[2, -1]]
    assert background.result() == [list(SOME)]


def test_a_result_that_is_not_there_yet_is_refused(merging, model):
    background = merging.start(evaluation(merging, model, -1))
    with pytest.raises(AssertionError, match="has not ended"):
        background.result()


# ------------------------------------------------------------------------------------------------------------- threads


def test_close_ends_the_threads_without_sending_their_requests(merging, exchanges, model):
    seen = []

    def run():
        try:
            list(merging.send(request(-1, model)))
        finally:
            seen.append("cleaned up")

    backgrounds = [merging.start(run) for _ in range(3)]
    merging.close()
    for background in backgrounds:
        background.thread.join(10)
        assert not background.thread.is_alive()
    assert exchanges.log == []
    assert seen == ["cleaned up"] * 3
    list(merging.send(request(1, model)))
    assert exchanges.log == [[1]]


def test_close_can_be_called_again_and_after_everything_has_ended(merging, model):
    merging.start(evaluation(merging, model, -1))
    merging.flush()
    merging.close()
    merging.close()
    for thread in evaluations():
        thread.join(10)
    assert not evaluations()


def test_no_thread_is_left_after_flush(merging, model):
    for number in (1, 2, 3):
        merging.start(evaluation(merging, model, -number, -number - 10))
    merging.flush()
    for thread in evaluations():
        thread.join(10)
    assert not evaluations()


def test_only_one_thread_runs_at_a_time(merging, model):
    running, most = [0], [0]

    def run():
        for number in (-1, -2):
            running[0] += 1
            most[0] = max(most[0], running[0])
            running[0] -= 1
            list(merging.send(request(number, model)))

    for _ in range(4):
        merging.start(run)
    merging.flush()
    assert most == [1]


def test_settings_of_numpy_for_floating_point_errors_hold_in_the_background(merging):
    with np.errstate(over="ignore", invalid="raise"):
        background = merging.start(np.geterr)
    assert background.result()["over"] == "ignore"
    assert background.result()["invalid"] == "raise"


# --------------------------------------------------------------------------------------------------- the whole server


def test_a_cached_value_that_clients_miss_is_sent_again_in_the_next_exchange(merging, exchanges, bank):
    fed = Server(merging)
    expected = fed.ask(SOME, losses_of, Seed(0), centers=Cached(bank))["losses"]
    for client in SOME:
        exchanges.store.forget(client)
    frozen = fed.frozen().scoring()
    background = merging.start(lambda: frozen.ask(SOME, losses_of, Seed(0), centers=Cached(bank))["losses"])
    del exchanges.log[:]
    fed.ask(("5",), losses_of, Seed(0), centers=bank)
    assert not background.done  # both clients miss the bank
    fed.ask(("5",), losses_of, Seed(0), centers=bank)
    # Requests 2 and 3 of the round; the evaluation's request -1, and again with the bank attached.
    assert exchanges.log == [[2, -1], [3, -1]]
    np.testing.assert_array_equal(background.result(), expected)


def test_the_bytes_of_an_evaluation_are_in_a_table_of_its_own(merging, model, bank):
    fed = Server(merging)
    frozen = fed.frozen().scoring()
    background = merging.start(lambda: frozen.ask(SOME, score, Seed(0), part="test", params=model).clients)
    fed.ask(SOME, losses_of, Seed(0), centers=bank)
    assert background.result() == SOME
    # 2 clients get a model of 204 bytes and answer with two numbers of 4 bytes.
    assert frozen.traffic.by_purpose() == {"evaluate": {"down": 2 * 204, "up": 2 * 8}}
    # The round: two models down, their two losses up.
    assert fed.traffic.by_purpose() == {"train": {"down": 2 * 408, "up": 2 * 8}}
