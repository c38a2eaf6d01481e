"""A federation small enough for calculations by hand, and one of images; shared, to limit compilation.

The helpers are fixtures because test files cannot import from each other; each gives a plain function.

Numbers calculated by hand are checked with the sequential backend in `make test`, and with the vectorized backend, too,
in `make test-all` (`BOTH` in the test files). That the two agree for every method is part of the contract suite.
"""

from __future__ import annotations

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie import data, models
from coterie.clients import LocalSGD, score
from coterie.data.federated import Index
from coterie.errors import TooFewReplies
from coterie.federation import Cohort, PerClient, Sequential, Server, sequential, vectorized
from coterie.models import Normalize
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.seeds import Seed

FEDERATIONS = {"sequential": sequential, "vectorized": vectorized}

# One parameter w and F_i(w) = ½(w - x_i)²: the gradient is w - x_i; a step of rate r covers the share r of the
# distance.
_QUADRATIC = models.from_functions(
    lambda key: {"w": jax.random.normal(key)},
    lambda params, x: jnp.broadcast_to(params["w"], (x.shape[0],)),
    (1,),
    None,
    name="quadratic",
)

# Two layers that are added, wide below head: F_i = ½(wide + head - x_i)², with the same gradient for both. The
# alphabetical order of the names differs from the order of the layers.
_TWO_LAYERS = models.from_functions(
    lambda key: {"wide": jax.random.normal(key), "head": jax.random.normal(jax.random.fold_in(key, 1))},
    lambda params, x: jnp.broadcast_to(params["wide"] + params["head"], (x.shape[0],)),
    (1,),
    None,
    name="two layers",
)


@pytest.fixture(scope="session")
def quadratic():
    """F_i(w) = ½(w - x_i)² with one parameter w."""
    return _QUADRATIC


@pytest.fixture(scope="session")
def two_layers():
    """F_i(wide, head) = ½(wide + head - x_i)²."""
    return _TWO_LAYERS


#: Number of examples of `numbers`. The vectorized backend compiles for the number of examples of all clients together:
#: with rows of no client after those of the clients, all tests share what is compiled.
_ROWS = 64


#: Number of rows to which the sequential backend pads at least, in these tests.
_MIN_ROWS = 16


@pytest.fixture(scope="module", autouse=True)
def small_clients_share_what_is_compiled():
    """The sequential backend pads to powers of two: clients with 1, 2, 4 and 8 samples would compile four times."""
    module = importlib.import_module("coterie.federation.sequential")  # its name in the package is a function
    pad = module._padded

    def padded(array, fill):
        rest = np.full((max(_MIN_ROWS - len(array), 0), *array.shape[1:]), fill, array.dtype)
        return pad(np.concatenate([array, rest]), fill)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_padded", padded)
        yield


@pytest.fixture(scope="session")
def numbers():
    """`numbers(a=[0], b=[10])`: data of clients with these samples and without test samples."""

    def make(**clients):
        arrays = {name: (np.zeros((len(xs), 1), np.float32), np.array(xs, np.float32)) for name, xs in clients.items()}
        made = data.from_arrays(arrays, test={}, classes=None)
        rest = max(_ROWS - len(made.y), 0)
        return dataclasses.replace(made, x=np.pad(made.x, ((0, rest), (0, 0))), y=np.pad(made.y, (0, rest)))

    return make


@pytest.fixture(scope="session")
def tiny(numbers):
    """`tiny(a=[0], b=[10])`: a federation of clients with these samples."""

    def make(task=_QUADRATIC, backend="sequential", **clients):
        return FEDERATIONS[backend](numbers(**clients), task)

    return make


@pytest.fixture(scope="session")
def cohort():
    """`cohort(fed)`: all clients in round 0, or the given ones; `efforts` are the shares of work of stragglers."""

    def make(fed, t=0, clients=None, efforts=None, seed=0):
        chosen = tuple(fed.clients if clients is None else sorted(clients))
        return Cohort(t, chosen, Seed(seed).fold("cohort", t), tuple(fed.clients), efforts or {})

    return make


@pytest.fixture(scope="session")
def bank():
    """`bank(1, 8)`: models of the quadratic task with these parameters."""

    def make(*values):
        return {"w": np.array(values, np.float32)}

    return make


@pytest.fixture(scope="session")
def step():
    """`step(rate)`: one full-batch step; further settings by name."""

    def make(rate, **settings):
        return LocalSGD(**{"steps": 1, "batch_size": 0, "learning_rate": rate, **settings})

    return make


@pytest.fixture(scope="session")
def run_rounds():
    """`run_rounds(method, fed, rounds, size)`: the final state, and the rounds with the preparation steps.

    Cohorts depend on the seed and the round only; with `size` None all clients take part. `stragglers` is their number.
    """

    def run(method, fed, rounds, size=None, seed=0, state=None, among=None, stragglers=0):
        clients = tuple(fed.clients if among is None else sorted(among))
        size = len(clients) if size is None else size
        sampler = Sampler(clients, size, Seed(seed), stragglers=stragglers / size)
        session = Session(method, fed, Seed(seed), sampler, state=state)
        done = []
        for step in session.steps(rounds):
            if step.round is None:
                raise TooFewReplies(step.skipped)
            done.append(step.round)
        return session.state, done

    return run


@pytest.fixture(scope="session")
def accuracy():
    """`accuracy(method, state, fed)`: test accuracy of the clients with the models they are served."""

    def measure(method, state, fed):
        placement = method.place(state, fed.evaluating(), fed.clients, Seed(0))[1]
        served = (
            {"params": PerClient(placement.bank, placement.row)}
            if placement.adapt is None
            else {"after": placement.adapt}
        )
        got = fed.scoring().ask(fed.clients, score, Seed(0), part="test", **served)
        return float(got["correct"].sum() / got.samples.sum())

    return measure


@pytest.fixture(scope="session")
def blobs():
    """`blobs(seed)`: twelve clients in two clusters, one with images rotated by 90°; and client → cluster."""

    def make(seed=0, backend="vectorized", clients=12, clusters=2):
        images = data.load("blobs", clients=clients, clusters=clusters, samples=50, seed=seed)
        truth = {client: int(cluster) for client, cluster in zip(images.clients, images.truth, strict=True)}
        return FEDERATIONS[backend](images, _IMAGES), truth

    return make


_IMAGES = models.build("mclr", (8, 8), 4, normalize=Normalize(0.0, 255.0))
_DIGITS = models.build("mclr", (8, 8), 10, normalize=Normalize(0.0, 16.0))


@pytest.fixture(scope="session")
def digits():
    """`digits(...)`: images of digits with these options of `data.load`; and client → true cluster."""

    def make(**options):
        images = data.load("digits", **options)
        truth = {} if images.truth is None else dict(zip(images.clients, images.truth.tolist(), strict=True))
        return vectorized(images, _DIGITS), truth

    return make


@pytest.fixture(scope="session")
def groups(digits):
    """`groups(seed)`: digits of twenty clients in five groups with two labels each, and client → group."""
    return lambda seed=0, clients=20: digits(clients=clients, partition="groups", alpha=1.0, seed=seed)


# A pool of a hundred samples of each of two classes for each of twelve clients; the input is always 1, so that a model
# learns which class is more frequent.
_POOL = data.from_arrays(
    {f"{i:02}": (np.ones((200, 1), np.float32), np.repeat(np.arange(2, dtype=np.int32), 100)) for i in range(12)},
    test={},
    classes=2,
)


@pytest.fixture(scope="session")
def two_classes():
    """Logistic regression with one input and two classes."""
    return models.build("mclr", (1,), 2)


@pytest.fixture(scope="session")
def labeled():
    """`labeled(a=(10, 0))`: clients with these numbers of samples of each class, from one pool."""

    def make(**clients):
        held = []
        for position, counts in enumerate(clients.values()):
            own = _POOL.fit.of(position)
            labels = _POOL.y[own]
            held.append(np.concatenate([own[labels == label][:count] for label, count in enumerate(counts)]))
        none = Index.from_lists([np.zeros(0, np.int64)] * len(clients))
        return dataclasses.replace(_POOL, clients=tuple(clients), fit=Index.from_lists(held), test=none)

    return make


class _Losing(Sequential):
    """A transport that loses replies: `lost` maps the name of a work to the clients whose replies are lost."""

    lost: dict

    def send(self, request):
        gone = self.lost.get(request.work.name, ())
        return (batch for batch in super().send(request) if batch.clients[0] not in gone)


@pytest.fixture(scope="session")
def losing():
    """`losing(data, task, fit="b")`: a federation that loses b's replies to `fit`, and the mutable dict of losses."""

    def make(images, task, **lost):
        transport = _Losing(images, task)
        transport.lost = lost
        return Server(transport), lost

    return make


@pytest.fixture(scope="session")
def joins_later(cohort):
    """`joins_later(method, fed, lost)`: a, b, c form clusters; replies of b are lost then and in the first round."""

    def check(method, fed, lost):
        state = method.round(method.start(fed.task, Seed(0)), fed, cohort(fed, -1), Seed(0)).state
        known = dict(state.assignment)
        assert set(known) == {"a", "c"}
        assert method.round(state, fed, cohort(fed), Seed(0)).assignment == known
        with pytest.raises(TooFewReplies):  # no other client can train
            method.round(state, fed, cohort(fed, clients="b"), Seed(0))
        lost.clear()
        found = method.round(state, fed, cohort(fed), Seed(0))
        assert set(found.assignment) == {"a", "b", "c"}
        assert dict(found.state.assignment) == found.assignment
        return state, found.assignment

    return check
