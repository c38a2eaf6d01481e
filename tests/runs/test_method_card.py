"""Method cards: traffic of a method, and what the server sees."""

from __future__ import annotations

import pytest

from coterie.clients import LocalSGD
from coterie.clients.schema import Model, Ragged, Settings, Values
from coterie.runs.method_card import Card, in_words, measure_card, shipped_card


def test_fedavg_sends_one_model_each_way_and_the_server_needs_only_sums():
    seen = measure_card("fedavg")
    assert seen.round == {"train": (1.0, 1.0)}
    assert seen.preparation == {}
    assert seen.newcomer == {}
    assert seen.individual == ()
    assert not seen.per_cluster
    (fit,) = [ask for ask in seen.exchanges if ask.when == "round"]
    assert (fit.work, set(fit.aggregated), fit.outside_cohort) == ("fit", {"params"}, False)
    assert "params" not in fit.received
    assert (
        "The server needs only sums of models: secure aggregation is possible with the plain mean." in seen.sentences()
    )
    assert "Robust rules need individual models on the server." in seen.sentences()
    # The distance of each reply to the mean is measured, which a secure sum could not give.
    assert "distance to the mean" in fit.received
    assert (
        "Distances to the mean are recorded for reports; secure aggregation could not provide them." in seen.sentences()
    )


def test_ifca_sends_one_model_per_cluster_and_sums_per_cluster():
    seen = measure_card("ifca", {"clusters": 3})
    assert seen.round == {"train": (3.0, 1.0)}
    assert seen.newcomer == {"train": (3.0, 0.0)}
    assert seen.individual == ()
    assert seen.per_cluster
    assert "If a cluster has one client in a round, the sum for the cluster is that client's model." in seen.sentences()


def test_fedgroup_receives_individual_updates_only_during_preparation():
    seen = measure_card("fedgroup", {"clusters": 2, "alpha": 2})
    # 15 clients: 4 initial clients get w_0 and send an update; all 15 get 2 directions; the 11 others get w_0 (`base`).
    assert seen.preparation == {"base": (0.73, 0.0), "directions": (2.0, 0.0), "pretrain": (0.27, 0.27)}
    # A new client gets w_0 and 2 directions, and sends numbers.
    assert seen.newcomer == {"base": (1.0, 0.0), "directions": (2.0, 0.0)}
    assert seen.individual == ("preparation",)
    (choose,) = [ask for ask in seen.exchanges if ask.when == "newcomer"]
    assert choose.sent["w0"] == "a model, once"
    assert "choice" in choose.received
    lines = seen.sentences()
    individual = (
        "The server receives models, or arrays computed from examples, of individual clients during preparation; "
        "secure aggregation is not possible there."
    )
    assert individual in lines
    assert (
        "In rounds the server needs only sums of models: secure aggregation is possible with the plain mean." in lines
    )


def test_cfl_trains_all_clients_needs_individual_models_and_places_newcomers_by_its_tree():
    seen = measure_card("cfl")
    # All 15 clients train in a round whose cohort is 8.
    assert seen.round["train"] == pytest.approx((15 / 8, 15 / 8), abs=0.01)
    assert seen.individual == ("round", "newcomer")
    fit, halves = [ask for ask in seen.exchanges if ask.when == "round"]
    assert set(halves.received.values()) == {"a number"}  # whether halves of a client's examples agree about a split
    assert fit.outside_cohort
    assert "params" in fit.received
    assert not fit.aggregated
    down, up = seen.newcomer["pretrain"]
    assert down == up
    assert down >= 1, "a model each way at each split"
    lines = seen.sentences()
    assert "Clients outside the cohort also work in a round: fit and project_halves." in lines
    assert not any("secure aggregation is possible" in line or "Robust" in line for line in lines)


def test_arrays_computed_from_examples_count_like_models():
    seen = measure_card("pacfl")
    assert "preparation" in seen.individual
    assert any("arrays of" in what for ask in seen.exchanges for what in ask.received.values())


def test_with_local_no_model_leaves_the_client():
    seen = measure_card("local")
    assert "No model leaves the client." in seen.sentences()
    assert "Stored on the client only: local.own." in seen.sentences()
    assert all(up == 0 for _, up in seen.round.values())


def test_schemas_in_words():
    assert in_words(Model()) == "a model"
    assert in_words(Model(("k",), partial=True)) == "k of layers of a model"
    assert in_words(Values("float32")) == "a number"
    assert in_words(Values("float32", ("classes",))) == "classes numbers"
    assert in_words(Ragged("float32", ("inputs", "p"), "classes")) == "up to classes arrays of inputs × p numbers"
    assert in_words(Settings(LocalSGD)) == "settings"


def test_what_the_server_receives_is_named_with_its_kind():
    (line, *_) = shipped_card("flhc").seen_by_server()
    assert "params (a model)" in line
    assert line.endswith("loss, steps and its number of samples.")


def test_a_card_without_traffic_says_so():
    lines = Card((), {}, {}, {}, (), False).sentences()
    assert lines[0] == "Traffic per round, for each client in the cohort, in models: 0 down, 0 up (none)."
    assert lines[1] == "The server receives from each client: its number of samples."
