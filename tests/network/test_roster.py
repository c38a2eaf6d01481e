"""`Roster`: who may join, who is there, and who only seems to be."""

import pytest

from coterie.data.description import ClientFacts
from coterie.errors import TimedOut
from coterie.federation.network.roster import Roster


class Surroundings:
    """Keys that are admitted and connected, and a clock that moves when the roster sleeps."""

    def __init__(self, *clients) -> None:
        self.admitted = {client: f"key of {client}" for client in clients}
        self.connected = set(self.admitted.values())
        self.now = 1000.0

    def sleep(self, seconds) -> None:
        self.now += seconds

    def roster(self, **more) -> Roster:
        return Roster(
            lambda: dict(self.admitted),
            lambda: sorted(self.connected),
            clock=lambda: self.now,
            sleep=self.sleep,
            **more,
        )


def facts(fit=3):
    return ClientFacts((2,), 3, False, 1.0, None, fit, 1)


def joined(roster, *clients):
    roster.refresh()
    for client in clients:
        roster.join(client, facts())
    return roster


def states(roster):
    return {client: entry.state for client, entry in roster.entries.items()}


def test_a_client_is_admitted_then_joining_then_present():
    around = Surroundings("a")
    around.connected.clear()
    roster = around.roster()
    roster.refresh()
    assert states(roster) == {"a": "admitted"}
    around.connected.add("key of a")
    roster.refresh()
    assert states(roster) == {"a": "joining"}
    roster.join("a", facts())
    assert states(roster) == {"a": "present"}
    assert roster.entries["a"].last_seen == 1000.0


def test_a_revoked_client_is_away_although_its_connection_lasts():
    around = Surroundings("a", "b")
    roster = joined(around.roster(), "a", "b")
    del around.admitted["a"]
    roster.refresh()
    assert states(roster) == {"a": "away", "b": "present"}
    assert roster.present == ("b",)
    assert roster.to_greet == ()


def test_another_key_under_the_name_of_a_client_that_has_joined_is_not_this_client():
    around = Surroundings("a")
    roster = joined(around.roster(), "a")
    around.admitted["a"] = "another key"
    around.connected = {"another key"}
    roster.refresh()
    assert states(roster) == {"a": "away"}
    assert roster.to_greet == ()


def test_another_key_under_the_name_of_a_client_that_has_not_joined_starts_anew():
    around = Surroundings("a")
    roster = around.roster()
    roster.refresh()
    roster.refuse("a", "its data do not fit")
    around.admitted["a"] = "another key"
    around.connected = {"another key"}
    roster.refresh()
    assert states(roster) == {"a": "joining"}


def test_a_client_that_misses_a_deadline_is_away_until_it_answers_a_greeting():
    roster = joined(Surroundings("a", "b").roster(), "a", "b")
    roster.miss("a")
    assert (roster.present, roster.to_greet) == (("b",), ("a",))
    assert roster.entries["a"].problem == "missed a deadline"
    roster.join("a", facts())
    assert roster.present == ("a", "b")
    assert roster.entries["a"].problem == ""


def test_a_name_that_is_not_known_is_ignored():
    roster = joined(Surroundings("a").roster(), "a")
    roster.see("stranger")
    roster.miss("stranger")
    roster.served({"stranger": 1, "a": 2})
    assert states(roster) == {"a": "present"}
    assert roster.entries["a"].row == 2


def test_a_reason_of_a_client_is_one_short_line_of_printable_characters():
    roster = Surroundings("a").roster()
    roster.refresh()
    roster.refuse("a", "no\n12:00:00  b is present \x1b[2J" + "x" * 1000)
    problem = roster.entries["a"].problem
    assert problem.startswith("no 12:00:00 b is present")
    assert problem.isprintable()
    assert len(problem) < 320


def test_the_wait_ends_with_the_reasons_when_too_few_clients_come():
    around = Surroundings("a", "b", "c")
    roster = joined(around.roster(wait=10.0), "a")
    roster.refuse("b", "refused: I will not")
    with pytest.raises(TimedOut, match=r"^1 clients .* after 10 seconds, 3 are needed \(b: refused: I will not\)$"):
        roster.wait_for(3)
    assert around.now >= 1010.0


def test_a_client_without_training_examples_does_not_count():
    around = Surroundings("a", "b")
    roster = around.roster(wait=1.0)
    roster.refresh()
    roster.join("a", facts(fit=0))
    roster.join("b", facts())
    assert roster.trainable() == ("b",)
    with pytest.raises(TimedOut):
        roster.wait_for(2)


def test_clients_of_a_resumed_run_are_away_until_they_answer_although_they_seem_to_be_connected():
    around = Surroundings("a", "b")
    saved = joined(around.roster(), "a", "b")
    saved.begin()
    roster = around.roster()
    roster.load(saved.save())
    roster.refresh()
    assert states(roster) == {"a": "away", "b": "away"}
    assert roster.to_greet == ("a", "b")
    roster.join("a", facts())
    roster.load(saved.save())  # the run loads its state once more
    assert roster.present == ("a",)
    assert roster.initial == ("a", "b")
    assert roster.newcomers() == ()


def test_a_resumed_run_waits_for_all_clients_that_are_still_admitted():
    around = Surroundings("a", "b", "c")
    saved = joined(around.roster(), "a", "b", "c")
    roster = around.roster()
    roster.load(saved.save())
    del around.admitted["c"]
    rounds = []

    def greet():
        rounds.append(roster.to_greet)
        roster.join("ab"[len(rounds) - 1], facts())  # one in each greeting

    roster.greet = greet
    roster.wait_for_return(60.0)
    assert rounds == [("a", "b"), ("b",)]
    assert roster.present == ("a", "b")
    assert around.now < 1060.0


def test_a_resumed_run_does_not_wait_for_ever():
    around = Surroundings("a", "b")
    saved = joined(around.roster(), "a", "b")
    around.connected = {"key of a"}
    roster = around.roster()
    roster.load(saved.save())
    roster.greet = lambda: roster.join("a", facts())
    roster.wait_for_return(60.0)
    assert roster.present == ("a",)
    assert 1060.0 <= around.now < 1062.0


def test_newcomers_are_those_that_join_after_the_beginning_and_each_is_returned_once():
    around = Surroundings("a", "b")
    roster = joined(around.roster(), "a")
    roster.begin()
    assert roster.newcomers() == ()
    roster.join("b", facts())
    assert roster.newcomers() == ("b",)
    assert roster.newcomers() == ()
