"""The same spec gives the same bytes with any number of threads and cores, hash seed, compilation cache and locale."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from coterie.methods import METHODS

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

#: Runs all given specs, and prints a hash of everything in their records but durations.
SCRIPT = """
import hashlib, json, os, sys
cores, specs = int(sys.argv[1]), json.loads(sys.argv[2])
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])  # before JAX counts the cores
import locale
locale.setlocale(locale.LC_ALL, "")
import coterie
from coterie import codec

def timeless(value):
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if key != "seconds"}
    return value

for spec in specs:
    record = coterie.run(spec)
    rows = json.dumps([timeless(row) for row in record.rounds]).encode()
    served = {key: value for key, value in record.served.items() if key != "spec"}  # it has the number of threads
    print(hashlib.sha256(rows + codec.encode(served)).hexdigest())
"""

#: Name → number of cores, number of threads (`run.threads`) and environment. All are compared with the first.
SETTINGS: dict[str, tuple[int, int, dict[str, str]]] = {
    "two cores": (2, 0, {}),
    "one core": (1, 0, {}),
    "one thread": (2, 1, {}),
    "three threads": (2, 3, {}),
    "another hash seed": (2, 0, {"PYTHONHASHSEED": "1"}),
    "no compilation cache": (2, 0, {"COTERIE_NO_CACHE": "1"}),
    "locale C without UTF-8": (2, 0, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "another time zone": (2, 0, {"TZ": "Pacific/Kiritimati"}),
}
REFERENCE, *OTHERS = SETTINGS


def spec(method: str, threads: int) -> dict:
    options = {"flhc": {"warm_rounds": 1}, "flag": {"trial_rounds": 1, "threshold_step": 0.5}}
    return {
        "data": {"name": "blobs", "clients": 10, "samples": 30},
        "model": {"name": "mlp", "widths": [16]},
        "method": {"name": method, **options.get(method, {})},
        "local": {"epochs": 1},
        "run": {"rounds": 2, "clients_per_round": 5, "threads": threads, "newcomers": 0.2},
        "faults": {"drop": 0.1},
    }


def hashes(name: str, methods: list[str]) -> list[str]:
    """A hash for each method, from a process of its own."""
    cores, threads, variables = SETTINGS[name]
    command = [sys.executable, "-c", SCRIPT, str(cores), json.dumps([spec(method, threads) for method in methods])]
    done = subprocess.run(command, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


@pytest.fixture(scope="session")
def methods(campaign) -> list[str]:
    """All methods in the full campaign, otherwise one with preparation."""
    return list(METHODS) if campaign.full else ["fedgroup"]


@pytest.fixture(scope="session")
def reference(methods) -> list[str]:
    return hashes(REFERENCE, methods)


@pytest.mark.parametrize("name", OTHERS)
def test_bytes_are_the_same(name, methods, reference, tally):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    found = hashes(name, methods)
    assert dict(zip(methods, found, strict=True)) == dict(zip(methods, reference, strict=True))
    tally("determinism", name).add("same bytes", len(methods))
