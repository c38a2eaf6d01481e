"""Bytes by round, direction and purpose, against numbers computed by hand."""

from __future__ import annotations

import json

import numpy as np

from coterie.clients import LocalSGD, fit, label_counts, losses_of, score
from coterie.clients.closest import fit_closest
from coterie.clients.schema import settings_dict
from coterie.federation import Adapt, Cohort, Mean, PerClient, Traffic
from coterie.seeds import Seed

LOCAL = LocalSGD(epochs=1, batch_size=8, learning_rate=0.1)
SOME = ("0", "1", "2")

# mclr on 4×4 images and 3 classes: d = 16·3 + 3 = 51 numbers of 4 bytes.
MODEL = 51 * 4
# Settings are sent as JSON.
SETTINGS = len(json.dumps(settings_dict(LOCAL), separators=(",", ":")))


def test_local_training_sends_a_model_each_way_and_scalars_count_as_control(wired, model):
    for backend in ("sequential", "vectorized"):
        for how in (None, Mean(spread=True)):  # averaging happens on the server: the bytes are the same
            fed, _ = wired(backend)
            fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL, reduce=how)
            assert fed.traffic.by_purpose() == {
                "train": {"down": 3 * MODEL, "up": 3 * MODEL},
                "control": {"down": 3 * SETTINGS, "up": 3 * (4 + 4)},  # loss and steps
            }
            assert fed.traffic.total() == 6 * MODEL + 3 * SETTINGS + 24


def test_a_value_per_client_counts_one_row_per_client(wired, bank):
    fed, _ = wired()
    fed.ask(SOME, fit, Seed(0), start=PerClient(bank, {"0": 0, "1": 1, "2": 1}), local=LOCAL)
    assert fed.traffic.total("down", "train") == 3 * MODEL


def test_k_models_count_k_times_and_losses_count_as_the_work_declares(wired, bank):
    fed, _ = wired()
    fed.ask(SOME, fit_closest, Seed(0), base={}, heads=bank, local=LOCAL)
    assert fed.traffic.by_purpose()["train"] == {"down": 3 * 2 * MODEL, "up": 3 * MODEL}
    # Two losses, the choice, the training loss, the steps.
    assert fed.traffic.by_purpose()["control"]["up"] == 3 * (2 * 4 + 4 + 4 + 4)
    fed.ask(SOME, losses_of, Seed(0), centers=bank)
    assert fed.traffic.by_purpose()["train"] == {"down": 2 * 3 * 2 * MODEL, "up": 3 * MODEL + 3 * 2 * 4}


def test_a_declared_purpose_is_counted_under_its_name(wired, probe):
    fed, _ = wired()
    fed.ask(SOME, label_counts, Seed(0))
    assert fed.traffic.by_purpose() == {"labels": {"down": 0, "up": 3 * 3 * 4}}
    fed.ask(SOME, probe.class_means, Seed(0))
    # For class c the probe returns 1 + c images of 16 numbers, and again three counts.
    assert fed.traffic.by_purpose() == {
        "labels": {"down": 0, "up": 2 * 3 * 3 * 4},
        "subspaces": {"down": 0, "up": 3 * (1 + 2 + 3) * 16 * 4},
    }


def test_evaluation_is_not_counted_in_the_totals(wired, model):
    fed, _ = wired()
    evaluation = fed.scoring()
    evaluation.ask(SOME, score, Seed(0), part="test", params=model)
    row = {"down": 3 * MODEL, "up": 3 * 8}
    assert fed.traffic.by_purpose() == {"evaluate": row}
    evaluation.ask(SOME, score, Seed(0), part="test", after=Adapt(fit, {"start": model, "local": LOCAL}))
    assert fed.traffic.by_purpose() == {"evaluate": {"down": 6 * MODEL + 3 * SETTINGS, "up": 2 * 3 * 8}}
    assert fed.traffic.total() == 0
    assert fed.traffic.total("up", "evaluate") == 2 * 3 * 8


def test_bytes_are_counted_in_the_round_of_the_cohort(wired, model):
    fed, _ = wired()
    for t, who in ((0, SOME), (1, ("3",))):
        fed.ask(Cohort(t, who, Seed(t), fed.clients), fit, Seed(0), start=model, local=LOCAL)
    fed.ask(("4", "5"), fit, Seed(0), start=model, local=LOCAL)  # without a cohort: outside of rounds
    assert [fed.traffic.total("up", "train", t) for t in (0, 1, -1)] == [3 * MODEL, MODEL, 2 * MODEL]
    assert fed.traffic.by_purpose(1)["train"] == {"down": MODEL, "up": MODEL}


def test_sent_bytes_count_even_if_the_reply_is_lost(wired, model, lose):
    fed, _ = wired(touch=lose({1: "1"}))
    fed.ask(SOME, fit, Seed(0), start=model, local=LOCAL)
    assert fed.traffic.by_purpose()["train"] == {"down": 3 * MODEL, "up": 2 * MODEL}


def test_a_traffic_table_can_be_saved_and_loaded():
    traffic = Traffic()
    traffic.add(0, "down", "train", 10)
    traffic.add(0, "down", "train", np.int64(5))
    traffic.add(2, "up", "evaluate", 7)
    traffic.add(2, "up", "control", 0)  # zero bytes make no entry
    other = Traffic()
    other.load(traffic.save())
    assert other.by_purpose() == {"train": {"down": 15, "up": 0}, "evaluate": {"down": 0, "up": 7}}
    assert other.save() == traffic.save() == [[0, "down", "train", 15], [2, "up", "evaluate", 7]]


def test_a_copy_of_a_traffic_table_does_not_change_with_later_bytes():
    traffic = Traffic()
    traffic.add(0, "down", "train", 10)
    copy = traffic.copy()
    traffic.add(0, "down", "train", 1)
    traffic.add(1, "up", "train", 2)
    assert copy.save() == [[0, "down", "train", 10]]
    copy.add(0, "down", "train", 100)
    assert traffic.save() == [[0, "down", "train", 11], [1, "up", "train", 2]]
