import numpy as np
import pytest

from coterie import codec, methods

#: Settings that a run of three rounds needs.
SETTINGS = {"flhc": {"warm_rounds": 1}}

#: Methods of `make test`: one model, models that stay with the clients, cached values and preparation, several models
#: per client, works without a model, steps before a client is served, single steps. `make test-all` has all methods.
EACH_TIME = ("fedavg", "local", "flexcfl", "fedsoft", "pacfl", "perfedavg", "srfca")


def same_step(simulated, networked):
    """Run one step of both and evaluate it; asserts equal bytes."""
    one, other = simulated.step(), networked.step()
    assert one.skipped == other.skipped
    assert codec.encode(simulated.state) == codec.encode(networked.state)
    scores, others = simulated.evaluate(), networked.evaluate()
    assert scores.clients == others.clients
    for name in ("rows", "correct", "total", "loss"):
        assert np.array_equal(getattr(scores, name), getattr(others, name)), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=() if name in EACH_TIME else pytest.mark.exhaustive) for name in methods.names()],
)
def test_every_method_gives_the_bytes_and_the_ledger_of_the_simulator(pair, method):
    both = pair({"name": method, **SETTINGS.get(method, {})})
    while not both.simulated.finished(3):
        same_step(both.simulated, both.networked)
    assert both.networked.finished(3)
    assert both.simulated.traffic.save() == both.networked.traffic.save()
    assert not both.networked.rejected
    assert both.networked.lost == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", methods.names())
def test_the_vectorized_backend_gives_the_bytes_of_the_simulator(pair, method):
    both = pair({"name": method, **SETTINGS.get(method, {})}, run={"backend": "vectorized", "threads": 1})
    while not both.simulated.finished(3):
        same_step(both.simulated, both.networked)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", pytest.param("flexcfl", marks=pytest.mark.exhaustive)])
def test_the_default_backend_gives_the_bytes_of_the_simulator(pair, method):
    both = pair(method, run={"backend": "vectorized", "threads": 1, "rounds": 2})
    while not both.simulated.finished(2):
        same_step(both.simulated, both.networked)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["local", "flexcfl", "fedsoft", "srfca"])
def test_a_server_that_resumes_from_an_older_checkpoint_repeats_its_rounds_with_the_same_bytes(pair, method):
    both = pair(method, run={"rounds": 5})
    saved, states = [], []
    for _ in range(4):
        both.networked.note_checkpoint()
        saved.append(both.networked.save())
        both.networked.step()
        states.append(codec.encode(both.networked.state))
    for back in (1, 2):  # the last checkpoint, and the one before it
        again = both.restart(codec.decode(saved[4 - back]), starts=back)
        for state in states[4 - back :]:
            again.step()
            assert codec.encode(again.state) == state


@pytest.mark.slow
def test_a_client_that_lost_its_disk_gets_cached_values_again_and_continues_from_a_blank_memory(pair):
    both = pair("flexcfl")
    same_step(both.simulated, both.networked)
    client = both.networked.clients[0]
    both.sites[client]._store.forget(client)
    both.simulated._fed._transport._store.forget(client)
    for _ in range(2):
        same_step(both.simulated, both.networked)
    assert both.simulated.traffic.save() == both.networked.traffic.save()


def test_clients_that_restart_continue_from_their_disks(pair):
    both = pair("local", run={"clients_per_round": 6})
    same_step(both.simulated, both.networked)
    for client, site in both.sites.items():
        again = type(site)(site._data, site._folder, threads=1)
        both.channel.sites[client] = again.answer
    same_step(both.simulated, both.networked)
