"""Shared by the benchmarks: command-line arguments, test clients, and the JSON result."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

import numpy as np

import coterie
from coterie.data import load, partition
from coterie.data.federated import FederatedData, Index, aligned
from coterie.data.loading import available
from coterie.seeds import Seed


def arguments(text: str, only: str | None = None, first_seed: int | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--tiny", action="store_true", help="a small problem, to check that the script runs")
    if only is not None:
        parser.add_argument("--only", default=only, help="experiments to run, separated by commas")
    if first_seed is not None:
        parser.add_argument("--first-seed", type=int, default=first_seed, help="first seed of the report")
    return parser.parse_args()


def cpu_model() -> str:
    """Name of the processor, from /proc/cpuinfo if there is one."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions(*packages: str) -> dict[str, str]:
    """Version of each package that is installed."""
    found = {}
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def machine() -> dict:
    """Versions and machine, which the figures depend on."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit.stdout.strip() or None,
        "coterie": coterie.__version__,
        "python": platform.python_version(),
        **versions("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "torch", "ray"),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load": os.getloadavg()[0],
    }


def progress(what: str, seconds: float | None = None) -> None:
    """Say on standard error what runs now, and how long it usually takes on two cores."""
    about = "" if seconds is None else f" (about {seconds:.0f} s)"
    print(f"  ... {what}{about}", file=sys.stderr, flush=True)


def seconds_of(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def alternate(repeats: int, calls: Mapping[str, Callable[[], object]], pause: float = 0.0) -> dict[str, list[float]]:
    """Seconds of each call; the calls take turns, so that a slow minute of the machine affects all of them.

    Args:
        repeats: Number of times that each is called.
        calls: Name → function.
        pause: Seconds before each call: threads of BLAS and OpenMP keep spinning for a while and would slow it down.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            time.sleep(pause)
            times[name].append(seconds_of(call))
    return times


def spread(times: Sequence[float]) -> dict[str, float]:
    """The best and the median of some times."""
    return {"best": min(times), "median": median(times)}


def ratio(times: Sequence[float], reference: Sequence[float]) -> dict[str, float]:
    """Times divided by those of a reference: of the best ones, and the median over those that followed each other."""
    pairs = [one / other for one, other in zip(times, reference, strict=True)]
    return {"best": min(times) / min(reference), "median": median(pairs)}


def finish(results: dict, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps({**results, "machine": machine()}))


def peak_bytes() -> int:
    """Peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def images(name: str, shape: tuple[int, ...], count: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Images from $COTERIE_DATA if found, otherwise random images of that shape; pixels in [0, 1]."""
    file = Path(os.environ.get("COTERIE_DATA", "")) / f"{name}.npz"
    if file.is_file():
        with np.load(file) as archive:
            x = np.concatenate([archive["x_train"], archive["x_test"]])[:count]
            y = np.concatenate([archive["y_train"], archive["y_test"]])[:count]
        return x.reshape(-1, *shape).astype(np.float32) / 255, y.astype(np.int32), name
    rng = Seed(0).fold("images").generator()
    x = rng.random((count, *shape), dtype=np.float32)
    return x, rng.integers(0, 10, count).astype(np.int32), "random images"


def power_law(clients: int, seed: int = 0) -> FederatedData:
    """FedProx's partition of MNIST: two digits per client, power-law sizes, a tenth for testing."""
    x, y, source = images("mnist", (28, 28), 70 * clients)
    index = partition.by_classes(y, clients, per_client=2, seed=seed)
    return partition.assemble(source, (aligned(x), y), index, test_share=0.1, classes=10)


def cifar_clients(clients: int, samples: int) -> FederatedData:
    """CIFAR-10 clients with `samples` images each."""
    x, y, source = images("cifar10", (32, 32, 3), clients * samples)
    return partition.assemble(source, (aligned(x), y), partition.iid(len(x), clients), test_share=0.1, classes=10)


def shakespeare_clients(clients: int, samples: int) -> FederatedData:
    """Shakespeare roles with `samples` training windows each if found, otherwise random characters."""
    if available("shakespeare"):
        return load("shakespeare", clients=clients, max_samples=samples)
    x = Seed(0).fold("characters").generator().integers(0, 80, (clients * samples, 80)).astype(np.uint8)
    index = partition.iid(len(x), clients)
    return partition.assemble("random characters", (x, x[:, 0]), index, test_share=0.1, classes=80, tokens=80)


def tweet_clients(clients: int, samples: int) -> FederatedData:
    """Accounts with `samples` tweets each: 25 random words out of 20,000, with random vectors of 300 numbers."""
    rng = Seed(0).fold("words").generator()
    x = rng.integers(0, 20_000, (clients * samples, 25)).astype(np.uint16)
    table = rng.standard_normal((20_000, 300), np.float32)
    index = partition.iid(len(x), clients)
    pool = (x, (x[:, 0] % 2).astype(np.int32))
    return partition.assemble("random words", pool, index, test_share=0.1, classes=2, tokens=len(table), table=table)


def synthetic_clients(clients: int, samples: int = 20, features: int = 64) -> FederatedData:
    """Clients with random vectors and labels of ten classes, without test examples; made in parts, to save memory."""
    x = aligned(np.empty((clients * samples, features), np.float32))
    rng = np.random.default_rng(0)
    for first in range(0, len(x), 65536):
        x[first : first + 65536] = rng.random(x[first : first + 65536].shape, dtype=np.float32)
    y = rng.integers(0, 10, len(x)).astype(np.int32)
    index = Index.from_sizes(np.arange(len(x), dtype=np.int32), np.full(clients, samples))
    return FederatedData("random", x, y, partition.numbered(clients), index, empty_index(clients), 10)


def empty_index(clients: int) -> Index:
    """An index without examples, for clients that have no test data."""
    return Index.from_sizes(np.zeros(0, np.int64), np.zeros(clients, np.int64))
