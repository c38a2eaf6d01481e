"""Runs with [privacy]: what is refused, what is recorded, what is served, and what a client can change."""

from __future__ import annotations

import dataclasses
import functools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie
from coterie import codec, tree
from coterie.aggregation import Aggregation
from coterie.clients import LocalSGD
from coterie.errors import RecordError, SpecError
from coterie.federation import Averaging, Faults, FaultTransport, Privacy, Server, Vectorized
from coterie.federation.ledger import Ledger
from coterie.federation.privacy import PrivateReduction
from coterie.methods import METHODS
from coterie.methods import build as build_method
from coterie.methods.fedavg import FedAvg
from coterie.methods.protocol import Placement
from coterie.runs.method_card import measure_card
from coterie.runs.privacy import check_privacy, in_words, serve_large_clusters
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.runs.spec import Spec
from coterie.seeds import Seed
from coterie.testing import tiny_data, tiny_task

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.5)
BLOBS = {"name": "blobs", "clients": 12, "clusters": 2, "samples": 30, "side": 4, "classes": 3}
NOISE = {"max_update_norm": 0.5, "noise_multiplier": 1.0}

#: Settings with which each method runs with noise, quickly.
UNIFORM = {"weights": "uniform"}
METHOD_SETTINGS = {
    "cfl": [UNIFORM],
    "fedavg": [UNIFORM],
    "fedgroup": [{**UNIFORM, "clusters": 2, "alpha": 2}],
    "fedgrouprox": [{**UNIFORM, "clusters": 2, "alpha": 2}],
    "fedprox": [UNIFORM],
    "fedsim": [{**UNIFORM, "clusters": 2}],
    "fedsoft": [{"clusters": 2}],
    "fesem": [{"clusters": 2}],
    "fesem-mig": [{"clusters": 2}],
    "flag": [{**UNIFORM, "threshold_step": 0.5, "update_epochs": 1, "trial_rounds": 1, "trial_epochs": 1}],
    "flexcfl": [{**UNIFORM, "clusters": 2, "alpha": 2}],
    "flhc": [{**UNIFORM, "warm_rounds": 1}],
    "global": [{}],
    "ifca": [{"clusters": 2}, {"clusters": 2, "averaging": "gradients"}, {"clusters": 2, "members": 2}],
    "ifca-mig": [{"clusters": 2}],
    "localkmeans": [{**UNIFORM, "clusters": 2, "init_steps": 5, "finetune_rounds": 2}],
    "oneshotifca": [{"init_steps": 5}],
    "oracle": [UNIFORM],
    "pacfl": [UNIFORM],
    "perfedavg": [{}],
    "srfca": [{"beta": 0.0, "init_steps": 5}, {"beta": 0.0, "init_steps": 5, "mode": "gradients"}],
}
VARIANTS = [(name, options) for name, variants in METHOD_SETTINGS.items() for options in variants]
#: One method for each way of averaging: sums per request, and averages of individual replies.
QUICK = ("fedavg", "ifca", "cfl", "fesem")
ALL_VARIANTS = [
    pytest.param(name, options, id=f"{name} {number}", marks=() if name in QUICK else pytest.mark.exhaustive)
    for number, (name, options) in enumerate(VARIANTS)
]
#: Methods whose models depend on noisy sums only.
COVERED = {"fedavg", "fedprox", "global", "ifca", "oracle", "perfedavg"}


def session_of(name, options, averaging, seed=0, size=5, faults=None):
    """A session of a method on eight of the tiny clients."""
    transport = Vectorized(tiny_data(), tiny_task())
    if faults is not None:
        transport = FaultTransport(transport, faults, Seed(seed))
    clients = transport.clients[:8]
    truth = {client: int(k) for client, k in zip(tiny_data().clients, tiny_data().truth, strict=True)}
    given = {"truth": truth, "rounds": 4, "clients_per_round": size, "clients": len(clients)}
    method = build_method(name, LOCAL, given, **options)
    return Session(method, Server(transport, averaging=averaging), Seed(seed), Sampler(clients, size, Seed(seed)))


def spec(privacy=NOISE, method=UNIFORM, name="fedavg", **more):
    return {
        "data": BLOBS,
        "method": {"name": name, **method},
        "local": {"epochs": 1},
        "run": {"rounds": 4, "clients_per_round": 4, **more.pop("run", {})},
        "privacy": privacy,
        **more,
    }


# ------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": {"weights": "samples"}}, r"set method\.weights = 'uniform'"),
        ({"aggregation": {"rule": "median"}}, r"set aggregation\.rule = 'mean'"),
        ({"name": "srfca", "method": {"beta": 0.1}}, r"does not cover all means of srfca.*method\.beta"),
        ({"name": "fesem", "method": {"warm_start": True}}, r"method\.warm_start"),
        ({"name": "local", "method": {}}, "local averages nothing"),
        ({"privacy": {"noise_multiplier": 1.0}}, r"privacy\.max_update_norm above 0"),
        ({"privacy": {"min_cluster_size": 13}}, "must be at most 12"),
        ({"privacy": {"min_cluster_size": 2}, "run": {"eval_model": "last_received"}}, r"run\.eval_model = 'group'"),
    ],
)
def test_settings_without_a_guarantee_are_refused_with_the_setting_that_helps(changes, message):
    with pytest.raises(SpecError, match=message):
        coterie.run(spec(**changes))


def test_noise_is_refused_for_models_with_running_statistics():
    def init(seed):
        return {"norm": {"scale": np.ones(2, np.float32), "stats": {"var": np.ones(2, np.float32)}}}

    task = dataclasses.replace(tiny_task(), init=init)
    with pytest.raises(SpecError, match="running variances negative; choose a model without running statistics"):
        check_privacy(Spec.from_dict(spec()), FedAvg(weights="uniform"), task, 12)


def test_every_method_that_averages_is_tested_here():
    assert set(METHOD_SETTINGS) == set(METHODS) - {"local"}


# ------------------------------------------------------------------------------------------------- what is recorded


def test_without_privacy_the_record_has_no_epsilon():
    record = coterie.run(spec(privacy={}))
    assert record.summary["privacy"] is None
    assert all("privacy" not in row for row in record.rounds)


def test_clipping_alone_has_no_epsilon():
    record = coterie.run(spec(privacy={"max_update_norm": 0.5}))
    assert record.summary["privacy"] == {"max_update_norm": 0.5, "noise_multiplier": 0.0, "min_cluster_size": 0}
    assert in_words(record.summary["privacy"]) == "updates clipped to norm 0.5; no noise, so no guarantee"
    assert all("privacy" not in row for row in record.rounds)


def test_every_round_records_the_epsilon_so_far():
    record = coterie.run(spec(run={"clients_per_round": 12}))
    # All twelve clients are in every round: after t rounds, t Gaussian mechanisms with z = 1.
    delta = 12**-1.1
    for t, row in enumerate(record.rounds, start=1):
        ledger = Ledger(participations={"a": t})
        assert row["privacy"] == {"epsilon": ledger.guarantee(1.0, delta).epsilon, "delta": pytest.approx(delta)}
    assert record.summary["privacy"] == {
        **NOISE,
        "min_cluster_size": 0,
        **record.rounds[-1]["privacy"],
        "bound": "participation",
        "max_participations": 4,
        "not_covered": [],
    }
    assert in_words(record.summary["privacy"]).endswith("for the models, if the server is trusted")
    json.dumps(record.summary["privacy"])


def test_with_a_fixed_cohort_size_the_bound_is_by_the_rounds_in_which_a_client_took_part():
    record = coterie.run(spec())
    took_part = [client for row in record.rounds for client in row["assignment"]]
    most = max(took_part.count(client) for client in took_part)
    assert most < 4
    assert record.summary["privacy"]["max_participations"] == most
    assert record.summary["privacy"]["epsilon"] == Ledger(participations={"a": most}).guarantee(1.0, 12**-1.1).epsilon


def test_poisson_sampling_amplifies_for_methods_that_use_sums_only():
    record = coterie.run(spec(run={"sampler": "poisson", "clients_per_round": 1}))
    assert record.summary["privacy"]["bound"] == "sampling"
    clustered = coterie.run(spec(name="cfl", run={"sampler": "poisson", "clients_per_round": 1}))
    assert clustered.summary["privacy"]["bound"] == "participation"
    assert clustered.summary["privacy"]["not_covered"] == ["fit"]
    assert "individual replies (fit) is not covered" in in_words(clustered.summary["privacy"])


@pytest.mark.exhaustive
def test_the_choice_of_a_restart_by_losses_is_not_covered():
    record = coterie.run(spec(name="ifca", method={"clusters": 2, "restarts": 2}))
    assert record.summary["privacy"]["not_covered"] == ["the choice of the restart by training losses"]
    # Each restart is a release of its own.
    took_part = [client for row in record.rounds for client in row["assignment"]]
    assert record.summary["privacy"]["max_participations"] == 2 * max(map(took_part.count, took_part))


def test_an_infinite_epsilon_is_shown_as_infinite():
    assert in_words({"epsilon": None, "delta": 0.1, "max_update_norm": 1.0, "not_covered": []}).startswith("ε = ∞")


def test_a_resumed_run_has_the_same_noise_and_the_same_epsilon(tmp_path):
    whole = coterie.run(spec(name="ifca", method={"clusters": 2}))
    seen = []

    def interrupt(row):
        seen.append(row)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        coterie.run(spec(name="ifca", method={"clusters": 2}), out=tmp_path / "run", on_round=interrupt)
    resumed = coterie.resume(tmp_path / "run")
    assert [row["privacy"] for row in resumed.rounds] == [row["privacy"] for row in whole.rounds]
    assert resumed.summary["privacy"] == whole.summary["privacy"]
    assert tree.same(resumed.models(), whole.models())


# --------------------------------------------------------------------------------------- what one client can change


@functools.cache
def contributions(name, options, norm, seed):
    """Run a method; returns the ledger, and for each noisy sum the norms of what its clients contribute."""
    averaging = Averaging(Aggregation(), Privacy(norm, 0.5, 1e-5), Seed(seed))
    found = []
    add = PrivateReduction._sum

    def recorded(self, updates, groups, weights, blocks):
        found.append(np.linalg.norm(tree.flatten_rows(updates), axis=1) * weights)
        add(self, updates, groups, weights, blocks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateReduction, "_sum", recorded)
        session = session_of(name, dict(options), averaging, seed)
        steps = list(session.steps(4))
    return averaging.ledger, found, steps


@pytest.mark.parametrize(("name", "options"), ALL_VARIANTS)
@settings(max_examples=3, deadline=None)
@given(norm=st.sampled_from([0.01, 0.1, 1.0]), seed=st.integers(0, 2))
def test_without_one_client_every_sum_changes_by_at_most_the_norm(name, options, norm, seed):
    ledger, norms, _ = contributions(name, tuple(options.items()), norm, seed)
    assert norms
    assert all((each <= norm * (1 + 1e-9)).all() for each in norms)
    assert any((each > 0).any() for each in norms)
    # No client is in more sums than the ledger counts.
    assert sum(np.count_nonzero(each) for each in norms) <= sum(ledger.participations.values())


@pytest.mark.parametrize(
    ("name", "options"),
    [("fedavg", UNIFORM), *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in VARIANTS)],
)
def test_the_ledger_and_the_card_agree_on_what_is_not_covered(name, options):
    ledger, _, _ = contributions(name, tuple(options.items()), 0.1, 0)
    card = measure_card(name, options)
    assert card.averages
    plain = name in COVERED and not options.get("members")
    assert (not ledger.individual) == (not card.not_covered) == plain
    text = " ".join(card.sentences())
    assert ("is NOT covered" in text) != plain
    assert ("the models are differentially private" in text) == plain


@pytest.mark.parametrize(("name", "options"), ALL_VARIANTS)
def test_a_large_norm_without_noise_changes_no_byte_of_the_state(name, options):
    states = []
    for privacy in (Privacy(), Privacy(1e9)):
        session = session_of(name, options, Averaging(Aggregation(), privacy))
        for _ in session.steps(4):
            pass
        states.append(codec.encode(session.state))
    assert states[0] == states[1]


@pytest.mark.parametrize(("name", "options"), ALL_VARIANTS)
def test_the_same_seed_gives_the_same_noise(name, options):
    states = []
    for _ in range(2):
        session = session_of(name, options, Averaging(Aggregation(), Privacy(0.1, 1.0, 1e-5), Seed(3)))
        for _ in session.steps(4):
            pass
        states.append(codec.encode(session.state))
    assert states[0] == states[1]


def test_the_card_of_local_says_that_noise_is_refused():
    assert "Nothing is averaged: noise ([privacy]) is refused." in measure_card("local").sentences()


# ----------------------------------------------------------------------------------------------------- small clusters


def placement(*sizes):
    """Models 0, 1, … for clusters of these sizes; the method's fallback model is 100."""
    row = {f"{k}-{i}": k for k, size in enumerate(sizes) for i in range(size)}
    bank = {"w": np.arange(len(sizes), dtype=np.float32).reshape(-1, 1)}
    return Placement(bank, row, fallback={"w": np.array([100.0], np.float32)})


def test_clients_of_small_clusters_get_the_mean_of_the_large_ones():
    before = placement(5, 2, 3, 0)
    after = serve_large_clusters(before, before.row, 3)
    # The mean of 0 and 2, without the model 1 that must not be served, and without the empty cluster 3.
    assert after.fallback["w"].tolist() == [1.0]
    assert after.bank["w"].tolist() == [[0.0], [1.0], [2.0], [1.0]]
    assert after.row == {client: row for client, row in before.row.items() if row in (0, 2)}


def test_if_all_clusters_are_small_everyone_gets_the_fallback_model_of_the_method():
    before = placement(2, 1)
    after = serve_large_clusters(before, before.row, 3)
    assert after.row == {}
    assert after.bank["w"].tolist() == [[100.0], [100.0]]


def test_clusters_that_are_large_enough_are_served_unchanged():
    before = placement(3, 4)
    assert serve_large_clusters(before, before.row, 3) is before


def test_the_other_clients_of_a_cluster_count_when_a_newcomer_is_placed():
    everyone = placement(5, 2)
    new = dataclasses.replace(everyone, row={"new": 0, "other": 1})
    after = serve_large_clusters(new, {**everyone.row, **new.row}, 4)
    assert after.row == {"new": 0}


@pytest.fixture(scope="module")
def small_clusters(tmp_path_factory):
    """The true clusters have 6 clients each; with one client moved, 7 and 5, of which only the first may be served."""
    data = coterie.data.load(**BLOBS)
    truth = data.truth.copy()
    truth[np.flatnonzero(truth == 1)[0]] = 0
    assert sorted(np.bincount(truth)) == [5, 7]
    folder = tmp_path_factory.mktemp("small") / "run"
    setting = spec(privacy={"min_cluster_size": 6}, name="oracle", method={})
    record = coterie.run(setting, data=dataclasses.replace(data, truth=truth), out=folder)
    small = int(np.bincount(truth).argmin())
    return (
        coterie.RunRecord.read(folder),
        record,
        small,
        [c for c, k in zip(data.clients, truth, strict=True) if k == small],
    )


def test_the_model_of_a_small_cluster_is_neither_served_nor_in_the_record(small_clusters):
    read, record, small, members = small_clusters
    for each in (read, record):
        assert sorted(each.served["unassigned"]) == sorted(members)
        assert tree.same(tree.row(each.models(), small), each.served["fallback"])
        assert tree.same(tree.row(each.models(), 1 - small), each.served["fallback"])  # the mean of one model
        assert each.clusters() == [1 - small]
    assert record.summary["coverage"] == pytest.approx(7 / 12)
    assert record.summary["clusters"]["sizes"][small] == 0


def test_a_client_of_a_small_cluster_is_predicted_with_the_fallback_model(small_clusters):
    record, _, small, (client, *_) = small_clusters
    x = np.zeros((2, *record.served["input"]["shape"]), np.uint8)
    np.testing.assert_array_equal(record.predict(x, client=client), record.predict(x, cluster=1 - small))
    with pytest.raises(RecordError, match=r"fewer than 6 clients \(privacy\.min_cluster_size\)"):
        record.predict(x, cluster=small)
    with pytest.raises(RecordError, match="served the fallback model"):
        record.model_of(client)


@pytest.mark.parametrize(("minimum", "covered"), [(3, 1.0), (6, 0.0)])
def test_all_clients_of_a_cluster_count_when_one_of_them_is_evaluated(minimum, covered):
    # The ten tiny clients are in two true clusters of five.
    averaging = Averaging(Aggregation(), Privacy(min_cluster_size=minimum))
    session = session_of("oracle", {}, averaging)
    session.step()
    assert session.evaluate(["3"]).coverage == covered


def test_lost_replies_leave_the_denominator_and_the_count_of_releases_unchanged():
    averaging = Averaging(Aggregation(), Privacy(0.1, 1.0, 1e-5), Seed(0))
    session = session_of("ifca", {"clusters": 2}, averaging, faults=Faults(drop=0.4))
    steps = list(session.steps(4))
    asked = [client for step in steps for client in step.cohort]
    took_part = [client for step in steps if step.round is not None for client in step.round.assignment]
    assert len(took_part) < len(asked)
    assert averaging.ledger.participations == {client: asked.count(client) for client in asked}


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"noise_multiplier": 1e-160, "max_update_norm": 1}, "privacy.noise_multiplier must be 0 or between 1e-09 and"),
        ({"noise_multiplier": 1e308, "max_update_norm": 1}, "privacy.noise_multiplier must be 0 or between 1e-09 and"),
        (
            {"noise_multiplier": 1, "max_update_norm": 1e300},
            "privacy.max_update_norm must be 0 or between 1e-09 and 1e",
        ),
    ],
)
def test_settings_without_a_sensible_guarantee_are_refused_before_the_run(section, text):
    with pytest.raises(SpecError, match=text):
        Spec.from_dict({"privacy": section})


def test_delta_without_noise_is_refused():
    with pytest.raises(SpecError, match=r"privacy\.delta needs privacy\.noise_multiplier above 0"):
        coterie.run({"data": "blobs", "privacy": {"delta": 0.1}})
