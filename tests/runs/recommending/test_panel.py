"""Which methods a recommendation compares, and what it says about them."""

from __future__ import annotations

import pytest

from coterie.methods import METHODS
from coterie.runs.recommending.panel import BUDGETS, budget_of, panel
from coterie.runs.recommending.requirements import needs, reveals, sees_individuals
from coterie.runs.spec import Spec


def test_the_reference_comes_first_and_is_added():
    assert list(panel(Spec(), BUDGETS["small"], ["ifca"])) == ["fedavg", "ifca"]
    assert list(panel(Spec(), BUDGETS["small"], ["ifca", "fedavg"])) == ["fedavg", "ifca"]
    assert list(panel(Spec(), BUDGETS["small"])) == list(BUDGETS["small"].methods)


def test_settings_of_a_method_replace_those_of_the_panel():
    assert panel(Spec(), BUDGETS["small"], ["ifca"])["ifca"].method.options == {"restarts": 5}
    given = panel(Spec(), BUDGETS["small"], {"ifca": {"restarts": 2, "clusters": 3}})
    assert given["ifca"].method.options == {"restarts": 2, "clusters": 3}


def test_a_number_of_seconds_is_a_medium_budget_with_a_limit():
    for given in (90, 90.0, "90"):
        assert budget_of(given).seconds == 90
        assert budget_of(given).methods == BUDGETS["medium"].methods


def test_every_method_of_a_budget_has_needs_and_says_what_it_reveals():
    for name in BUDGETS["medium"].methods:
        assert reveals(name)[0].startswith("The server receives from each client: ")


@pytest.mark.parametrize(
    ("method", "options", "first"),
    [
        ("fedavg", {}, None),
        ("ifca", {"clusters": 3}, "the number of clusters (here 3)"),
        ("fedgroup", {}, "no number of clusters: it finds one itself"),
        ("cfl", {}, "no number of clusters: it finds one itself"),
    ],
)
def test_needs_say_whether_the_number_of_clusters_must_be_known(method, options, first):
    assert next(iter(needs(method, options)), None) == first


def test_needs_say_that_the_true_clusters_must_be_known():
    assert needs("oracle", {})[0] == "the true clusters, which are known only in simulations"
    assert not any("true clusters" in each for each in needs("ifca", {}))


def test_needs_say_whether_all_clients_must_take_part():
    assert any("all clients in some rounds" in each for each in needs("cfl", {}))
    assert any("preparation" in each for each in needs("fedgroup", {}))
    assert not any("all clients" in each for each in needs("ifca", {}))


def test_single_models_at_the_server_are_those_of_the_cards():
    assert sees_individuals("ifca") == "never"
    assert sees_individuals("fedgroup") == "preparation"
    assert {sees_individuals(name) for name in METHODS} <= {
        "never",
        "preparation",
        "round",
        "round, newcomer",
        "preparation, newcomer",
        "preparation, round, newcomer",
    }
