"""What needs no cluster: versions, the missing extra, and settings."""

from __future__ import annotations

import sys

import pytest

import coterie
from coterie.errors import SpecError
from coterie.federation.ray import cluster
from coterie.federation.ray.cluster import check_versions
from coterie.federation.ray.settings import RaySettings
from coterie.federation.ray.worker import versions


@pytest.mark.parametrize("name", ["Coterie", "JAX", "NumPy", "Python"])
def test_a_worker_with_another_version_is_refused_with_a_sentence(name):
    check_versions({**versions(), "host": "b"})
    text = f"The Ray worker on b has {name} 0.0, this process has .*; install the same version on all machines"
    with pytest.raises(SpecError, match=text):
        check_versions({**versions(), name: "0.0", "host": "b"})


def test_a_missing_extra_is_named_before_the_run_begins(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SpecError, match=r"needs an extra: pip install 'coterie\[ray\]'"):
        coterie.run({"run": {"backend": "ray", "rounds": 1}}, out=tmp_path / "record")
    assert not (tmp_path / "record").exists()


def test_an_address_for_clients_without_their_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"ray://.*needs an extra: pip install 'coterie\[ray\]'"):
        cluster._check_reachable(RaySettings("ray://127.0.0.1:1"))


class SlowHead:
    """A package `ray` whose head starts the process for a client only at a later call."""

    def __init__(self, failures, text="Initialization failure:\n RuntimeError: Starting Ray client server failed."):
        self.failures, self.text, self.calls = failures, text, 0

    def init(self, **options):
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionAbortedError(self.text)


def test_a_busy_head_is_asked_again(monkeypatch):
    monkeypatch.setattr(cluster, "_PAUSE", 0.0)
    slow, never = SlowHead(2), SlowHead(9)
    cluster._init(slow)
    assert slow.calls == 3
    with pytest.raises(ConnectionAbortedError):
        cluster._init(never)
    assert never.calls == 3
    text = "did not start a process for this client in time, 3 times"
    assert text in cluster._refused(RaySettings("ray://head:10001"), never.text)


def test_a_head_that_refuses_is_not_asked_again():
    refusing = SlowHead(9, "permission denied")
    with pytest.raises(ConnectionAbortedError):
        cluster._init(refusing)
    assert refusing.calls == 1


@pytest.mark.parametrize("address", ["local", "auto", "ray://head:10001", "10.0.0.1:6379"])
def test_addresses_that_ray_understands(address):
    assert RaySettings(address).address == address


def test_other_addresses_are_refused():
    with pytest.raises(SpecError, match=r"ray\.address must be local, auto, ray://HOST:PORT or HOST:PORT, got 'here'"):
        RaySettings("here")
    with pytest.raises(SpecError, match=r"ray\.address must be local.*got 'ray://head'"):
        RaySettings("ray://head")
    with pytest.raises(SpecError, match=r"ray\.workers must be at least 0"):
        RaySettings(workers=-1)
