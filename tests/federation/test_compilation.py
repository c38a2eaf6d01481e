"""Compilations are counted, and cohorts of any size compile nothing again."""

from __future__ import annotations

import dataclasses
import os

import jax
import numpy as np
import pytest

from coterie import data, tree
from coterie.clients import LocalSGD, fit, losses_of
from coterie.federation import Cohort, compilation, vectorized
from coterie.federation.compilation import compilations
from coterie.methods import build
from coterie.models import Normalize, mclr
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.seeds import Seed
from coterie.threads import start_jax

# From 1 to 300 training examples, of four classes.
SIZES = (1, 2, 3, 7, 12, 20, 33, 50, 90, 140, 210, 300)
LOCAL = LocalSGD(epochs=2, batch_size=10, learning_rate=0.1)


@pytest.fixture(scope="module")
def uneven():
    draw = np.random.default_rng(0)
    clients = {
        f"c{place:02}": (draw.integers(0, 256, (n + 5, 4, 4)).astype(np.uint8), draw.integers(0, 4, n + 5))
        for place, n in enumerate(SIZES)
    }
    tests = {client: (x[-5:], y[-5:]) for client, (x, y) in clients.items()}
    return data.from_arrays({client: (x[:-5], y[:-5]) for client, (x, y) in clients.items()}, tests, classes=4)


def fresh(uneven):
    """A federation with a new task, for which nothing is compiled yet."""
    return vectorized(uneven, mclr(uneven.shape, uneven.classes, normalize=Normalize(0.0, 255.0)))


class Sizes(Sampler):
    """A sampler of cohorts with different sizes."""

    def cohort(self, t):
        return Sampler(self.clients, COHORTS[t], Seed(t)).cohort(t)


COHORTS = (5, 4, 1, 3, 7, len(SIZES), 2, 1)
METHODS = {
    "fedavg": {},
    "ifca": {"clusters": 3},
    "ifca by gradients": {"clusters": 3, "averaging": "gradients"},
    "ifca with members": {"clusters": 3, "members": 2},
    "local": {},
}


#: Methods of `make test`; the others run in `make test-all`.
EACH_TIME = ("fedavg", "ifca with members")


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        *(pytest.param(name, 10, marks=() if name in EACH_TIME else pytest.mark.exhaustive) for name in METHODS),
        ("fedavg", 0),
    ],
)
def test_nothing_is_compiled_after_the_second_round(uneven, name, batch):
    fed = fresh(uneven)
    given = {"rounds": len(COHORTS), "clients_per_round": 5, "clients": len(SIZES), "truth": None}
    local = dataclasses.replace(LOCAL, batch_size=batch, lr_decay=0.9)
    session = Session(
        build(name.split()[0], local, given, **METHODS[name]), fed, Seed(0), Sizes(fed.clients, 5, Seed(0))
    )
    before = compilations().count
    for _ in range(2):
        session.step()
        session.evaluate(fed.clients[3:8])
    after_two = compilations().count
    assert after_two > before
    for count in COHORTS[2:]:
        session.step()
        session.evaluate(fed.clients[:count])
    assert compilations().count == after_two


def test_cohorts_of_one_client_compile_nothing_again(uneven):
    fed = fresh(uneven)
    w = fed.task.init(Seed(0))
    fed.ask(fed.clients, fit, Seed(0), start=w, local=LOCAL)
    compiled = compilations().count
    for client in fed.clients:
        fed.ask((client,), fit, Seed(0), start=w, local=LOCAL)
    cohort = Cohort(0, fed.clients, Seed(0), fed.clients, {"c03": 0.0, "c11": 0.7})
    fed.ask(cohort, fit, Seed(0), start=w, local=LOCAL)
    assert compilations().count == compiled


def test_another_learning_rate_compiles_nothing_again(uneven):
    fed = fresh(uneven)
    w = fed.task.init(Seed(0))
    fed.ask(fed.clients, fit, Seed(0), start=w, local=LOCAL)
    compiled = compilations().count
    for rate in (0.09, 0.01, 1e-5):
        fed.ask(fed.clients, fit, Seed(0), start=w, local=dataclasses.replace(LOCAL, learning_rate=rate))
    assert compilations().count == compiled
    # A learning rate of 0 is a constant in the compiled code: one more compilation, once.
    for _ in range(2):
        fed.ask(fed.clients, fit, Seed(0), start=w, local=dataclasses.replace(LOCAL, learning_rate=0.0))
        assert compilations().count == compiled + 1


def test_compilation_time_is_measured(uneven):
    before = compilations()
    fed = fresh(uneven)
    fed.ask(fed.clients, fit, Seed(0), start=fed.task.init(Seed(0)), local=LOCAL)
    assert compilations().seconds > before.seconds


def test_starting_jax_does_not_change_the_environment(monkeypatch):
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    for before in ("7", None):
        monkeypatch.delenv("NPROC", raising=False)
        if before is not None:
            monkeypatch.setenv("NPROC", before)
        start_jax.__wrapped__()
        assert os.environ.get("NPROC") == before
        assert "PJRT_NPROC" not in os.environ


def test_without_a_writable_cache_folder_the_cache_is_off(monkeypatch, tmp_path):
    import jax

    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    kept = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        compilation.prepare()
        assert jax.config.values["jax_compilation_cache_dir"] is None
    finally:
        jax.config.update("jax_compilation_cache_dir", kept)


@pytest.mark.exhaustive  # every operation is compiled on its own
@pytest.mark.parametrize(("backend", "batch_size"), [("sequential", 16), ("vectorized", 16), ("vectorized", 0)])
def test_works_run_without_compilation_for_debugging(backend, batch_size, wired, model, bank):
    local = LocalSGD(epochs=1, batch_size=batch_size, learning_rate=0.1)
    asked = ("0", "1")
    fed, _ = wired(backend)

    def ask():
        trained = fed.ask(asked, fit, Seed(0), start=model, local=local)
        losses = fed.ask(asked, losses_of, Seed(0), centers=bank)["losses"]
        return [*tree.leaves(trained["params"]), trained["loss"], losses]

    expected = ask()
    jax.config.update("jax_disable_jit", True)  # as JAX_DISABLE_JIT=1 does, for all threads
    try:
        found = ask()
    finally:
        jax.config.update("jax_disable_jit", False)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
