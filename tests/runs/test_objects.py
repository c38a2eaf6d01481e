"""Data, tasks and methods given as objects: run, recorded, resumed."""

from __future__ import annotations

import re

import numpy as np
import pytest
from flax import linen

import coterie
from coterie.clients import LocalSGD
from coterie.errors import SpecError
from coterie.methods.fedavg import FedAvg

RUN = {"run": {"rounds": 4, "clients_per_round": 2, "checkpoint_every": 2}}


def hospitals():
    draw = np.random.default_rng(0)
    return coterie.data.from_arrays(
        {name: (draw.normal(size=(30, 4)).astype(np.float32), draw.integers(0, 3, 30)) for name in ("a", "b", "c")}
    )


class Small(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(3)(linen.relu(linen.Dense(5)(x)))


class Interrupted(Exception):
    pass


def test_objects_replace_named_parts():
    task = coterie.models.from_flax(Small(), shape=(4,), classes=3)
    record = coterie.run(RUN, data=hospitals(), task=task, method=FedAvg(LocalSGD(batch_size=8)))
    assert record.summary["status"] == "done"
    assert (record.summary["method"], record.summary["model"]) == ("FedAvg", "Small")


def test_named_parts_beside_objects_are_still_checked():
    with pytest.raises(SpecError, match=r"No setting 'cluster' of method ifca\. Did you mean 'clusters'"):
        coterie.run({**RUN, "method": {"name": "ifca", "cluster": 2}}, data=hospitals())


def test_a_run_with_objects_resumes_if_they_are_given_again(tmp_path):
    given = {"data": hospitals(), "method": FedAvg(LocalSGD(batch_size=8))}
    whole = coterie.run(RUN, **given)

    def stop(row):
        if row["t"] == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        coterie.run(RUN, out=tmp_path / "run", on_round=stop, **given)
    resumed = coterie.resume(tmp_path / "run", **given)
    assert [row["loss"] for row in resumed.rounds] == [row["loss"] for row in whole.rounds]


def test_resuming_without_the_object_names_the_call_that_continues_the_run(tmp_path):
    data = coterie.data.load("blobs", clients=4, samples=20)
    arrays = coterie.data.from_arrays({client: data.examples(client) for client in data.clients}, name="blobs")
    task = coterie.models.from_functions(
        lambda key: {"w": np.zeros((64, 4))}, lambda w, x: x.reshape(len(x), -1) @ w["w"], (8, 8), 4, name="mclr"
    )
    for name, given in (("task", {"task": task}), ("data", {"data": arrays})):
        folder = tmp_path / name
        spec = {"data": {"name": "blobs", "clients": 4, "samples": 20}} if name == "task" else {}
        coterie.run({**spec, "run": {"rounds": 1}}, out=folder, **given)
        (folder / "summary.json").unlink()
        # Both are named like built-in ones; their settings would be those of other models and data.
        call = re.escape(f"coterie.resume({str(folder)!r}, {name}=...)")
        with pytest.raises(SpecError, match=call):
            coterie.resume(folder)
        assert coterie.resume(folder, **given).summary["rounds"] == 1
