"""FlexCFL: the detector by hand, migrations and their traffic, and equality with FedGroup without migrations."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import coterie
from coterie import codec, data, models, tree
from coterie.clients import LocalSGD
from coterie.errors import SpecError, TooFewReplies
from coterie.federation import Sequential, Server, sequential, vectorized
from coterie.methods.fedgroup import FedGroup
from coterie.methods.flexcfl import FlexCFL
from coterie.metrics import adjusted_rand
from coterie.models import Normalize
from coterie.runs.build import build
from coterie.runs.spec import Spec
from coterie.seeds import Seed
from coterie.shift import SHIFTS

BOTH = pytest.mark.parametrize(
    "make",
    [
        pytest.param(sequential, id="sequential"),
        pytest.param(vectorized, id="vectorized", marks=pytest.mark.exhaustive),
    ],
)
LOCAL = LocalSGD(epochs=2, batch_size=8, learning_rate=0.1)


@pytest.fixture
def held():
    """Label counts in two true clusters: a, b, e have class 0 only; c, d, f class 1 only."""
    return {"a": (10, 0), "b": (12, 0), "c": (0, 10), "d": (0, 12), "e": (9, 0), "f": (0, 9)}


@pytest.fixture
def flex():
    """`flex(...)`: FlexCFL with two groups formed from all available clients."""

    def make(**settings):
        return FlexCFL(
            **{
                "local": LocalSGD(epochs=1, batch_size=0, learning_rate=0.5),
                "clusters": 2,
                "pretrain_steps": 3,
                **settings,
            }
        )

    return make


# Migration -----------------------------------------------------------------------------------------------------------


@BOTH
def test_drifted_clients_migrate_in_the_cohort_or_not(make, held, flex, run_rounds, cohort, labeled, two_classes):
    fed, method = make(labeled(**held), two_classes), flex()
    state, _ = run_rounds(method, fed, 0)
    assert dict(state.assignment) == {"a": 0, "b": 0, "c": 1, "d": 1, "e": 0, "f": 1}
    quiet = method.round(state, fed, cohort(fed, 0, "bc"), Seed(1))
    assert quiet.counts == {"shifts": 0, "migrations": 0}
    # a and c exchange their data; b gets more of the same class: a drift, but no migration.
    fed.set_data(labeled(**held | {"a": (0, 10), "c": (10, 0), "b": (20, 0)}))
    out = method.round(quiet.state, fed, cohort(fed, 1, "bd"), Seed(2))
    assert out.counts == {"shifts": 3, "migrations": 2}
    assert out.flagged == ("a", "b", "c")
    assert quiet.flagged == ()
    assert dict(out.state.assignment) == {"a": 1, "b": 0, "c": 0, "d": 1, "e": 0, "f": 1}
    assert out.assignment == {"a": 1, "b": 0, "c": 0, "d": 1}
    again = method.round(out.state, fed, cohort(fed, 2, "bd"), Seed(3))
    assert again.counts == {"shifts": 0, "migrations": 0}
    # Each client is served by its new group.
    assert method.place(again.state, fed.evaluating(), fed.clients, Seed(0))[1].row == dict(out.state.assignment)


def test_a_migration_downloads_nothing(held, flex, run_rounds, cohort, labeled, two_classes):
    fed, method = sequential(labeled(**held), two_classes), flex(alpha=2)
    state, _ = run_rounds(method, fed, 1)
    assert len(state.initial_clients) == 4
    fed.set_data(labeled(**{name: counts[::-1] for name, counts in held.items()}))
    out = method.round(state, fed, cohort(fed, 7, ["a"]), Seed(2))
    assert out.counts == {"shifts": 6, "migrations": 6}
    model = 4 * tree.size(state.w0)
    sent = fed.traffic.by_purpose(7)
    assert set(sent) == {"train", "control"}
    assert sent["train"] == {"down": model, "up": model}


def test_with_sorted_counts_clients_with_exchanged_classes_do_not_migrate(
    held, flex, run_rounds, cohort, labeled, two_classes
):
    fed, method = sequential(labeled(**held), two_classes), flex(detector="sorted_counts")
    state, _ = run_rounds(method, fed, 0)
    fed.set_data(labeled(**{name: counts[::-1] for name, counts in held.items()}))
    out = method.round(state, fed, cohort(fed), Seed(2))
    assert out.counts == {"shifts": 0, "migrations": 0}
    assert dict(out.state.assignment) == dict(state.assignment)


def test_clients_without_a_group_set_their_reference_counts_when_they_join(
    held, flex, run_rounds, cohort, labeled, two_classes
):
    fed, method = sequential(labeled(**held), two_classes), flex(alpha=2)
    state, _ = run_rounds(method, fed, 0)
    new = sorted(set(fed.clients).difference(state.initial_clients))
    assert len(new) == 2
    # Their data change before they join: no drift, neither now nor later.
    fed.set_data(labeled(**held | {name: held[name][::-1] for name in new}))
    out = method.round(state, fed, cohort(fed, 0, new), Seed(1))
    assert out.counts == {"shifts": 0, "migrations": 0}
    after = method.round(out.state, fed, cohort(fed, 1, new), Seed(2))
    assert after.counts == {"shifts": 0, "migrations": 0}
    groups = {label: state.assignment[next(c for c in state.initial_clients if held[c][label])] for label in (0, 1)}
    for name in new:
        assert out.state.assignment[name] == groups[0 if held[name][1] else 1]


def test_a_migration_is_never_random(flex, run_rounds, cohort, labeled, two_classes):
    held = {f"{cluster}{i}": counts for cluster, counts in (("a", (10, 0)), ("b", (0, 10))) for i in range(6)}
    fed, method = sequential(labeled(**held), two_classes), flex(alpha=2, assignment="random")
    state, _ = run_rounds(method, fed, 1)
    assert len(state.assignment) == 12
    fed.set_data(labeled(**{name: counts[::-1] for name, counts in held.items()}))
    out = method.round(state, fed, cohort(fed, 1), Seed(3))
    assert out.counts["shifts"] == 12
    assert adjusted_rand(dict(out.state.assignment), {name: int(name[0] == "a") for name in held}) == 1


@pytest.fixture
def losing(held, labeled, two_classes):
    """`losing(work, "a")`: a federation that loses a's replies to this work, and a switch for the losses."""

    def make(work, *lost):
        class Losing(Sequential):
            on = False

            def send(self, request):
                gone = lost if Losing.on and request.work.name == work else ()
                return (batch for batch in super().send(request) if batch.clients[0] not in gone)

        fed = Server(Losing(labeled(**held), two_classes))
        return fed, lambda on: setattr(Losing, "on", on)

    return make


def test_a_drift_whose_reply_was_lost_is_detected_again(losing, held, flex, run_rounds, cohort, labeled):
    fed, lose = losing("flexcfl.watch", "a")
    state, _ = run_rounds(flex(), fed, 0)
    fed.set_data(labeled(**held | {"a": (0, 10)}))
    lose(True)
    out = flex().round(state, fed, cohort(fed, 0, "b"), Seed(1))
    assert out.counts == {"shifts": 0, "migrations": 0}
    lose(False)
    out = flex().round(out.state, fed, cohort(fed, 1, "b"), Seed(2))
    assert out.counts == {"shifts": 1, "migrations": 1}


def test_a_drifted_client_whose_choice_was_lost_has_no_group_until_it_is_in_a_cohort(
    losing, held, flex, run_rounds, cohort, labeled
):
    fed, lose = losing("fedgroup.choose", "a")
    state, _ = run_rounds(flex(), fed, 0)
    fed.set_data(labeled(**held | {"a": (0, 10), "c": (10, 0)}))
    lose(True)
    out = flex().round(state, fed, cohort(fed, 0, "b"), Seed(1))
    assert out.counts == {"shifts": 2, "migrations": 1}
    assert "a" not in out.state.assignment
    lose(False)
    out = flex().round(out.state, fed, cohort(fed, 1, "ab"), Seed(2))
    assert out.state.assignment["a"] == 1
    assert out.counts == {"shifts": 0, "migrations": 0}


@pytest.mark.parametrize("work", ["fedgroup.choose", "flexcfl.watch"])
def test_lost_replies_of_drifted_clients_do_not_skip_the_round(work, losing, held, flex, run_rounds, cohort, labeled):
    fed, lose = losing(work, *held)
    state, _ = run_rounds(flex(), fed, 0)
    fed.set_data(labeled(**held | {"a": (0, 10)}))
    lose(True)
    out = flex().round(state, fed, cohort(fed, 0, "bc"), Seed(1))
    assert set(out.distances) == {"b", "c"}
    assert ("a" in out.state.assignment) == (work == "flexcfl.watch")
    lose(False)
    out = flex().round(out.state, fed, cohort(fed, 1, "ab"), Seed(2))
    assert out.state.assignment["a"] == 1


def test_a_skipped_round_undoes_the_detection_on_server_and_client(losing, held, flex, run_rounds, cohort, labeled):
    fed, lose = losing("fit", "b")
    state, _ = run_rounds(flex(), fed, 0)
    fed.set_data(labeled(**held | {"a": (0, 10)}))
    lose(True)
    fed.begin()
    with pytest.raises(TooFewReplies):
        flex().round(state, fed, cohort(fed, 0, "b"), Seed(1))
    fed.undo()
    lose(False)
    assert flex().round(state, fed, cohort(fed, 1, "b"), Seed(2)).counts == {"shifts": 1, "migrations": 1}


# Identities ----------------------------------------------------------------------------------------------------------

TINY = {
    "data": {"name": "blobs", "clients": 10, "clusters": 2, "samples": 40, "side": 4, "classes": 3},
    "local": {"batch_size": 8, "learning_rate": 0.1},
    "run": {"rounds": 4, "clients_per_round": 4},
}


def finished(method, **sections):
    session = build(Spec.of({**TINY, **sections, "method": method})).session
    while session.stage == "prepare" or session.t < 4:
        session.step()
    return session


#: Shifts that `make test` has, too.
EACH_TIME = ("none", "rotate")


@pytest.mark.parametrize(
    "shift", [pytest.param(name, marks=() if name in EACH_TIME else pytest.mark.exhaustive) for name in SHIFTS]
)
def test_without_migration_it_is_fedgroup_byte_for_byte_under_every_shift(shift):
    drifting = {"name": shift, "probability": 0.5, "candidates": "assigned"}
    if shift in ("incremental", "new_class"):
        drifting["rounds"] = [0, 1, 2, 3] if shift == "incremental" else [1]
    same = {"clusters": 2, "alpha": 2, "eta_g": 0.1, "pretrain_steps": 5}
    one = finished({"name": "flexcfl", "migration": False, **same}, shift=drifting)
    other = finished({"name": "fedgroup", "assign": "lazy", **same}, shift=drifting)
    assert one.save() == other.save()


def test_without_drift_it_is_fedgroup_except_for_the_detection(blobs, run_rounds):
    fed, _ = blobs()
    settings = {"clusters": 2, "alpha": 2, "pretrain_steps": 5}
    one, rounds = run_rounds(FlexCFL(LOCAL, **settings), fed, 3, size=5)
    other, _ = run_rounds(FedGroup(LOCAL, assign="lazy", **settings), blobs()[0], 3, size=5)
    assert codec.encode(one) == codec.encode(other)
    assert all(r.counts == {"shifts": 0, "migrations": 0} for r in rounds[1:])


def test_with_eager_assignment_and_without_migration_it_is_fedgroup(blobs, run_rounds):
    fed, _ = blobs()
    one, _ = run_rounds(FlexCFL(LOCAL, clusters=2, alpha=2, assign="eager", migration=False), fed, 2)
    other, _ = run_rounds(FedGroup(LOCAL, clusters=2, alpha=2), blobs()[0], 2)
    assert codec.encode(one) == codec.encode(other)


def test_invalid_settings_are_refused(quadratic):
    for settings, text in (
        ({"tau": -1.0}, "tau must be at least 0, got -1.0"),
        ({"detector": "emd"}, "detector must be one of 'label', 'sorted_counts'"),
        ({"clusters": 0}, "clusters must be at least 1"),
    ):
        with pytest.raises(SpecError, match=text):
            FlexCFL(**settings)
    with pytest.raises(SpecError, match="this task is a regression"):
        FlexCFL().start(quadratic, Seed(0))
    assert dataclasses.asdict(FlexCFL(migration=False).start(quadratic, Seed(0)))


# Traffic -----------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_traffic_has_the_ratio_of_the_paper_in_its_setting(two_classes):
    # MNIST in the paper: K = 20, T = 300, m = 3, N = 1000, α = 20: (12000 + 3000 + 120) / 12000 = 1.26.
    n, k, t, m, alpha = 1000, 20, 300, 3, 20
    two = (np.ones((2, 1), np.float32), np.arange(2, dtype=np.int32))
    clients = data.from_arrays({f"{i:04}": two for i in range(n)}, test={}, classes=2)
    spec = {
        "method": {"name": "flexcfl", "clusters": m, "pretrain_steps": 2},
        "local": {"batch_size": 0},
        "run": {"rounds": t, "clients_per_round": k, "sampler": "sweep", "evaluate_every": t},
    }
    record = coterie.run(spec, data=clients, task=two_classes)
    sent = record.summary["traffic"]["by_purpose"]
    models_of = {purpose: (way["down"] + way["up"]) / (4 * 4) for purpose, way in sent.items()}
    assert models_of["train"] == 2 * k * t
    assert models_of["directions"] == m * n
    assert models_of["pretrain"] == 2 * alpha * m
    assert models_of["base"] == n - alpha * m
    assert sum(models_of[p] for p in ("train", "directions", "pretrain")) / (2 * k * t) == pytest.approx(1.26)


# Planted clusters ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rotated_digits_are_recovered(run_rounds, seeds):
    task = models.build("mclr", (8, 8), 10, normalize=Normalize(0.0, 16.0))
    scores = []
    for seed in seeds:
        images = data.load("digits", clients=40, clusters=4, seed=seed)
        truth = {client: int(cluster) for client, cluster in zip(images.clients, images.truth, strict=True)}
        state, _ = run_rounds(FlexCFL(clusters=4, alpha=5), vectorized(images, task), 1, seed=seed)
        assert len(state.assignment) == 40
        scores.append(adjusted_rand(dict(state.assignment), truth))
    assert scores.count(1.0) >= len(seeds) - len(seeds) // 10, scores
