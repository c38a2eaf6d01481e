"""What a method costs and reveals, by what it is seen to ask."""

from __future__ import annotations

import pytest

from coterie.clients import LocalSGD
from coterie.clients.schema import Model, Ragged, Settings, Values
from coterie.runs.method_card import Card, card, in_words


def test_fedavg_sends_a_model_each_way_and_the_server_sees_sums():
    seen = card("fedavg")
    assert seen.round == {"train": (1.0, 1.0)}
    assert seen.preparing == {}
    assert seen.newcomer == {}
    assert seen.handed_over == ()
    assert not seen.grouped
    (fit,) = [ask for ask in seen.asks if ask.when == "round"]
    assert (fit.work, set(fit.summed), fit.beyond) == ("fit", {"params"}, False)
    assert "params" not in fit.single
    assert "It sees models only as sums: under the plain mean, secure aggregation would do." in seen.sentences()
    assert "A robust rule has the server see single models." in seen.sentences()
    # The distance of each reply to the mean is measured, which a secure sum could not give.
    assert "distance to the mean" in fit.single
    assert "Distances to the mean are for the record; with secure sums there would be none." in seen.sentences()


def test_ifca_sends_as_many_models_as_it_has_clusters_and_sums_by_group():
    seen = card("ifca", {"clusters": 3})
    assert seen.round == {"train": (3.0, 1.0)}
    assert seen.newcomer == {"train": (3.0, 0.0)}
    assert seen.handed_over == ()
    assert seen.grouped
    assert "The sum over a group of one client is that client's model." in seen.sentences()


def test_fedgroup_sees_single_updates_while_it_prepares_and_only_then():
    seen = card("fedgroup", {"clusters": 2, "alpha": 2})
    # 15 clients: 4 founders are sent w_0 and give an update, all 15 are sent 2 directions, the 11 others w_0 as `base`.
    assert seen.preparing == {"base": (0.73, 0.0), "directions": (2.0, 0.0), "pretrain": (0.27, 0.27)}
    # A newcomer is sent w_0 and 2 directions, and gives numbers.
    assert seen.newcomer == {"base": (1.0, 0.0), "directions": (2.0, 0.0)}
    assert seen.handed_over == ("preparing",)
    (choose,) = [ask for ask in seen.asks if ask.when == "newcomer"]
    assert choose.sent["w0"] == "a model, once"
    assert "choice" in choose.single
    lines = seen.sentences()
    assert "Models or arrays of single clients reach it while preparing: there, sums would not be enough." in lines
    assert "In rounds it sees models only as sums: under the plain mean, secure aggregation would do." in lines


def test_cfl_asks_everybody_looks_at_each_model_and_has_newcomers_go_down_its_tree():
    seen = card("cfl")
    # All 15 clients train in a round whose cohort is 8.
    assert seen.round["train"] == pytest.approx((15 / 8, 15 / 8), abs=0.01)
    assert seen.handed_over == ("round", "newcomer")
    (fit,) = [ask for ask in seen.asks if ask.when == "round"]
    assert fit.beyond
    assert "params" in fit.single
    assert not fit.summed
    down, up = seen.newcomer["pretrain"]
    assert down == up
    assert down >= 1, "a model each way at each split"
    lines = seen.sentences()
    assert "In a round, clients outside of the cohort are asked, too: fit." in lines
    assert not any("secure aggregation" in line or "robust" in line for line in lines)


def test_what_is_made_of_examples_is_handed_over_like_a_model():
    seen = card("pacfl")
    assert "preparing" in seen.handed_over
    assert any("arrays of" in what for ask in seen.asks for what in ask.single.values())


def test_of_local_no_model_leaves_the_client():
    seen = card("local")
    assert "No model leaves the client." in seen.sentences()
    assert "In the client's memory, and nowhere else, stays local.own." in seen.sentences()
    assert all(up == 0 for _, up in seen.round.values())


def test_schemas_in_words():
    assert in_words(Model()) == "a model"
    assert in_words(Model(("k",), partial=True)) == "k of layers of a model"
    assert in_words(Values("float32")) == "a number"
    assert in_words(Values("float32", ("classes",))) == "classes numbers"
    assert in_words(Ragged("float32", ("inputs", "p"), "classes")) == "up to classes arrays of inputs × p numbers"
    assert in_words(Settings(LocalSGD)) == "settings"


def test_a_card_without_costs_says_nothing():
    lines = Card((), {}, {}, {}, (), False).sentences()
    assert lines[0] == "A round costs, in models, 0 down and 0 up for each client of the cohort (nothing)."
    assert lines[1] == "Of each single client the server sees its number of examples."
