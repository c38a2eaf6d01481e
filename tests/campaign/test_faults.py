"""Faults of 0 to 90 % and every attack, for all methods: a run gives finite results, or says what went wrong."""

from __future__ import annotations

import math
import random
import typing

import hypothesis
import pytest
from hypothesis import strategies as st

import coterie
from coterie import codec
from coterie.errors import FederationError
from coterie.federation import Attack, Faults
from coterie.methods import METHODS

pytestmark = pytest.mark.slow

ATTACKS = typing.get_args(typing.get_type_hints(Attack)["name"])
#: Settings with which a method trains clusters within three rounds.
SETTINGS = {
    "flag": {"threshold_step": 0.5, "validation_clients": 4, "trial_rounds": 1, "trial_epochs": 1, "update_epochs": 1},
    "fedgroup": {"clusters": 2, "alpha": 2},
    "fedgrouprox": {"clusters": 2, "alpha": 2},
    "flexcfl": {"clusters": 2, "alpha": 2},
    "flhc": {"warm_rounds": 1},
    "localkmeans": {"clusters": 2, "init_steps": 5},
    "oneshotifca": {"init_steps": 5},
    "srfca": {"init_steps": 5, "refines": 1, "refine_rounds": 1},
}


@st.composite
def any_faults(draw: st.DrawFn) -> dict[str, float]:
    """Some faults, together in 0 to 90 % of the replies."""
    total = draw(st.sampled_from([0.0, 0.9]) | st.floats(0.0, 0.9))
    names = draw(st.lists(st.sampled_from(list(Faults.__dataclass_fields__)), unique=True, min_size=1))
    return {name: total / len(names) for name in names}


strengths = st.fixed_dictionaries({}, optional={"fraction": st.floats(0.05, 0.5), "strength": st.floats(0.1, 100.0)})
rules = st.sampled_from(["mean", "mean", "median", "trimmed-mean", "norm-clip"])


def check(record: coterie.RunRecord) -> None:
    """The figures are finite and within their ranges."""
    summary = record.summary
    assert summary["status"] == "done"
    assert codec.finite(record.models())
    assert 0 <= summary["coverage"] <= 1
    assert 0 <= summary["accuracy"]["weighted"] <= 1
    assert math.isfinite(summary["test_loss"])
    assert summary["rounds"] <= 3  # some methods finish earlier


@pytest.mark.parametrize(
    "method", [name if name == "ifca" else pytest.param(name, marks=pytest.mark.exhaustive) for name in METHODS]
)
def test_faults_and_attacks_end_with_finite_results_or_a_named_failure(method, campaign, tally, message):
    counts = tally("faults", method)
    for attack in ATTACKS:
        check_attack(method, attack, campaign, counts, message)


def check_attack(method, attack, campaign, counts, message):
    """Run a method under an attack, each time with other faults."""

    @hypothesis.seed(random.Random(f"faults {campaign.seed} {method} {attack}").getrandbits(32))
    @hypothesis.settings(
        max_examples=campaign.examples,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],  # no shrinking: an example is a run
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(faults=any_faults(), strength=strengths, rule=rules, seed=st.integers(0, 99))
    def run(faults, strength, rule, seed):
        spec = {
            "data": {"name": "blobs", "clients": 12, "samples": 20, "side": 4},
            "method": {"name": method, **SETTINGS.get(method, {})},
            "local": {"epochs": 1, "learning_rate": 0.05},
            "run": {"rounds": 3, "clients_per_round": 6, "seed": seed},
            "faults": faults,
            "attack": {"name": attack, **strength},
            "aggregation": {"rule": rule},
        }
        try:
            record = coterie.run(spec)
        except FederationError as fault:
            message(fault)
            counts.add(type(fault).__name__)
        else:
            check(record)
            counts.add("finished")

    run()
