"""Bounds of settings: declared in the type annotation, checked by one function."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from coterie.bounds import Bound, check
from coterie.errors import SpecError


@dataclass(frozen=True)
class Example:
    count: Annotated[int, Bound(at_least=1)] = 1
    share: Annotated[float, Bound(at_least=0, at_most=1)] = 0.5
    rate: Annotated[float, Bound(above=0)] = 0.1
    trim: Annotated[float, Bound(at_least=0, below=0.5)] = 0.0
    limit: Annotated[float, Bound(above=0, infinite=True)] = math.inf
    clusters: Annotated[int, Bound(at_least=1)] | Literal["auto"] = "auto"
    optional: Annotated[int, Bound(at_least=0)] | None = None
    rounds: Annotated[tuple[int, ...], Bound(at_least=0)] = ()
    mode: Literal["a", "b"] = "a"
    loud: bool = False
    name: str = ""
    layers: tuple[str, ...] = ()
    anything: Any = None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": 0}, "s.count must be at least 1, got 0"),
        ({"count": 1.5}, "s.count must be a whole number of at least 1, got 1.5"),
        ({"count": True}, "s.count must be a whole number of at least 1, got True"),
        ({"share": 1.5}, "s.share must be between 0 and 1, got 1.5"),
        ({"share": math.nan}, "s.share must be between 0 and 1, got nan"),
        ({"rate": 0.0}, "s.rate must be above 0, got 0.0"),
        ({"rate": math.inf}, "s.rate must be a finite number above 0, got inf"),
        ({"trim": 0.5}, "s.trim must be at least 0 and below 0.5, got 0.5"),
        ({"limit": -math.inf}, "s.limit must be above 0, got -inf"),
        ({"clusters": 0}, "s.clusters must be at least 1, got 0"),
        ({"clusters": "many"}, "s.clusters must be a whole number of at least 1 or 'auto', got 'many'"),
        ({"optional": -1}, "s.optional must be at least 0, got -1"),
        ({"rounds": (3, -1)}, "s.rounds must be at least 0, got (3, -1)"),
        ({"rounds": (3, "x")}, "s.rounds must be a list, each item a whole number of at least 0, got (3, 'x')"),
        ({"mode": "c"}, "s.mode must be one of 'a', 'b', got 'c'"),
        ({"count": 2**63}, "s.count must be a 64-bit whole number of at least 1, got 9223372036854775808"),
        (
            {"rate": 10**309},
            f"s.rate must be a finite number above 0, got 1{'0' * 127} … (310 characters) … {'0' * 50}",
        ),
        ({"mode": np.zeros(2)}, "s.mode must be one of 'a', 'b', got array([0., 0.])"),
        ({"loud": 1}, "s.loud must be true or false, got 1"),
        ({"name": 1}, "s.name must be a string, got 1"),
        ({"layers": "a"}, "s.layers must be a list, each item a string, got 'a'"),
        ({"layers": ("a", 1)}, "s.layers must be a list, each item a string, got ('a', 1)"),
    ],
)
def test_a_setting_out_of_bounds_raises_an_error_that_names_the_allowed_values(settings, message):
    with pytest.raises(SpecError) as caught:
        check(Example(**settings), "s")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"count": 1, "share": 0, "trim": 0.49, "clusters": 3, "optional": 0},
        {"share": 1.0, "limit": 5, "rounds": [0, 2], "mode": "b", "loud": True, "anything": object()},
    ],
)
def test_settings_within_bounds_are_accepted(settings):
    check(Example(**settings), "s")
