"""`ask(then=...)`: a second work that some clients run in the same exchange, on every kind of federation."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from coterie.clients import LocalSGD, Values, Work, fit, losses_of
from coterie.errors import SpecError, TooFewReplies
from coterie.federation import Cached, Cohort, PerClient, Sequential, Server, Vectorized
from coterie.federation.messages import Request
from coterie.federation.network.channel import Delivery, InProcessChannel
from coterie.federation.network.remote import Connection, Remote
from coterie.federation.network.site import Site
from coterie.federation.network.wire import Held
from coterie.federation.protocol import Then
from coterie.models import Normalize, build
from coterie.seeds import Seed
from coterie.testing import tiny_data

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.1)
SOME = ("0", "1", "2", "3")

# Clients 1 and 3 are to run the second work.
FLAGS, ROWS = np.array([0, 1], np.int32), {"0": 0, "1": 1, "2": 0, "3": 1}


def _flag(task, client, *, flag):
    return {"flag": flag, "pair": np.zeros(2, np.float32)}


#: A work that returns the number that it was sent.
FLAG = Work(
    "tests.flag",
    takes={"flag": Values("int32")},
    gives={"flag": Values("int32"), "pair": Values("float32", (2,))},
    body=_flag,
    trains=False,
)


class Members:
    """Clients that are always there."""

    clients = present = SOME

    def refresh(self):
        pass

    def see(self, client):
        pass

    def miss(self, client):
        pass


class Federation:
    """A server with four clients. Requests are listed by exchange, and replies can be lost or changed on the way.

    Attributes:
        exchanges: Names of the works of each exchange, and the clients of the first one.
        lose: Clients whose replies do not arrive.
        change: Changes the `ReplyBatch`es of a request before they arrive.
    """

    def __init__(self, kind, folder) -> None:
        self.kind, self.exchanges, self.lose, self.change = kind, [], set(), lambda request, batches: batches
        data = tiny_data()
        task = build("mclr", data.shape, data.classes, normalize=Normalize(0.0, 255.0))  # by name: it has a recipe
        if kind == "network":
            self.sites = {client: Site(data.only(client), folder / client, threads=1) for client in SOME}
            channel = InProcessChannel({client: site.answer for client, site in self.sites.items()})
            self.transport = Remote(
                Connection(
                    _Lossy(channel, self),
                    Members(),
                    "run",
                    backend="sequential",
                    held=Held(data.held_share, data.held_seed),
                ),
                task,
            )
            send_all = self.transport.send_all
            self.transport.send_all = lambda requests: self._changed(requests, send_all(requests))
        else:
            backend = {"sequential": Sequential, "vectorized": Vectorized}[kind]
            self.transport = backend(data, task)
            send = self.transport.send
            self.transport.send = lambda request: iter(self._changed([request], [self._arriving(request, send)])[0])
        self.server = Server(self.transport)

    def _arriving(self, request, send):
        batches = []
        for batch in send(request):
            places = [place for place, client in enumerate(batch.clients) if client not in self.lose]
            if places:
                batches.append(batch.take(places))
        return batches

    def _changed(self, requests: list[Request], replies):
        self.exchanges.append([(request.work.name, request.clients) for request in requests])
        return [list(self.change(request, batches)) for request, batches in zip(requests, replies, strict=True)]

    def forget(self, client) -> None:
        """The client loses its disk."""
        store = self.sites[client]._store if self.kind == "network" else self.transport._store
        store.forget(client)

    def ask(self, work, cohort=SOME, always=(), when="flag", **sent):
        """Ask for the flags of all clients, and then for a work."""
        then = Then(Cohort(0, tuple(cohort), Seed(0), ()), work, when, frozenset(always), sent)
        return self.server.ask(SOME, FLAG, Seed(0), then=then, flag=PerClient(FLAGS, ROWS))


class _Lossy:
    """A channel that loses replies."""

    def __init__(self, channel, federation) -> None:
        self._channel, self._federation = channel, federation

    def exchange(self, messages, deadline):
        for delivery in self._channel.exchange(messages, deadline):
            if delivery.client not in self._federation.lose:
                yield Delivery(*delivery)


@pytest.fixture(params=["sequential", "vectorized", "network"])
def federation(request, tmp_path):
    return Federation(request.param, tmp_path)


def ran(federation, recall):
    """How often each client has run the counting work, as accepted by the server."""
    return federation.server.ask(SOME, recall, Seed(0)).by_client("n")


# ------------------------------------------------------------------------------------------------- who runs the second


def test_the_clients_whose_answer_is_not_zero_run_the_second_work(federation, count, recall):
    got = federation.ask(count)
    assert got.by_client("flag") == {"0": 0, "1": 1, "2": 0, "3": 1}
    assert got.then.by_client("n") == {"1": 1, "3": 1}
    assert got.then.lost == {}
    assert ran(federation, recall) == {"0": 0, "1": 1, "2": 0, "3": 1}


def test_clients_in_always_run_it_whatever_they_answer(federation, count, recall):
    got = federation.ask(count, always=("2",))
    assert got.then.by_client("n") == {"1": 1, "2": 1, "3": 1}
    assert ran(federation, recall) == {"0": 0, "1": 1, "2": 1, "3": 1}


def test_clients_outside_the_second_cohort_do_not_run_it(federation, count, recall):
    got = federation.ask(count, cohort=("0", "1"), always=("0",))
    assert got.then.by_client("n") == {"0": 1, "1": 1}
    assert ran(federation, recall) == {"0": 1, "1": 1, "2": 0, "3": 0}


def test_a_second_work_for_no_client_has_no_replies(federation, count):
    got = federation.ask(count, cohort=("0", "2"))
    assert len(got.then) == 0
    assert got.then.by_client("n") == {}
    assert len(got) == 4


def test_between_machines_both_works_take_one_exchange(tmp_path, count):
    federation = Federation("network", tmp_path)
    federation.ask(count)
    assert federation.exchanges == [[("tests.flag", SOME), ("tests.count", SOME)]]


def test_in_the_simulator_the_second_work_is_sent_to_the_clients_that_run_it(tmp_path, count):
    federation = Federation("sequential", tmp_path)
    federation.ask(count)
    assert federation.exchanges == [[("tests.flag", SOME)], [("tests.count", ("1", "3"))]]


def test_every_federation_counts_the_same_bytes(tmp_path, bank):
    tables = []
    for kind in ("sequential", "vectorized", "network"):
        federation = Federation(kind, tmp_path)
        federation.ask(losses_of, centers=bank)
        tables.append(federation.server.traffic.by_purpose())
    # Single numbers count as control: a flag down and up for each of four clients. Arrays count as training, like their
    # works: two numbers up from each; and for clients 1 and 3 two models of 204 bytes down and two losses up.
    expected = {"control": {"down": 4 * 4, "up": 4 * 4}, "train": {"down": 2 * 408, "up": 4 * 8 + 2 * 8}}
    assert tables == [expected] * 3


def test_the_answers_are_those_of_two_requests_one_after_the_other(federation, bank):
    together = federation.ask(losses_of, centers=bank).then
    alone = federation.server.ask(("1", "3"), losses_of, Seed(0), centers=bank)
    np.testing.assert_array_equal(together["losses"], alone["losses"])
    assert together.clients == alone.clients


def test_a_second_work_that_trains_uses_the_batches_of_the_client(federation, model):
    sent = {"start": model, "local": LOCAL}
    together = federation.ask(fit, **sent).then
    alone = federation.server.ask(Cohort(0, ("1", "3"), Seed(0), ()), fit, Seed(0), **sent)
    np.testing.assert_array_equal(together["params"]["dense0"]["kernel"], alone["params"]["dense0"]["kernel"])


# -------------------------------------------------------------------------------------------------------- lost replies


def test_a_client_whose_reply_is_lost_has_no_second_reply_and_keeps_its_memory(federation, count, recall):
    federation.lose = {"1"}
    got = federation.ask(count)
    assert got.clients == ("0", "2", "3")
    assert got.then.by_client("n") == {"3": 1}
    federation.lose = set()
    # Client 1 may have counted, but the server has not accepted it: the next request names the version before.
    assert ran(federation, recall) == {"0": 0, "1": 0, "2": 0, "3": 1}
    assert federation.ask(count).then.by_client("n") == {"1": 1, "3": 2}


def test_a_lost_client_in_always_is_lost_in_both(federation, count):
    federation.lose = {"2"}
    got = federation.ask(count, always=("2",))
    assert got.clients == ("0", "1", "3")
    assert got.then.clients == ("1", "3")
    assert got.then.lost == {"2": "no reply"}


def test_lost_second_replies_have_no_minimum(federation, count):
    def without_counts(request, batches):
        return [] if request.work.name == "tests.count" else batches

    federation.change = without_counts
    got = federation.ask(count)
    assert got.clients == SOME
    assert len(got.then) == 0
    assert got.then.lost == {"1": "no reply", "3": "no reply"}


def test_too_few_first_replies_skip_the_round_and_the_second_replies_are_not_used(federation, count, recall):
    federation.lose = set(SOME)
    with pytest.raises(TooFewReplies, match=r"0 of 4 clients replied to 'tests\.flag'"):
        federation.ask(count)
    federation.lose = set()
    assert ran(federation, recall) == dict.fromkeys(SOME, 0)


def test_a_malformed_first_reply_takes_the_second_with_it(federation, count, recall):
    def malformed(request, batches):
        if request.work.name != "tests.flag":
            return batches
        rows = [batch.take([place]) for batch in batches for place in range(len(batch.clients))]
        return [
            dataclasses.replace(row, answers={"flag": row.answers["flag"]}) if row.clients == ("3",) else row
            for row in rows
        ]

    federation.change = malformed
    got = federation.ask(count)
    assert got.clients == ("0", "1", "2")
    assert got.then.clients == ("1",)
    assert ran(federation, recall) == {"0": 0, "1": 1, "2": 0, "3": 0}


def test_second_replies_of_clients_that_were_not_asked_for_are_rejected(federation, count):
    def more(request, batches):
        if request.work.name != "tests.count":
            return batches
        first = batches[0].take([0])
        return [*batches, dataclasses.replace(first, clients=("2",))]  # client 2 has answered 0

    federation.change = more
    got = federation.ask(count)
    assert got.then.by_client("n") == {"1": 1, "3": 1}
    assert federation.server.rejected == {"not asked": 1}


# ------------------------------------------------------------------------------------------------------- cached values


def test_cached_values_of_the_second_work_are_held_by_the_clients_that_ran_it(federation, bank):
    federation.ask(losses_of, centers=Cached(bank))
    del federation.exchanges[:]
    before = federation.server.traffic.total("down", "train")
    got = federation.server.ask(SOME, losses_of, Seed(0), centers=Cached(bank))
    assert got.clients == SOME
    # Clients 1 and 3 have the bank; it is attached for 0 and 2.
    assert federation.server.traffic.total("down", "train") - before == 2 * 408


def test_a_cached_value_that_a_client_misses_in_the_second_work_is_sent_again(federation, bank):
    expected = federation.ask(losses_of, centers=Cached(bank)).then
    federation.forget("3")
    got = federation.ask(losses_of, centers=Cached(bank)).then
    assert got.clients == ("1", "3")
    np.testing.assert_array_equal(got["losses"], expected["losses"])
    assert federation.exchanges[-1] == [("losses_of", ("3",))]


# -------------------------------------------------------------------------------------------------------- refused uses


@pytest.mark.parametrize(
    ("when", "text"),
    [
        ("nothing", "Work 'tests.flag' has no answer 'nothing' with one number per client"),
        ("pair", "Work 'tests.flag' has no answer 'pair' with one number per client"),
    ],
)
def test_the_second_work_depends_on_one_number_per_client(federation, count, when, text):
    with pytest.raises(SpecError, match=re.escape(text)):
        federation.ask(count, when=when)


def test_the_second_work_is_only_for_clients_that_are_asked_for_the_first(federation, count):
    text = "Work 'tests.count' follows 'tests.flag', which is not asked of 7, 8"
    with pytest.raises(SpecError, match=re.escape(text)):
        federation.ask(count, cohort=("0", "7", "8"))


def test_two_works_with_one_memory_do_not_travel_together(federation, count, recall):
    then = Then(Cohort(0, SOME, Seed(0), ()), recall, "n")
    text = "Works 'tests.count' and 'tests.recall' use the same memory; ask for them one by one"
    with pytest.raises(SpecError, match=re.escape(text)):
        federation.server.ask(SOME, count, Seed(0), then=then)


def test_the_values_of_the_second_work_are_checked_like_those_of_the_first(federation, count):
    with pytest.raises(SpecError, match=re.escape("Work 'tests.count' takes [], was sent ['extra']")):
        federation.ask(count, extra=1)


def test_a_refused_use_sends_nothing(federation, count):
    with pytest.raises(SpecError):
        federation.ask(count, when="nothing")
    assert federation.exchanges == []
