"""What is refused when a run is built."""

from __future__ import annotations

import logging

import pytest

from coterie.errors import SpecError
from coterie.methods import METHODS, method_class, settings_of
from coterie.runs.build import build
from coterie.runs.spec import Spec, method_options

TAKE_CLUSTERS = [name for name in METHODS if "clusters" in settings_of(method_class(name))]


def spec(method, **settings):
    return Spec.from_dict({"data": {"name": "blobs", "clients": 4}, "method": {"name": method, **settings}})


def test_these_methods_take_a_number_of_clusters():
    assert {"ifca", "fedgroup", "fesem", "fedsoft", "fedsim", "flhc", "localkmeans"} <= set(TAKE_CLUSTERS)


@pytest.mark.parametrize("method", TAKE_CLUSTERS)
def test_more_clusters_than_clients_are_refused(method):
    assert method_options(method)["clusters"] != 6
    with pytest.raises(
        SpecError, match=r"method\.clusters must be at most 4, the number of clients that have training examples, got 6"
    ):
        build(spec(method, clusters=6))
    assert build(spec(method, clusters=4)).spec.method.options["clusters"] == 4


def test_the_default_number_of_clusters_is_only_a_warning(caplog):
    assert method_options("fedsim")["clusters"] == 5
    with caplog.at_level(logging.WARNING, "coterie"):
        build(spec("fedsim"))
    (warning,) = caplog.records
    assert warning.getMessage().startswith("fedsim has 5 clusters by default, more than 4, the number of clients")
